"""Names of one set that become one name: `-` joins the parts of a generated name, and users may write it too.

Autoscalers create and delete replicas, so these rules compare every possible index. Two names that could become equal
at some number of replicas are refused on creation, when the user can still rename. Upstream admits them, and then two
owners change one object in turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from grove.admission.rules.sharing import sharing_entries
from grove.admission.rules.view import TEMPLATE, SetView
from grove.api.faults import Fault, duplicate
from grove.api.fields import text
from grove.api.meta import Json

_INDEX = "#"
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_MAY_MEET = re.compile(r"(?:^|-)(?:0|[1-9][0-9]*)-")
"""Of two cliques that meet, one has a number with something behind it in its own name: the other's index."""


class _Family(NamedTuple):
    """The names one part of a set gives to objects of one kind: what stands between dashes, `#` for any index."""

    parts: tuple[str, ...]
    who: str
    path: str
    value: str

    @property
    def indices(self) -> frozenset[int]:
        return frozenset(at for at, part in enumerate(self.parts) if part == _INDEX)


def collision_faults(new: SetView, old: SetView | None = None) -> Iterator[Fault]:
    """Names that can become one; of a stored set only those that it has not had so far."""
    known = {(fault.value, fault.detail) for fault in _faults(old)} if old is not None else set()
    yield from (fault for fault in _faults(new) if (fault.value, fault.detail) not in known)


def _faults(new: SetView) -> Iterator[Fault]:
    if any(_MAY_MEET.search(clique.name) for clique in new.cliques):
        for family, other in _meeting([family for family, _ in _cliques(new)]):
            yield duplicate(family.path, family.value, f"the pods of {other.who} get the same name: rename one")
    owners = (new.template, *(clique.raw for clique in new.cliques), *(group.raw for group in new.groups))
    if any("resourceSharing" in owner for owner in owners):
        for family, other in _meeting(list(_claims(new))):
            yield duplicate(
                family.path, family.value, f"the ResourceClaims of {other.who} get the same name: rename one"
            )
    scaled = {group.name for group in new.groups if group.scaling is not None}
    for clique in new.cliques:
        if clique.scaling is not None and clique.name in scaled and new.group_of(clique.name) is None:
            detail = "a scaling group has this name too and both are autoscaled, so their autoscalers would be one"
            yield duplicate(f"{clique.path}.name", clique.name, detail)


def _cliques(new: SetView) -> Iterator[tuple[_Family, Json]]:
    """The names of PodCliques, less that of the set, with the template of each; members of groups first."""
    known = {clique.name: clique.raw for clique in new.cliques}
    for group in new.groups:
        for at, member in enumerate(group.clique_names):
            if member in known and new.group_of(member) is group:
                parts = (_INDEX, *group.name.split("-"), _INDEX, *member.split("-"))
                who, path = f'clique "{member}" in scaling group "{group.name}"', f"{group.path}.cliqueNames[{at}]"
                yield _Family(parts, who, path, member), known[member]
    for clique in new.cliques:
        if new.group_of(clique.name) is None:
            parts = (_INDEX, *clique.name.split("-"))
            yield _Family(parts, f'clique "{clique.name}"', f"{clique.path}.name", clique.name), clique.raw


def _claims(new: SetView) -> Iterator[_Family]:
    """The names of shared ResourceClaims, less that of the set."""
    paths = {clique.name: clique.path for clique in new.cliques}
    groups = (
        ((_INDEX, *group.name.split("-")), f'scaling group "{group.name}"', group.path, group.raw)
        for group in new.groups
    )
    owners: Iterable[tuple[tuple[str, ...], str, str, Json]] = chain(
        [((), "the set", TEMPLATE, new.template)],
        ((family.parts, family.who, paths[family.value], raw) for family, raw in _cliques(new)),
        groups,
    )
    for parts, who, owner_path, owner in owners:
        for path, entry in sharing_entries(owner_path, owner):
            name, scope = text(entry.get("name")), "all" if entry.get("scope") == "AllReplicas" else _INDEX
            yield _Family((*parts, scope, *name.split("-")), who, f"{path}.name", name)


def _meeting(families: list[_Family]) -> Iterator[tuple[_Family, _Family]]:
    """Each family that has a name in common with one before it, and that one.

    Two meet if they are equal where neither has an index, and each has a number where only the other has one. So each
    is entered once for every way in which others are indexed: linear in families, users write any number of them.
    """
    ways = {(len(family.parts), family.indices) for family in families}
    seen: dict[tuple[object, ...], _Family] = {}
    for family in families:
        own = family.indices
        for length, others in ways:
            if length != len(family.parts) or not all(_NUMBER.fullmatch(family.parts[at]) for at in others - own):
                continue
            name = tuple(_INDEX if at in others else part for at, part in enumerate(family.parts))
            if (other := seen.get((name, others, own))) is not None and other.who != family.who:
                yield family, other
            seen.setdefault((name, own, others), family)
