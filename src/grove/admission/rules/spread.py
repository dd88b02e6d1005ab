"""Spread constraints: a level of the set's one topology, and no pack constraint that contradicts it.

A unit (a replica of the set or of a group, a pod) is counted in one domain. So the domain that a replica is packed into
may not be broader than the domain to spread over. And units that are packed together are all in one domain: that domain
has to be broader than the one to spread over. The schema refuses an empty domain and a maxSkew of 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grove.admission.rules.lookups import Known, LookupFailed
from grove.admission.rules.topology import ONE_TOPOLOGY, levels_of, resolve
from grove.admission.rules.view import Constraint, SetView, Spread
from grove.api.faults import Fault, internal, invalid, required


def spread_faults(new: SetView, *, enabled: bool, lookups: Known) -> list[Fault]:
    spreads = new.spreads
    if not enabled:
        detail = "not allowed while topology-aware scheduling is disabled (topologyAwareScheduling.enabled)"
        return [invalid(one.path, one.domain, detail) for one in spreads]
    name = spread_topology(new)
    if faults := list(_name_faults(spreads, name)):
        return faults
    if not spreads:
        return []
    path = f"{spreads[0].path}.topologyName"
    # The rules of pack constraints report a binding that is missing. Without any, nothing else does.
    is_reported = resolve(new).name == name
    try:
        binding = lookups.find_topology(name)
    except LookupFailed as error:
        found = internal(path, f'ClusterTopologyBinding "{name}" could not be read: {error}')
        return [] if is_reported else [found]
    if binding is None:
        return [] if is_reported else [invalid(path, name, "no such ClusterTopologyBinding")]
    levels = levels_of(binding)
    return list(_level_faults(spreads, levels)) or list(_pack_faults(new, levels))


def spread_topology(new: SetView) -> str:
    """The topology that spread constraints use: that of the pack constraints, else the first that one of them names."""
    return resolve(new).name or next((one.topology_name for one in new.spreads if one.topology_name), "")


def _name_faults(spreads: list[Spread], name: str) -> Iterator[Fault]:
    for one in spreads:
        if not name:
            detail = "no constraint names a topology: name a ClusterTopologyBinding"
            yield required(f"{one.path}.topologyName", detail)
        elif one.topology_name and one.topology_name != name:
            yield invalid(f"{one.path}.topologyName", one.topology_name, f'differs from "{name}": {ONE_TOPOLOGY}')


def _level_faults(spreads: list[Spread], levels: Mapping[str, int]) -> Iterator[Fault]:
    for one in spreads:
        if one.domain not in levels:
            detail = f"not a level of the topology, which has: {', '.join(levels)}"
            yield invalid(f"{one.path}.domain", one.domain, detail)


def _pack_faults(new: SetView, levels: Mapping[str, int]) -> Iterator[Fault]:
    whole = [(f"topologyConstraint of the set requires one {_quoted(new.constraint)}", _hard(new.constraint))]
    if new.spread is not None:
        whole.append((f'spreadConstraint of the set keeps a replica in one "{new.spread.domain}"', new.spread.domain))
        yield from _unit_faults(new.spread, new.constraint, levels)
    inside: dict[str, list[tuple[str, str]]] = {}
    for group in new.groups:
        own = inside[group.name] = [
            *whole,
            (
                f'topologyConstraint of group "{group.name}" requires one {_quoted(group.constraint)}',
                _hard(group.constraint),
            ),
        ]
        if group.spread is not None:
            yield from _unit_faults(group.spread, group.constraint, levels)
            yield from _together_faults(group.spread, whole, levels)
            detail = f'spreadConstraint of group "{group.name}" keeps a replica in one "{group.spread.domain}"'
            own.append((detail, group.spread.domain))
    for clique in new.cliques:
        if clique.spread is not None:
            owner = new.group_of(clique.name)
            around = inside[owner.name] if owner is not None else whole
            own_pack = (f"its topologyConstraint requires one {_quoted(clique.constraint)}", _hard(clique.constraint))
            yield from _together_faults(clique.spread, [*around, own_pack], levels)


def _unit_faults(spread: Spread, pack: Constraint | None, levels: Mapping[str, int]) -> Iterator[Fault]:
    """A replica is packed into one domain, which lies in one domain of the spread."""
    hard = _hard(pack)
    if hard in levels and levels[hard] < levels[spread.domain]:
        detail = f'narrower than "{hard}", which topologyConstraint requires: a replica is counted in one domain'
        yield invalid(f"{spread.path}.domain", spread.domain, detail)


def _together_faults(spread: Spread, around: list[tuple[str, str]], levels: Mapping[str, int]) -> Iterator[Fault]:
    """What is spread lies in one domain of what is around it, which has to be broader."""
    for reason, domain in around:
        if domain in levels and levels[domain] >= levels[spread.domain]:
            yield invalid(f"{spread.path}.domain", spread.domain, f"nothing can be spread over it: {reason}")
            return


def _hard(pack: Constraint | None) -> str:
    return pack.hard if pack is not None else ""


def _quoted(pack: Constraint | None) -> str:
    return f'"{_hard(pack)}"'
