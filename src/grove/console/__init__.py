"""The web console: one page, and the small server behind it.

`ledger` has the rows of the page with a history of changes. `follow` keeps it from a cluster, `tour` from the guided
tour. `viewers` decides who may see which ledger, and `server` speaks HTTP. The functions of the command line answer
longer questions (why, plan, queue), so both give the same answer. `grove.cli.console` passes them in.
"""
