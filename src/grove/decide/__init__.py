"""The operator's decisions: pure functions from what is wanted and what was observed to what to do about it.

Nothing here has a client, a clock or a random source of its own; controllers read, call one of these, and apply the
answer. `layout` unfolds a set into names, `children`, `claims`, `computedomains`, `gangs` and `pods` say what should
exist, `diff` says how to get there, the `*_status` modules say what to report.
"""
