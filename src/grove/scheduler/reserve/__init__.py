"""Reservations as values: who may use one, how many pods it takes, and which its pods use (`slots`).

`apart` names pods that must not share a node, and `status` makes what is written.
"""
