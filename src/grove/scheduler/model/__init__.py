"""A pod, a node and a gang as values; what the pure functions answer with; the configuration; the seams.

facts, reading    PodFacts, NodeFacts, Shape, and how they are read from API objects
gang              Gang, PodGroup, build_gang(podgang, pods)
network           who talks to whom, and zones that are wished for, from annotations
answers, reasons  Placement, NoFit, Change, Budget; Reason, the value behind every no
seams             NodeFilter, NodeSource, Score, Policy, and the lists of them that a snapshot carries
config            SchedulerConfiguration
"""
