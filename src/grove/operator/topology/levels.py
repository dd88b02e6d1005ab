"""Topology: domain names of a workload turned into node label keys, and what to say when they cannot be.

A set speaks of domains (`rack`); a ClusterTopologyBinding says which node label each stands for. PodGangs carry the
label keys, so that schedulers need no binding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from grove.api.conditions import (
    ALL_CLUSTER_TOPOLOGY_LEVELS_AVAILABLE,
    CLUSTER_TOPOLOGY_LEVELS_CONTRADICT,
    CLUSTER_TOPOLOGY_LEVELS_UNAVAILABLE,
    CLUSTER_TOPOLOGY_NOT_FOUND,
    DRIFT,
    IN_SYNC,
    SCHEDULER_TOPOLOGY_DRIFT,
    TOPOLOGY_AWARE_SCHEDULING_DISABLED,
    TOPOLOGY_LEVELS_UNAVAILABLE,
    TOPOLOGY_NAME_MISSING,
    TOPOLOGY_NOT_FOUND,
    with_condition,
    without_condition,
)
from grove.api.meta import Conditions, Json, find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.api.spread_levels import SpreadOwner, contradictions
from grove.api.topology import (
    ClusterTopologyBinding,
    ClusterTopologyBindingStatus,
    SchedulerTopologyStatus,
    SpreadConstraint,
    TopologyConstraint,
)
from grove.backends import Backends
from grove.backends.base import TopologyBackend, TopologySync
from grove.operator.shared.layout import Part, constraints_of, spreads_of, topology_name


def referenced_domains(pcs: PodCliqueSet) -> tuple[str, ...]:
    packed = [
        domain for constraint in constraints_of(pcs) for domain in (constraint.required, constraint.preferred) if domain
    ]
    return tuple(dict.fromkeys((*packed, *(spread.domain for spread in spreads_of(pcs)))))


def translated(constraint: TopologyConstraint | None, binding: ClusterTopologyBinding | None) -> Json | None:
    """A constraint in node label keys, as a PodGang has it; None if no part of it has a key here."""
    if constraint is None or binding is None:
        return None
    keys = {
        field: key
        for field, domain in (("required", constraint.required), ("preferred", constraint.preferred))
        if domain and (key := binding.find_key(domain))
    }
    return {"packConstraint": keys} if keys else None


def spread_over(
    constraint: SpreadConstraint | None, binding: ClusterTopologyBinding | None, match_labels: Mapping[str, str]
) -> Json | None:
    """A spread in node label keys, as a PodGang has it; None if it has no key here."""
    key = binding.find_key(constraint.domain) if constraint is not None and binding is not None else None
    if constraint is None or not key:
        return None
    return {
        "topologyKey": key,
        "maxSkew": constraint.max_skew,
        "whenUnsatisfiable": constraint.when_unsatisfiable,
        "matchLabels": dict(match_labels),
    }


def with_levels_condition(
    conditions: Conditions, pcs: PodCliqueSet, binding: ClusterTopologyBinding | None, *, enabled: bool, now: datetime
) -> Conditions:
    """The set's conditions with `TopologyLevelsUnavailable` up to date; False is published too."""
    domains = referenced_domains(pcs)

    def say(status: str, reason: str, message: str) -> Conditions:
        return with_condition(
            conditions, TOPOLOGY_LEVELS_UNAVAILABLE, status, reason, message, now, pcs.metadata.generation
        )

    if not enabled:
        if not domains:
            return without_condition(conditions, TOPOLOGY_LEVELS_UNAVAILABLE)
        message = f"topology-aware scheduling is switched off; not applied: {', '.join(domains)}"
        return say("Unknown", TOPOLOGY_AWARE_SCHEDULING_DISABLED, message)
    if not domains:
        return say("False", ALL_CLUSTER_TOPOLOGY_LEVELS_AVAILABLE, "no topology constraint is set")
    name = topology_name(pcs)
    if not name:
        return say("Unknown", TOPOLOGY_NAME_MISSING, "no constraint names a ClusterTopologyBinding")
    if binding is None:
        return say("Unknown", CLUSTER_TOPOLOGY_NOT_FOUND, f"ClusterTopologyBinding {name} does not exist")
    missing = [domain for domain in domains if binding.find_key(domain) is None]
    if missing:
        message = f"ClusterTopologyBinding {name} has no level {', '.join(missing)}; those constraints are not applied"
        return say("True", CLUSTER_TOPOLOGY_LEVELS_UNAVAILABLE, message)
    if broken := "; ".join(_contradictions(pcs, binding)):
        message = f"the order of the levels in ClusterTopologyBinding {name} contradicts a constraint: {broken}"
        return say("True", CLUSTER_TOPOLOGY_LEVELS_CONTRADICT, message)
    return say("False", ALL_CLUSTER_TOPOLOGY_LEVELS_AVAILABLE, f"all levels are in ClusterTopologyBinding {name}")


