"""The engine behind `grove demo` and `grove simulate`: a whole Grove inside the process, with a report of what
happens.

`grove.plan.world` connects the simulated cluster with the real operator, admission and scheduler. `scenario` lists the
steps, `story` carries them out, `chronicle` describes the changes of the cluster in sentences, and `stage` shows them.
Nothing here decides anything about pods: the same code runs on a real cluster.
"""
