"""The web console: one page, and the small server behind it.

`ledger` is what the page shows, as rows with a history of changes; `follow` keeps it from a cluster, `tour` from the
guided tour; `viewers` says who may see which ledger; `server` speaks HTTP. Questions that need thought (why,
plan, queue) are answered by the functions of the command line, which `grove.cli.console` hands in: both say the same.
"""
