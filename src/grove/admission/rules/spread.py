"""Spread constraints: a level of the set's one topology, and no pack constraint that contradicts it.

The schema refuses an empty domain and a maxSkew of 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grove.admission.rules.lookups import Known, LookupFailed
from grove.admission.rules.topology import NO_BINDING, ONE_TOPOLOGY, levels_of, resolve
from grove.admission.rules.view import Constraint, SetView, Spread
from grove.api.faults import Fault, internal, invalid, required
from grove.api.spread_levels import SpreadOwner, contradictions


def spread_faults(new: SetView, *, enabled: bool, lookups: Known) -> list[Fault]:
    spreads = new.spreads
    if not enabled:
        detail = "not allowed while topology-aware scheduling is disabled (topologyAwareScheduling.enabled)"
        return [invalid(spread.path, spread.domain, detail) for spread in spreads]
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
        fault = internal(path, f'ClusterTopologyBinding "{name}" could not be read: {error}')
        return [] if is_reported else [fault]
    if binding is None:
        return [] if is_reported else [invalid(path, name, NO_BINDING)]
    levels = levels_of(binding)
    return list(_level_faults(spreads, levels)) or list(_pack_faults(new, levels))


def spread_topology(new: SetView) -> str:
    """The topology that spread constraints use: that of the pack constraints, else the first that one of them names."""
    return resolve(new).name or next((spread.topology_name for spread in new.spreads if spread.topology_name), "")


def _name_faults(spreads: list[Spread], name: str) -> Iterator[Fault]:
    for spread in spreads:
        if not name:
            detail = "no constraint names a topology: name a ClusterTopologyBinding"
            yield required(f"{spread.path}.topologyName", detail)
        elif spread.topology_name and spread.topology_name != name:
            yield invalid(f"{spread.path}.topologyName", spread.topology_name, f'differs from "{name}": {ONE_TOPOLOGY}')


def _level_faults(spreads: list[Spread], levels: Mapping[str, int]) -> Iterator[Fault]:
    for spread in spreads:
        if spread.domain not in levels:
            detail = f"not a level of the topology, which has: {', '.join(levels)}"
            yield invalid(f"{spread.path}.domain", spread.domain, detail)


def _pack_faults(new: SetView, levels: Mapping[str, int]) -> Iterator[Fault]:
    whole = _owner("the set", new.constraint, new.spread)
    groups = {group.name: _owner(f'group "{group.name}"', group.constraint, group.spread) for group in new.groups}
    owners = [(new.spread, whole, list[SpreadOwner]())]
    owners += [(group.spread, groups[group.name], [whole]) for group in new.groups]
    for clique in new.cliques:
        group = new.group_of(clique.name)
        around = [whole] if group is None else [whole, groups[group.name]]
        owners.append((clique.spread, _owner("", clique.constraint, clique.spread), around))
    for spread, owner, around in owners:
        if spread is not None:
            for detail in contradictions(owner, around, levels):
                yield invalid(f"{spread.path}.domain", spread.domain, detail)


def _owner(name: str, pack: Constraint | None, spread: Spread | None) -> SpreadOwner:
    return SpreadOwner(name, pack.hard if pack is not None else "", spread.domain if spread is not None else "")
