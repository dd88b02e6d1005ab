"""Says how a set is and why: the state, the reason, its evidence and the next step. `grove.show` draws these values.

`seen` is what was read of a cluster. `gangs` finds the reason why a gang does not run, `verdict` the state of a set,
and `advice` the command that helps. Every command and the console ask here, so they give the same answer.
"""
