"""The running scheduler: follow the cluster, decide, bind, report. All of its I/O is here.

live.Scheduler(client, config).run()    the door: everything below, wired together
follow, view, trees                     events come in; the cluster as the scheduler knows it; gangs for the core
cycle, intake                           one turn: what changed, then every unit that is due, in order
decisions                               the core is asked, in place or in a thread
bind, nominate, evictions               placements are bound or taken back; victims are chosen and evicted
holding                                 room is kept for who waits
report, metrics                         what became of gangs: status, conditions, events, numbers
sources: storage, claims, minors        sources behind the seam: volumes, claimed devices, Koordinator's devices
preparing                               what a pod got, written on it and into its claims before its bind
reservations, reserving, quotas         Koordinator's reservations; ElasticQuotas and KAI's queues
asked                                   what `explain` and `queue` ask, without deciding anything
"""
