"""Which nodes a pod may go to, and which it would like: filters and scores, put together in `fit`.

fit.feasible_nodes(snapshot, pod)    kube-scheduler's answer for one pod
fit.allowed_mask, open_mask          rows that pass what lasts, and everything
fit.open_rows                        rows open to a gang as a whole: allowed and pinned domains, held nodes
nodes                                filters by what a node is and has: selectors, taints, volumes, host ports
pods                                 affinity, anti-affinity, topology spread; pods of one gang among each other
scores                               what pods would like
"""
