"""The running scheduler: follow the cluster, decide, bind, report. All of its I/O is here.

live.Scheduler(client, config).run()   the door: everything below, wired together
follow, view, trees                    events come in; the cluster as the scheduler knows it; gangs for the core
cycle, intake                          one turn: what changed, then every unit that is due, in order
decisions, sharing                     the core is asked, in place or in a thread; devices that pods share
commit, bind, nominate, evictions      placements are bound or taken back; victims are chosen and evicted
holding, relief                        room is kept for who waits; whom a change helps
report, metrics                        what became of gangs: status, conditions, events, numbers
storage, attach, claims, claimwrite    sources behind the seam: volumes and devices
asked                                  what `explain` and `queue` ask, without deciding anything
"""
