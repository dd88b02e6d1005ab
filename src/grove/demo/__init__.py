"""The story engine behind `grove demo` and `grove simulate`: a whole Grove inside the process, and somebody who tells.

`grove.plan.world` wires the simulated cluster with the real operator, admission and scheduler; `scenario` is what shall
happen, `story` makes it happen, `chronicle` turns what the cluster went through into sentences, `stage` shows them.
Nothing here decides anything about pods: whatever is told was done by the same code that runs on a real cluster.
"""
