"""Topology constraints: one binding per set, domains that exist, parents never narrower than their children.

Steps follow each other: names are resolved before the binding is looked up, levels are known before they are compared.
A later step on the ground of an earlier fault would only repeat it in other words, so each step's faults end the phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from grove.admission.rules.lookups import Known, LookupFailed
from grove.admission.rules.view import TEMPLATE, Constraint, SetView
from grove.api.faults import Fault, duplicate, forbidden, internal, invalid, required
from grove.api.fields import mapping, sequence, text
from grove.api.meta import Json
from grove.backends import Backends

SET_NAME_PATH = f"{TEMPLATE}.topologyConstraint.topologyName"
NO_BINDING = "no such ClusterTopologyBinding: create it first, or name another one"
ONE_TOPOLOGY = "a PodCliqueSet uses one topology only"

# The CRD refuses with the same words before we are asked; tools match them, so they are the Go operator's.
NEW_PACK_DOMAIN = "packDomain is deprecated and cannot be used on new workloads; use pack.required"
NO_PACK = "topologyConstraint must specify pack or deprecated packDomain"
EMPTY_PACK = "pack must specify at least one of required or preferred"
BOTH_SPELLINGS = "must not set both pack.required and deprecated packDomain"


@dataclass(frozen=True, slots=True)
class Resolution:
    """The one topology name of a set (empty: none), or why there is none."""

    name: str
    faults: tuple[Fault, ...] = ()


def new_pack_domain_faults(new: SetView) -> Iterator[Fault]:
    """A set that is being created may not use the deprecated field."""
    for constraint in new.constraints:
        if constraint.pack_domain:
            yield forbidden(f"{constraint.path}.packDomain", NEW_PACK_DOMAIN)


def shape_faults(new: SetView) -> Iterator[Fault]:
    """The faults in the shape of a single constraint. On an API server the rules of the CRD find the same ones."""
    for constraint in new.constraints:
        if not constraint.has_pack and not constraint.pack_domain:
            yield required(f"{constraint.path}.pack", NO_PACK)
        elif constraint.has_pack and not (constraint.required or constraint.preferred):
            yield required(f"{constraint.path}.pack", EMPTY_PACK)
    yield from both_spellings_faults(new)


def both_spellings_faults(new: SetView) -> Iterator[Fault]:
    for constraint in new.constraints:
        if constraint.pack_domain and constraint.required:
            yield invalid(f"{constraint.path}.pack.required", constraint.required, BOTH_SPELLINGS)


def topology_faults(new: SetView, *, enabled: bool, lookups: Known) -> list[Fault]:
    constraints = new.constraints
    if not enabled:
        detail = "not allowed while topology-aware scheduling is disabled (topologyAwareScheduling.enabled)"
        return [invalid(constraint.path, _as_value(constraint), detail) for constraint in constraints]
    if not constraints:
        return []
    resolution = resolve(new)
    if resolution.faults:
        return list(resolution.faults)
    path = next(
        f"{constraint.path}.topologyName" for constraint in constraints if constraint.topology_name == resolution.name
    )
    try:
        binding = lookups.find_topology(resolution.name)
    except LookupFailed as error:
        return [internal(path, f'ClusterTopologyBinding "{resolution.name}" could not be read: {error}')]
    if binding is None:
        return [invalid(path, resolution.name, NO_BINDING)]
    levels = levels_of(binding)
    return list(_level_faults(constraints, levels)) or list(_hierarchy_faults(new, levels))


def levels_of(binding: Mapping[str, object]) -> dict[str, int]:
    """Position of every domain of a binding, broadest first."""
    levels = sequence(mapping(binding.get("spec")).get("levels"))
    return {text(mapping(level).get("domain")): index for index, level in enumerate(levels)}


def level_keys(binding: Mapping[str, object]) -> dict[str, str]:
    """Node label key of every domain of a binding."""
    levels = [mapping(level) for level in sequence(mapping(binding.get("spec")).get("levels"))]
    return {text(level.get("domain")): text(level.get("key")) for level in levels}


def resolve(new: SetView) -> Resolution:
    """A constraint's name is its own, else its parent's; a clique's parent is its group if that is constrained."""
    faults: list[Fault] = []
    own: list[Constraint] = []
    top = new.constraint
    names: set[str] = set()

    def settle(constraint: Constraint | None, parent: Constraint | None, inherited: str) -> str:
        """The name a constraint resolves to, with a fault for every reason it has none."""
        if constraint is None:
            return inherited
        if constraint.topology_name:
            own.append(constraint)
            if inherited and constraint.topology_name != inherited:
                detail = (
                    f'differs from "{inherited}", inherited from {parent.path if parent else TEMPLATE}: {ONE_TOPOLOGY}'
                )
                faults.append(invalid(f"{constraint.path}.topologyName", constraint.topology_name, detail))
            else:
                names.add(constraint.topology_name)
            return constraint.topology_name
        if not inherited:
            faults.append(
                required(f"{constraint.path}.topologyName", "no parent names a topology: name a ClusterTopologyBinding")
            )
        return inherited

    top_name = settle(top, None, "")
    group_names = {id(group): settle(group.constraint, top, top_name) for group in new.groups}
    for clique in new.cliques:
        group = new.group_of(clique.name)
        if group is not None and group.constraint is not None:
            settle(clique.constraint, group.constraint, group_names[id(group)])
        else:
            settle(clique.constraint, top, top_name)
    if not faults and len(names) > 1:
        listed = ", ".join(sorted(names))
        faults = [
            invalid(f"{constraint.path}.topologyName", constraint.topology_name, f"{ONE_TOPOLOGY}, found: {listed}")
            for constraint in own
        ]
    return Resolution(next(iter(names), "") if len(names) == 1 else "", tuple(faults))


