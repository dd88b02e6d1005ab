"""grove-scheduler: places whole gangs, close together, and gives a reason for every refusal.

The core is pure. The cluster comes in as a `Snapshot`: columns of integers that events keep current and that are
copied in microseconds. A gang comes in as a tree of constraints (`build_gang`), and answers go out as values. There is
no I/O, no clock and no randomness; budgets are counted in steps. So the live loop, plans, explanations, replays and
tests share one function.

    place(snapshot, gang, budget)         -> Placement | NoFit        where a gang goes
    preempt(snapshot, gang, running, …)   -> Victims | NoVictims      which pods must leave for it
    explain(snapshot, gang, running)      -> Explanation              why it waits, and the smallest changes that help
    feasible_nodes(snapshot, pod)         -> [names]                  kube-scheduler's filters, for one pod

From the outside in: `model` has questions and answers, `cluster` the state. `filters`, `devices` and `volumes` say
which nodes are open to a pod. `solve` finds a placement, `evict` chooses victims, `explain` gives reasons, `policy`
orders waiting units. Only `loop` and `sources` do I/O; `replay` plays the journal of the loop again. An extension
joins behind one of four seams (`model.seams`); `standard` has the scheduler's own members.
"""
