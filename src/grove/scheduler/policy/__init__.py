"""Which units may run, in which order, and the state of each gang. No I/O.

- gang_life.after(life, event): the one transition function of a gang's life.
- gang_state.GangState, readiness(gang): one PodGang: its pods, its life, whether it is due and what it waits for.
- gang_status.wanted_status(gang, …): the status its PodGang should have.
- cluster_changes: what changed since the last turn, and which changes matter.
- waiting_queue.WaitingQueue, Relief: what waits: order, back-off; which units a change helps.
- long_waits.LongWaits: which units have waited long, and when to look at one because of the time.
- quota_policy: a policy behind the seam; queue_tree, fair_shares, quota_objects: the tree of queues.
"""
