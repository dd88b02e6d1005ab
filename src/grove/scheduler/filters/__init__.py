"""Which nodes a pod may go to, and which it would like: one module a filter, put together in `fit`.

fit.feasible_nodes(snapshot, pod)    kube-scheduler's answer for one pod
fit.allowed_mask, open_mask          rows that pass what lasts, and everything
fit.open_rows                        rows open to a gang as a whole: allowed and pinned domains, held nodes
selectors, taints, volumes, ports    the filters;  interpod: affinity, anti-affinity, topology spread
scores, taints                       the scores
"""
