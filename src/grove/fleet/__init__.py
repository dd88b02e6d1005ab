"""Weeks in the life of a fleet: the real operator and scheduler on a simulated cluster, in virtual time.

`file` reads a fleet file and `amounts` its random quantities. `run` plays it: `machines` breaks, drains and repairs
nodes, `serving` brings load, autoscaling and releases, `batch` brings gangs that arrive and end. `figures` measures,
`promises` checks what must never happen, `report` and `compare` write what people read. `record` writes a fleet file
from a live cluster. A run depends on its file and its seed alone.
"""
