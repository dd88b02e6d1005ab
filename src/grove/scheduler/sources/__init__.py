"""The sources of the running scheduler. Each follows one kind of objects and counts on nodes what plain requests omit.

node_sources                                    all sources asked together, their base class, what daemons use
volume_source, volume_promises                  volumes, attach limits
device_claims, claim_writer                     devices that pods claim (DRA)
koordinator_devices                             Koordinator's Device objects
reservation_source, reservation_writer          Koordinator's Reservations
"""