def _level_faults(constraints: list[Constraint], levels: dict[str, int]) -> Iterator[Fault]:
    listed = ", ".join(levels)
    for constraint in constraints:
        for field, domain in (
            ("packDomain", constraint.pack_domain),
            ("pack.required", constraint.required),
            ("pack.preferred", constraint.preferred),
        ):
            if domain and domain not in levels:
                yield invalid(f"{constraint.path}.{field}", domain, f"not a level of the topology, which has: {listed}")


def _hierarchy_faults(new: SetView, levels: dict[str, int]) -> Iterator[Fault]:
    top = new.constraint
    for clique in new.cliques:
        yield from _narrower(top, clique.constraint, f'clique "{clique.name}"', levels)
        if (owner := new.group_of(clique.name)) is not None:
            yield from _narrower(owner.constraint, clique.constraint, f'clique "{clique.name}"', levels)
    for group in new.groups:
        yield from _narrower(top, group.constraint, f'scaling group "{group.name}"', levels)


def _narrower(parent: Constraint | None, child: Constraint | None, who: str, levels: dict[str, int]) -> Iterator[Fault]:
    if parent is None or child is None:
        return
    if parent.hard and child.hard and levels[parent.hard] > levels[child.hard]:
        yield invalid(parent.path, parent.hard, f'narrower than "{child.hard}", which {who} requires within it')
    if parent.preferred and child.preferred and levels[parent.preferred] > levels[child.preferred]:
        detail = f'narrower than "{child.preferred}", which {who} prefers within it'
        yield invalid(f"{parent.path}.pack.preferred", parent.preferred, detail)


def topology_warnings(new: SetView, levels: dict[str, int]) -> Iterator[str]:
    """A preference broader than the requirement is met by it already."""
    for constraint in new.constraints:
        if (
            constraint.hard in levels
            and constraint.preferred in levels
            and levels[constraint.preferred] < levels[constraint.hard]
        ):
            where = f"{constraint.path}.pack.preferred"
            yield (
                f'{where}: "{constraint.preferred}" is broader than the required "{constraint.hard}" and has no effect'
            )


def deprecation_warnings(new: SetView) -> Iterator[str]:
    for constraint in new.constraints:
        if constraint.pack_domain:
            yield f'{constraint.path}.packDomain is deprecated: move "{constraint.pack_domain}" to pack.required'


def _as_value(constraint: Constraint) -> dict[str, str]:
    fields = {"topologyName": constraint.topology_name, "required": constraint.hard, "preferred": constraint.preferred}
    return {key: value for key, value in fields.items() if value}


def binding_faults(binding: Json, backends: Backends) -> Iterator[Fault]:
    """A ClusterTopologyBinding names every domain, key and scheduler once, and only schedulers that have a topology
    object.
    """
    spec = mapping(binding.get("spec"))
    levels = [mapping(level) for level in sequence(spec.get("levels"))]
    for field in ("domain", "key"):
        seen: dict[str, int] = {}
        for index, level in enumerate(levels):
            value = text(level.get(field))
            if value and value in seen:
                yield duplicate(f"spec.levels[{index}].{field}", value, f"also at levels[{seen[value]}]")
            seen.setdefault(value, index)

    # Upstream blames `schedulerTopologyReferences`, the field's former name, which a user cannot find.
    enabled, aware = (
        [backend.name for backend in backends.all],
        [topology_backend.name for topology_backend in backends.topology_aware],
    )
    schedulers: set[str] = set()
    for index, reference in enumerate(sequence(spec.get("schedulerTopologyBindings"))):
        path = f"spec.schedulerTopologyBindings[{index}].schedulerName"
        name = text(mapping(reference).get("schedulerName"))
        if name in schedulers:
            yield duplicate(path, name, "a scheduler may be bound once")
        schedulers.add(name)
        if name not in enabled:
            listed = ", ".join(enabled)
            yield invalid(path, name, f"scheduler is not enabled in the operator configuration, which has: {listed}")
        elif name not in aware:
            listed = ", ".join(aware) or "none"
            yield invalid(
                path, name, f"scheduler has no topology object of its own to bind to; those that have: {listed}"
            )
