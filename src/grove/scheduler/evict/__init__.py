"""Who must leave so that a gang fits, and which nodes are held for one that waits.

preempt.preempt(snapshot, gang, running, budgets)  -> Victims | NoVictims
victims.RunningIndex                               what runs, by unit, priority and budget
holds.Holds                                        nodes kept for gangs that wait
"""
