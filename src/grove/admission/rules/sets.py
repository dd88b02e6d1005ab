"""The general rules of a PodCliqueSet, on creation and on update alike; names, pods and topology are elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

from grove.admission.rules.collisions import collision_faults
from grove.admission.rules.draining import drain_faults, drain_notes
from grove.admission.rules.headroom import headroom_faults
from grove.admission.rules.names import clique_name_faults, group_name_faults, metadata_faults
from grove.admission.rules.rollout import rollout_faults
from grove.admission.rules.sharing import sharing_faults
from grove.admission.rules.startorder import start_order_notes, startup_faults
from grove.admission.rules.syntax import annotation_faults, label_faults, subdomain_fault
from grove.admission.rules.view import TEMPLATE, CliqueView, GroupView, Scaling, SetView
from grove.api import duration
from grove.api.faults import Fault, duplicate, invalid, required
from grove.api.fields import integer, mapping, text
from grove.api.labels import (
    DISRUPTION,
    MAX_GANG_RESTARTS,
    PROVISIONING_REQUEST,
    SCHEDULER_ANNOTATION,
    STARTUP_READINESS_GATE,
)
from grove.api.podcliqueset import EXPLICIT, IN_ORDER
from grove.api.words import many

_COUNT = re.compile(r"\s*\d{1,9}\s*", re.ASCII)
DEFAULT_ACCOUNT = "default"
LONGEST_DELAY_H = 87_600
"""Ten years. Longer is a slip of the unit, and the timer that has to wait for it would overflow elsewhere."""


def general_faults(new: SetView, old: SetView | None = None) -> Iterator[Fault]:
    yield from metadata_faults(new, creating=old is None)
    restarts = new.annotations.get(MAX_GANG_RESTARTS)
    if restarts is not None and not _COUNT.fullmatch(text(restarts)):
        yield invalid(f"metadata.annotations.{MAX_GANG_RESTARTS}", restarts, "must be a whole number, 0 or more")
    yield from drain_faults("metadata.annotations", new.annotations)
    yield from headroom_faults("metadata.annotations", new.annotations)
    disruption = new.annotations.get(DISRUPTION)
    if disruption not in (None, "allow", "never"):
        yield invalid(f"metadata.annotations.{DISRUPTION}", disruption, "must be allow or never")
    provisioning = new.annotations.get(PROVISIONING_REQUEST)
    if provisioning is not None and (wrong := subdomain_fault(text(provisioning))):
        detail = f'must be "true", "false" or a provisioning class: {wrong}'
        yield invalid(f"metadata.annotations.{PROVISIONING_REQUEST}", provisioning, detail)
    gate = new.annotations.get(STARTUP_READINESS_GATE)
    if gate not in (None, "true", "false"):
        yield invalid(f"metadata.annotations.{STARTUP_READINESS_GATE}", gate, 'must be "true" or "false"')
    replicas = integer(new.spec.get("replicas"))
    if replicas is not None and replicas < 0:
        yield invalid("spec.replicas", replicas, "must not be negative")
    strategy = mapping(new.spec.get("updateStrategy"))
    if strategy.get("progressDeadline") is not None:
        yield from _duration_faults("spec.updateStrategy.progressDeadline", text(strategy.get("progressDeadline")))
    yield from rollout_faults(new)
    yield from _account_faults(new, creating=old is None)
    if new.template and not new.startup_type:
        yield required(f"{TEMPLATE}.cliqueStartupType", "one of the start orders is required")
    yield from sharing_faults(new)
    if not new.cliques:
        yield required(f"{TEMPLATE}.cliques", "at least one clique is required")
    yield from clique_name_faults(new)
    for clique in new.cliques:
        yield from _clique_faults(clique)
    if new.startup_type == EXPLICIT:
        yield from startup_faults(new)
    yield from group_name_faults(new)
    yield from collision_faults(new, old)
    for group in new.groups:
        yield from _group_faults(new, group)
    yield from _membership_faults(new)
    if new.template:
        yield from _duration_faults(f"{TEMPLATE}.terminationDelay", text(new.template.get("terminationDelay")))


def _account_faults(new: SetView, *, creating: bool) -> Iterator[Fault]:
    """A set with a start order has a ServiceAccount of its own name, and every namespace has one of this name."""
    if creating and new.name == DEFAULT_ACCOUNT and new.startup_type in (IN_ORDER, EXPLICIT):
        detail = "a set with a start order has a ServiceAccount of its name, and this one belongs to the namespace"
        yield invalid("metadata.name", new.name, detail)


def _clique_faults(clique: CliqueView) -> Iterator[Fault]:
    yield from label_faults(f"{clique.path}.labels", clique.labels)
    yield from annotation_faults(f"{clique.path}.annotations", clique.annotations)
    yield from drain_faults(f"{clique.path}.annotations", clique.annotations)
    path = f"{clique.path}.spec"
    yield from _replica_faults(path, clique.replicas, clique.min_available)
    if clique.scaling is not None:
        yield from _scaling_faults(clique.scaling, clique.min_available)
        top = clique.scaling.max_replicas
        if top is not None and clique.replicas is not None and top < clique.replicas:
            detail = f"must be greater than or equal to replicas ({clique.replicas})"
            yield invalid(f"{clique.scaling.path}.maxReplicas", top, detail)


def _group_faults(new: SetView, group: GroupView) -> Iterator[Fault]:
    yield from annotation_faults(f"{group.path}.annotations", group.annotations)
    yield from drain_faults(f"{group.path}.annotations", group.annotations)
    yield from headroom_faults(f"{group.path}.annotations", group.annotations)
    known = {clique.name for clique in new.cliques}
    if not group.clique_names:
        yield required(f"{group.path}.cliqueNames", "a scaling group needs at least one clique")
    if unknown := sorted(set(group.clique_names) - known):
        detail = f"no such clique in {TEMPLATE}.cliques: {', '.join(unknown)}"
        yield invalid(f"{group.path}.cliqueNames", list(group.clique_names), detail)
    yield from _replica_faults(group.path, group.replicas, group.min_available, optional=True)
    if group.scaling is not None:
        yield from _scaling_faults(group.scaling, group.min_available)


def _replica_faults(path: str, replicas: int | None, minimum: int | None, *, optional: bool = False) -> Iterator[Fault]:
    """Zero replicas are allowed, for a part that an autoscaler stops when it is idle. The first scale-out must then
    reach the minimum.
    """
    if replicas is not None and replicas < 0:
        yield invalid(f"{path}.replicas", replicas, "must not be negative")
    if minimum is None:
        if not optional:
            yield required(f"{path}.minAvailable")
    elif minimum <= 0:
        yield invalid(f"{path}.minAvailable", minimum, "must be greater than 0")
    elif replicas and replicas > 0 and minimum > replicas:
        yield invalid(f"{path}.minAvailable", minimum, f"must not be greater than replicas ({replicas})")


def _scaling_faults(scaling: Scaling, minimum: int | None) -> Iterator[Fault]:
    low, high = scaling.min_replicas, scaling.max_replicas
    if low is None:
        yield required(f"{scaling.path}.minReplicas")
    elif minimum is not None and 0 != low < minimum:  # at zero a clique or a group is no part of its gang
        yield invalid(f"{scaling.path}.minReplicas", low, f"must be greater than or equal to minAvailable ({minimum})")
    if high is not None and low is not None and high < low:
        yield invalid(f"{scaling.path}.maxReplicas", high, f"must be greater than or equal to minReplicas ({low})")


def _membership_faults(new: SetView) -> Iterator[Fault]:
    path = f"{TEMPLATE}.podCliqueScalingGroups"
    owners: dict[str, list[str]] = {}
    for group in new.groups:
        for member in group.clique_names:
            owners.setdefault(member, []).append(group.name)
    for member, groups in owners.items():
        if len(groups) > 1:
            named = " and ".join(f'"{name}"' for name in groups)
            yield duplicate(
                f"{path}.cliqueNames", member, f"a clique belongs to one scaling group, once; it is in {named}"
            )
    for clique in new.cliques:
        if clique.scaling is not None and clique.name in owners:
            detail = "a clique of a scaling group must not have autoScalingConfig: put scaleConfig on the group"
            yield invalid(path, clique.name, detail)


def _duration_faults(path: str, delay: str) -> Iterator[Fault]:
    if not delay:
        yield required(path)
        return
    try:
        seconds = duration.parse_ns(delay) / 1e9
    except ValueError:
        yield invalid(path, delay, "must be a duration such as 30s, 10m or 4h0m0s")
        return
    if seconds <= 0:
        yield invalid(path, delay, "must be greater than 0")
    elif seconds > LONGEST_DELAY_H * 3600:
        yield invalid(path, delay, f"must not be longer than {LONGEST_DELAY_H}h (ten years)")


_OVERWRITTEN = ("schedulingGates", "hostname", "subdomain")


def notes(new: SetView, old: SetView | None = None) -> Iterator[str]:
    """Warnings about a set that is admitted: fields that will not do what they seem to say."""
    if old is not None and new.annotations.get(SCHEDULER_ANNOTATION) != old.annotations.get(SCHEDULER_ANNOTATION):
        yield (
            f"metadata.annotations[{SCHEDULER_ANNOTATION}]: what runs stays with its scheduler; "
            "to move the set, scale it to 0 replicas and back"
        )
    if new.has_no_replicas and not (old is not None and old.has_no_replicas):
        what = "the set has 0 replicas, so it gets no pods"
        if old is not None:
            what = "with 0 replicas the operator deletes all pods of the set"
        yield f"spec.replicas: {what}; 0 is the default of a manifest without the field"
    yield from start_order_notes(new)
    yield from drain_notes(new)
    for clique in new.cliques:
        path = f"{clique.path}.spec.podSpec"
        yield from _restart_notes(path, clique)
        for field in _OVERWRITTEN:
            if clique.pod_spec.get(field):
                yield f"{path}.{field}: Grove sets this field, the value given here is not used"


def replica_notes(new: SetView, old: SetView) -> Iterator[str]:
    """Replicas of a template count when a PodClique or a scaling group is made; those that exist keep theirs."""
    cliques, groups = ({part.name: part.replicas for part in many_} for many_ in (old.cliques, old.groups))
    for clique in new.cliques:
        if clique.name in cliques and clique.replicas != cliques[clique.name]:
            yield _kept_replicas(f"{clique.path}.spec.replicas", "PodCliques", "pclq")
    for group in new.groups:
        if group.name in groups and group.replicas != groups[group.name]:
            yield _kept_replicas(f"{group.path}.replicas", "scaling groups", "pcsg")


def _kept_replicas(path: str, what: str, kind: str) -> str:
    return f"{path}: {what} that exist keep their replicas; scale them with kubectl scale {kind} NAME --replicas=N"


def _restart_notes(path: str, clique: CliqueView) -> Iterator[str]:
    """Warns only about a restart policy that lets a gang lose members. The reference operator warns about every pod."""
    policy = text(clique.pod_spec.get("restartPolicy"))
    if policy not in ("OnFailure", "Never"):
        return
    ended = "ended" if policy == "Never" else "ended without an error"
    few = many(clique.min_available or 1, "pod runs", "pods run")
    yield (
        f"{path}.restartPolicy: with {policy} a container that has {ended} is not started again; once fewer than "
        f"{few}, the whole gang is terminated after terminationDelay"
    )
