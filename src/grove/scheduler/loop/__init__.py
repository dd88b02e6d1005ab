"""The running scheduler: follow the cluster, decide, bind, report. All of its I/O is here.

live.Scheduler(client, config).run()    the door: everything below, wired together
follow, view, trees                     events come in; the cluster as the scheduler knows it; gangs for the core
cycle                                   one turn: what changed, then every unit that is due, in order
placing                                 one unit: it gets its place, or is told why there is none
decisions                               the core is asked, in place or in a thread
bind, nominate, evictions               placements are bound, or taken back; victims are chosen; pods that have to go
holding, replacements                   capacity is held for gangs that wait long, and for pods that are being replaced
restoring                               what an earlier scheduler held is read back
report, metrics                         what became of gangs: status, conditions, events, numbers
sources                                 the sources behind the seam together, what daemons keep, and the shape of those
  storage, claims, minors, reservations   that follow volumes, claimed devices, Koordinator's devices and reservations
  preparing, reserving                    what is written for them: into claims before a bind, to reservations
quotas                                  ElasticQuotas and KAI's queues
asked                                   what `explain` and `queue` ask, without deciding anything
"""
