"""grove-scheduler: whole gangs, close together, with a reason for every no.

The core is pure: the cluster comes in as a `Snapshot` (columns of integers, kept current by events, copied in
microseconds), a gang as a tree of constraints (`build_gang`), and answers go out as values. No I/O, no clock, no
randomness; budgets are counted in steps. So the live loop, plans, explanations, replays and tests share one function.

    place(snapshot, gang, budget)         -> Placement | NoFit        where a gang goes
    preempt(snapshot, gang, running, …)   -> Victims | NoVictims      who must leave for it
    explain(snapshot, gang, running)      -> Explanation              why it waits, and the smallest changes that help
    feasible_nodes(snapshot, pod)         -> [names]                  kube-scheduler's filters, for one pod

From the outside in: `model` is what is asked and answered, `cluster` the state, `filters`, `devices` and `volumes` say
which nodes are open to a pod, `solve` finds a placement, `evict` chooses victims, `explain` gives reasons, `policy`
orders waiting units. Only `loop` and `sources` do I/O; `replay` plays the journal of the loop again. Something new
joins behind one of four seams (`model.seams`); `standard` has the scheduler's own members.
"""
