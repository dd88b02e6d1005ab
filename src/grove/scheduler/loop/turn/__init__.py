"""One turn of the scheduler: what changed, then every unit that is due, in order.

cycle                    the turn itself
placing                  one unit: reserves and binds its placement
refusals                 one unit without a place: its reason, and units like it
order_changes            wakes units that come before the owner of a hold now
"""
