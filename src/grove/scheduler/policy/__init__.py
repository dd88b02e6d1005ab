"""Who may run, in which order, and what is known of each gang; nothing here does I/O.

life.after(life, event)           the one transition function of a gang's life
gangs.GangState, readiness(gang)  one PodGang: its pods, its life, whether it is its turn and what it waits for
status.wanted_status(gang, …)     the status its PodGang should have
changes.Changes                   what changed since the last turn, and which changes matter at all
queue.Queue, Relief               what waits: order, back-off; whom a change helps
quota.Quota                       a policy behind the seam; queues, shares, quota_objects: the tree of queues
"""
