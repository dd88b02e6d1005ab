"""Which nodes are open to a gang as a whole, whatever its pods ask for: allowed domains, pinned domain, held nodes."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from grove.scheduler.cluster.nodes import Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.cluster.topology import Tree
from grove.scheduler.model.gang import Gang


def open_rows(snapshot: Snapshot, gang: Gang, tree: Tree, closed: Collection[str]) -> Mask | None:
    """Rows open to the gang; None is all. `closed` are nodes held for others."""
    if not gang.allowed and not closed and gang.pinned_domain is None:
        return None
    table = snapshot.nodes
    mask = table.alive[: table.rows].copy()
    for key, values in gang.allowed:
        column = table.column(key)
        mask &= column.spread([value in values for value in column.values], False, table.rows)
    for name in closed:
        if name in table.row_of:
            mask[table.row_of[name]] = False
    if gang.pinned_domain is not None:
        inside = np.zeros(table.rows, dtype=np.bool_)
        found = _pinned(snapshot, gang, tree)
        if found is not None:
            inside[tree.rows_in(*found)] = True
        mask &= inside
    return mask


def pinned_rows(snapshot: Snapshot, gang: Gang) -> tuple[Mask, str] | None:
    """The nodes of the domain a gang is pinned to, and its name; None for a gang that is free to go anywhere."""
    if gang.pinned_domain is None:
        return None
    tree = snapshot.tree(gang.keys(), gang.topology)
    inside = np.zeros(snapshot.nodes.rows, dtype=np.bool_)
    found = _pinned(snapshot, gang, tree)
    if found is None:
        return inside, f"the domain of node {gang.pinned_domain.node}"
    inside[tree.rows_in(*found)] = True
    return inside, snapshot.domain_name(tree, *found)


def _pinned(snapshot: Snapshot, gang: Gang, tree: Tree) -> tuple[int, int] | None:
    """Level and domain of the pin; None when its node or level is gone."""
    pin = gang.pinned_domain
    level = tree.find_level(pin.key) if pin is not None else None
    row = snapshot.nodes.row_of.get(pin.node) if pin is not None else None
    if level is None or row is None:
        return None
    domain = tree.domain_of(row, level)
    return (level, domain) if domain >= 0 else None