def _contradictions(pcs: PodCliqueSet, binding: ClusterTopologyBinding) -> Iterator[str]:
    """Spreads that the order of the levels makes impossible, each with the reason."""
    template = pcs.spec.template
    levels = {level.domain: at for at, level in enumerate(binding.spec.levels)}
    whole = _spread_owner("the set", template)
    groups = [
        (_spread_owner(f'group "{config.name}"', config), config) for config in template.pod_clique_scaling_groups
    ]
    owners = [("the set", whole, list[SpreadOwner]()), *((owner.name, owner, [whole]) for owner, _ in groups)]
    for clique in template.cliques:
        around = [whole, *(owner for owner, config in groups if clique.name in config.clique_names)]
        owners.append((f'clique "{clique.name}"', _spread_owner("", clique), around))
    for name, owner, around in owners:
        for why in contradictions(owner, around, levels):
            yield f'spreadConstraint of {name} over "{owner.over}": {why}'


def _spread_owner(name: str, part: Part) -> SpreadOwner:
    pack, spread = part.topology_constraint, part.spread_constraint
    return SpreadOwner(name, pack.required if pack is not None else "", spread.domain if spread is not None else "")


def became(before: Conditions, after: Conditions, type_: str) -> str:
    """The status a condition has just taken on, for an event; empty if it did not change."""
    old, new = find_condition(before, type_), find_condition(after, type_)
    return new.status if new is not None and (old is None or old.status != new.status) else ""


def binding_status(
    binding: ClusterTopologyBinding,
    backends: Backends,
    compare: Callable[[str, str], TopologySync],
    *,
    failed: Sequence[str] = (),
    now: datetime,
) -> ClusterTopologyBindingStatus:
    """Status of a binding over all topology-aware backends, in name order, then over those it names in vain.

    `compare(backend, reference)` answers for one scheduler's topology object; `failed` are backends whose object could
    not be written in this pass, which holds `observedGeneration` back.
    """
    named = {entry.scheduler_name: entry.topology_reference for entry in binding.spec.scheduler_topology_bindings}
    entries: list[SchedulerTopologyStatus] = []
    for backend in backends.topology_aware:
        reference = named.get(backend.name) or backend.topology_name(binding)
        sync = compare(backend.name, reference)
        entries.append(
            SchedulerTopologyStatus(
                scheduler_name=backend.name,
                topology_reference=reference,
                in_sync=sync.in_sync,
                scheduler_backend_topology_observed_generation=sync.observed_generation if backend.name in named else 0,
                message=sync.message,
            )
        )
    unavailable = []
    for name, reference in named.items():
        if not isinstance(backends.find(name), TopologyBackend):
            unavailable.append(name)
            message = f"scheduler {name} is not enabled or has no topology"
            entries.append(SchedulerTopologyStatus(scheduler_name=name, topology_reference=reference, message=message))
    return msgspec.structs.replace(
        binding.status,
        scheduler_topology_statuses=tuple(entries),
        conditions=_with_drift(binding, entries, unavailable, now),
        observed_generation=binding.status.observed_generation if failed else binding.metadata.generation,
    )


def _with_drift(
    binding: ClusterTopologyBinding,
    entries: Sequence[SchedulerTopologyStatus],
    unavailable: Sequence[str],
    now: datetime,
) -> Conditions:
    conditions = binding.status.conditions
    if not entries:
        return without_condition(conditions, SCHEDULER_TOPOLOGY_DRIFT)
    apart = [entry.scheduler_name for entry in entries if not entry.in_sync]
    if unavailable:
        status, reason = "Unknown", TOPOLOGY_NOT_FOUND
        message = f"not enabled or not topology-aware: {', '.join(unavailable)}"
    elif apart:
        status, reason, message = "True", DRIFT, f"levels differ: {', '.join(apart)}"
    else:
        status, reason, message = "False", IN_SYNC, "all schedulers know the same levels"
    return with_condition(
        conditions, SCHEDULER_TOPOLOGY_DRIFT, status, reason, message, now, binding.metadata.generation
    )
