"""Who must leave so that a gang fits, and which nodes are held for one that waits.

preempt.preempt(snapshot, gang, running, budgets)  -> Victims | NoVictims
running.RunningIndex                               what runs, by unit, priority and budget
victims.fewest_victims                             whom to choose for a given placement
holds.Holds                                        nodes kept for gangs that wait
"""
