"""Explicit start order: every dependency exists, none names itself, none closes a circle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from grove.admission.rules.view import TEMPLATE, SetView
from grove.api.faults import Fault, duplicate, invalid, required


def startup_faults(new: SetView) -> Iterator[Fault]:
    known = {clique.name for clique in new.cliques}
    unknown: dict[str, None] = {}
    for clique in new.cliques:
        path = f"{clique.path}.spec.startsAfter"
        if any(not parent.strip() for parent in clique.starts_after):
            yield required(path, "an entry must name a clique")
        if clique.name in clique.starts_after:
            yield invalid(path, clique.name, "a clique cannot start after itself")
        seen: set[str] = set()
        for parent in clique.starts_after:
            if parent in seen:
                yield duplicate(path, parent)
            seen.add(parent)
        unknown |= dict.fromkeys(sorted(name for name in seen if name.strip() and name not in known))
    if unknown:
        yield invalid(f"{TEMPLATE}.cliques.startsAfter", list(unknown), f"no such clique in {TEMPLATE}.cliques")
    parents = {
        clique.name: [p for p in clique.starts_after if p in known and p != clique.name] for clique in new.cliques
    }
    for circle in circles(parents):
        told = ", ".join(f"{child} starts after {parent}" for child, parent in pairwise(circle))
        yield invalid(f"{TEMPLATE}.cliques", circle[:-1], f"cliques wait for each other and none can start: {told}")


def circles(parents: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """At least one circle of every knot of the graph, closed: `[a, b, a]`; no clique is told twice.

    Linear in edges, and no recursion: users write the graph.
    """
    found: list[list[str]] = []
    told: set[str] = set()
    finished: set[str] = set()
    for root in parents:
        if root in finished:
            continue
        trail = {root: 0}  # the path from the root, in order, with each clique's place on it
        pending = [(root, iter(parents[root]))]
        while pending:
            clique, rest = pending[-1]
            for parent in rest:
                if parent in trail:
                    circle = list(trail)[trail[parent] :]
                    if told.isdisjoint(circle):
                        found.append([*circle, parent])
                        told.update(circle)
                elif parent not in finished:
                    trail[parent] = len(trail)
                    pending.append((parent, iter(parents.get(parent, ()))))
                    break
            else:
                pending.pop()
                del trail[clique]
                finished.add(clique)
    return found
