"""Which pods must leave so that a gang fits, and which nodes are held for a gang that waits.

preempt.preempt(snapshot, gang, running, budgets)  -> Victims | NoVictims
repack.repack(snapshot, gang, movable)              -> Repack | NoRepack: gangs to move so that a waiting one fits
fleet_repack                                       gangs to move so that the fleet is less fragmented
running.RunningIndex                               running pods by unit, priority and budget
victims.fewest_victims                             the victims for a given placement
nodes_to_hold                                      nodes to hold for gangs that wait
"""
