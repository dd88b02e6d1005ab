"""Who may run, in which order, and what is known of each gang; nothing here does I/O.

life.after(life, event)          the one transition function of a gang's life
gangs.GangState                  one PodGang: its pods, its life, what is said of it
readiness.readiness(gang, look, …)  whether it is its turn, and what it waits for
status.wanted_status(gang, …)    the status its PodGang should have
queue.Queue                      what waits: order, back-off, what wakes it
priority, quota, queues, shares  policies behind the seam
"""
