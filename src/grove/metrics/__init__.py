"""Engines' own numbers for the autoscaler: read from their pages, kept for a minute, served as Kubernetes metrics.

`engines`, `page`, `histogram`, `history`, `readings`, `targets` and `wire` decide and do no I/O; `scrape` reads pages,
`access`, `server` and `apiservices` are the two aggregated APIs, `service` puts all of it together.
"""
