"""The cluster as columns of integers: nodes, topology, counts of pods, and the snapshot that carries them.

snapshot.Snapshot                  add_node, remove_node, add_pod, remove_pod, copy; `cluster(nodes, pods)` makes one
nodes.NodeTable, topology.Tree     rows, labels, taints; domains of a topology's levels
podcounts                          pods by affinity term, amounts by account
"""
