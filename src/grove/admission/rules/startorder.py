"""Start order: which cliques may wait for which, and warnings about an order that cannot work or has no effect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise

from grove.admission.rules.view import TEMPLATE, CliqueView, SetView
from grove.api.env import PCSG_INDEX, PCSG_TEMPLATE_NUM_PODS
from grove.api.faults import Fault, duplicate, invalid, required
from grove.api.fields import mapping, sequence, text
from grove.api.podcliqueset import EXPLICIT, IN_ORDER
from grove.api.startorder import READY

_MANY_NODES = ("--nnodes", "--dist-init-addr", PCSG_TEMPLATE_NUM_PODS)
"""Words of a container that runs one engine over several pods: it is ready when all of them have joined."""


def startup_faults(new: SetView) -> Iterator[Fault]:
    """Explicit start order: every dependency exists, none names itself, none closes a circle."""
    known = {clique.name for clique in new.cliques}
    groups = {group.name for group in new.groups}
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
        for name in sorted(name for name in seen if name.strip() and name not in known):
            hint = ": it is a scaling group; name one of its cliques" if name in groups else ""
            yield invalid(path, name, f"no such clique in {TEMPLATE}.cliques{hint}")
    parents = {
        clique.name: [p for p in clique.starts_after if p in known and p != clique.name] for clique in new.cliques
    }
    for circle in cycles(parents):
        order = ", ".join(f"{child} starts after {parent}" for child, parent in pairwise(circle))
        yield invalid(f"{TEMPLATE}.cliques", circle[:-1], f"cliques wait for each other and none can start: {order}")


def cycles(parents: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """At least one cycle of every connected knot of the graph, closed: `[a, b, a]`; no clique is named twice.

    Linear in edges, and no recursion: users write the graph.
    """
    closed_circles: list[list[str]] = []
    reported: set[str] = set()
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
                    if reported.isdisjoint(circle):
                        closed_circles.append([*circle, parent])
                        reported.update(circle)
                elif parent not in finished:
                    trail[parent] = len(trail)
                    pending.append((parent, iter(parents.get(parent, ()))))
                    break
            else:
                pending.pop()
                del trail[clique]
                finished.add(clique)
    return closed_circles


def start_order_notes(new: SetView) -> Iterator[str]:
    """Warnings about fields that nothing reads, and about two cliques of a group that wait for each other."""
    if new.starts_after_condition and new.startup_type not in (IN_ORDER, EXPLICIT):
        yield f"{TEMPLATE}.startsAfterCondition: not used, because no clique starts after another"
    by_name = {clique.name: clique for clique in new.cliques}
    for clique in new.cliques:
        if clique.starts_after and new.startup_type != EXPLICIT:
            yield f"{clique.path}.spec.startsAfter: not used, because cliqueStartupType is not {EXPLICIT}"
    for clique, waits_for in _parents(new):
        path = f"{clique.path}.spec.startsAfterCondition"
        if clique.starts_after_condition and not waits_for:
            yield f"{path}: not used, because {clique.name} starts after no other clique"
        if (clique.starts_after_condition or new.starts_after_condition or READY) != READY:
            continue
        group = new.group_of(clique.name)
        for parent in (by_name[name] for name in waits_for if name in by_name):
            if group is None or new.group_of(parent.name) is not group or not _has_readiness_probe(parent):
                continue
            others = [name for name in group.clique_names if name != parent.name]
            if needs := _needs(parent, others):
                yield (
                    f"{path}: {clique.name} starts when {parent.name} is Ready, but {parent.name} uses {needs} and has "
                    f"a readiness probe; if {parent.name} is ready only after {clique.name} has joined, neither "
                    "becomes ready: set startsAfterCondition to Started"
                )


def _parents(new: SetView) -> Iterator[tuple[CliqueView, Sequence[str]]]:
    """Each clique with the names of the cliques that it starts after."""
    for index, clique in enumerate(new.cliques):
        if new.startup_type == IN_ORDER:
            yield clique, [new.cliques[index - 1].name] if index else []
        else:
            yield clique, clique.starts_after if new.startup_type == EXPLICIT else ()


def _containers(clique: CliqueView) -> Iterator[Mapping[str, object]]:
    return map(mapping, sequence(clique.pod_spec.get("containers")))


def _has_readiness_probe(clique: CliqueView) -> bool:
    return any(mapping(container.get("readinessProbe")) for container in _containers(clique))


def _needs(clique: CliqueView, others: Sequence[str]) -> str:
    """The word of a clique's commands by which it needs the pods of its group's `others`; empty if there is none."""
    texts: list[str] = []
    for container in _containers(clique):
        texts += (text(word) for field in ("command", "args") for word in sequence(container.get(field)))
        texts += (text(mapping(variable).get("value")) for variable in sequence(container.get("env")))
    counted = (word for word in _MANY_NODES if any(word in words for words in texts))
    named = (name for name in others if any(_names_a_pod(words, name) for words in texts))
    return next(chain(counted, named), "").strip("-")


def _names_a_pod(word: str, clique: str) -> bool:
    """True if a word has the host name of a pod of the clique, or the host name up to its index."""
    return f"-{clique}-" in word or re.search(rf"{PCSG_INDEX}[)}}]?-{re.escape(clique)}$", word) is not None
