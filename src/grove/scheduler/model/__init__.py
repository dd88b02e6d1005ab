"""A pod, a node and a gang as values; the answers of the pure functions; the configuration; the seams.

- facts, reading: PodFacts, NodeFacts, Shape, and how they are read from API objects.
- gang: Gang, PodGroup, build_gang(podgang, pods).
- network: which pods talk to each other, and preferred zones, from annotations.
- answers, reasons: Placement, NoFit, Change, Budget; Reason, the value behind every refusal.
- seams: NodeFilter, NodeSource, Score, Policy, and the lists of them that a snapshot carries.
- config: SchedulerConfiguration.
"""
