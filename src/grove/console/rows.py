"""The rows of the page's tables, from values that the pictures of the command line are made of. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from grove.api import conditions as words
from grove.api import labels
from grove.api.meta import Key, find_condition, rfc3339
from grove.api.podgang import PodGang
from grove.show.held_capacity import held_for
from grove.show.layout import Domain, Layout
from grove.show.overview import rows_of
from grove.show.processes import Processes
from grove.show.seen import Seen
from grove.show.verdict import judge
from grove.show.words import camel


def node_rows(layout: Layout) -> dict[str, Any]:
    """A row a node: its domains from broad to narrow, amounts, why it takes no pods, and who has how much of it.

    Of few nodes there is more to say: what of it is broken, what is reserved by which Reservation, for whom it is held.
    """
    found: dict[str, Any] = {}
    for path, domain in _leaves(layout.root, ()):
        for spot in domain.spots:
            taken = [[layout.gang_of.get(who, who), count] for who, count in spot.taken]
            row = [list(path), spot.total, spot.used, spot.note, taken]
            if spot.broken or spot.reserved or spot.held_for:
                row += [spot.broken, [list(one) for one in spot.reserved], spot.held_for]
            found[spot.node] = row
    return found


def _leaves(domain: Domain, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Domain]]:
    if not domain.domains:
        yield path, domain
    for inner in domain.domains:
        yield from _leaves(inner, (*path, inner.name))


def fleet_rows(layout: Layout) -> dict[str, Any]:
    """What is said of the fleet as a whole, by name."""
    root = layout.root
    return {
        "resource": layout.resource,
        "total": [root.nodes, root.total, root.used, root.free],
        "levels": camel(msgspec.to_builtins(layout.levels)),
    }


def set_rows(seen: Seen, now: datetime, processes: Processes, resource: str) -> dict[str, Any]:
    """A row a set, as `kubectl grove status -o json` has it; of gangs that wait, what the scheduler wrote on them."""
    judged = [judge(seen, pcs, now, processes) for pcs in seen.sets]
    found = rows_of(judged, seen, resource=resource)
    return {str(Key(one.namespace, one.name)): camel(msgspec.to_builtins(one)) for one in found}


def gang_row(gang: PodGang) -> dict[str, Any]:
    """What the page says of a gang beside its pods."""
    said = find_condition(gang.status.conditions, words.SCHEDULED)
    created, held = gang.metadata.creation_timestamp, held_for(gang)
    return {
        "set": gang.metadata.labels.get(labels.PART_OF, ""),
        "phase": gang.status.phase,
        "score": gang.status.placement_score,
        "placed": said is not None and said.status == words.TRUE,
        "message": said.message if said is not None and said.status != words.TRUE else "",
        "created": rfc3339(created) if created else "",
        "held": len(held),
    }
