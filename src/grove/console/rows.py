"""The rows of the console's tables, made of the same values as the answers of the command line. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from grove.api import conditions as words
from grove.api import labels
from grove.api.meta import Key, find_condition, rfc3339
from grove.api.podgang import PodGang
from grove.diagnosis.held_capacity import held_for
from grove.diagnosis.processes import Processes
from grove.diagnosis.seen import Seen
from grove.diagnosis.verdict import judge_all
from grove.diagnosis.words import camel
from grove.show.layout import Domain, Layout
from grove.show.overview import rows_of


def node_rows(layout: Layout) -> dict[str, Any]:
    """One row for each node: its domains from broad to narrow, amounts, why it takes no pods, and its gangs.

    Some rows are longer: how much of the node is broken, reserved by which Reservation or headroom, and held for which
    gang.
    """
    rows: dict[str, Any] = {}
    for path, domain in _leaves(layout.root, ()):
        for spot in domain.spots:
            taken = [[layout.gang_of.get(who, who), count] for who, count in spot.taken]
            row = [list(path), spot.total, spot.used, spot.note, taken]
            kept = [*spot.reserved, *((f"headroom of {name}", count) for name, count in spot.headroom)]
            if spot.broken or kept or spot.held_for:
                row += [spot.broken, [list(entry) for entry in kept], spot.held_for]
            rows[spot.node] = row
    return rows


def _leaves(domain: Domain, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Domain]]:
    if not domain.domains:
        yield path, domain
    for inner in domain.domains:
        yield from _leaves(inner, (*path, inner.name))


def fleet_rows(layout: Layout) -> dict[str, Any]:
    """Numbers of the fleet as a whole, by name."""
    root = layout.root
    return {
        "resource": layout.resource,
        "total": [root.nodes, root.total, root.used, root.free],
        "levels": camel(msgspec.to_builtins(layout.levels)),
        "size": layout.size.words if layout.size is not None else "",
    }


def set_rows(seen: Seen, now: datetime, processes: Processes, resource: str) -> dict[str, Any]:
    """One row for each set, as `kubectl grove status -o json` has it, with the states of its gangs by name.

    The reason of a gang that waits is the one that the scheduler wrote on it.
    """
    judged = judge_all(seen, now, processes)
    gangs = {
        Key(judgement.namespace, judgement.name): {gang.gang: gang.state for gang in judgement.gangs}
        for judgement in judged
    }
    rows = {Key(row.namespace, row.name): row for row in rows_of(judged, seen, resource=resource)}
    return {str(key): camel(msgspec.to_builtins(row)) | {"gangs": gangs[key]} for key, row in rows.items()}


def gang_row(gang: PodGang) -> dict[str, Any]:
    """One gang, without its pods and its state."""
    condition = find_condition(gang.status.conditions, words.SCHEDULED)
    created, held = gang.metadata.creation_timestamp, held_for(gang)
    return {
        "set": gang.metadata.labels.get(labels.PART_OF, ""),
        "score": gang.status.placement_score,
        "placed": condition is not None and condition.status == words.TRUE,
        "message": condition.message if condition is not None and condition.status != words.TRUE else "",
        "created": rfc3339(created) if created else "",
        "held": len(held),
    }
