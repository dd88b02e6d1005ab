"""Pod: the condition by which a pod of a start order says for which cliques it waits."""
