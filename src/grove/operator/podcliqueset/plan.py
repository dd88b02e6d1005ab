"""Everything a look at one PodCliqueSet decides: its children, its step in an update, which replicas are restarted as
gangs, and its status.

Children of a kind are compared with what is wanted only when the set or one of them changed, so they are made on
demand. Which replicas an update or a termination takes is said by the set's status: writing it lets them change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from msgspec import structs

from grove.api import labels, names
from grove.api.conditions import (
    GANG_RESTARTS_EXHAUSTED,
    TOPOLOGY_LEVELS_UNAVAILABLE,
    UPDATE_STALLED,
    ErrorCode,
    EventReason,
)
from grove.api.core import HorizontalPodAutoscaler, Pod, Role, RoleBinding, Secret, Service, ServiceAccount
from grove.api.deletion_cost import next_indexes
from grove.api.meta import Json, Object, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet, PodCliqueSetStatus
from grove.api.podgang import RUNNING
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.podcliqueset.rollout import next_replicas, with_progress_time
from grove.operator.podcliqueset.status import (
    ObservedSet,
    set_status,
    with_draining,
    with_features_condition,
)
from grove.operator.podgang.status import with_gang_conditions
from grove.operator.shared.children import (
    Revisions,
    has_revision_services,
    revisions_in_use,
    wanted_access,
    wanted_autoscalers,
    wanted_cliques,
    wanted_groups,
    wanted_services,
)
from grove.operator.shared.draining import next_end_s
from grove.operator.shared.former import choose_templates, unreached_replicas, with_templates
from grove.operator.shared.layout import find_replica, kept_replicas, replica_of, set_costs
from grove.operator.shared.outcome import Notice, Outcome, appeared, with_outcome
from grove.operator.shared.readiness import judged, set_standing
from grove.operator.shared.rollout import refused_slices
from grove.operator.shared.startup import has_start_order, mounts_secret, mounts_token
from grove.operator.shared.status_batching import set_news, set_turned
from grove.operator.shared.termination import Terminations, set_replicas_to_restart, with_set_restarts


class ChildKind(NamedTuple):
    """How children of one kind are made, and how they are spoken of: code of errors, reasons of events."""

    wanted: Callable[[PodCliqueSet], list[Json]]
    code: str
    made: str = ""
    removed: str = ""
    failed: str = ""


def _access(kind: type[Object]) -> Callable[[PodCliqueSet], list[Json]]:
    return lambda pcs: [wanted for wanted in wanted_access(pcs) if wanted["kind"] == kind.RESOURCE.kind]


ACCESS: tuple[type[Object], ...] = (ServiceAccount, Role, RoleBinding, Secret)
"""What a start order needs; kept as it is while a pod from a time with a start order is there."""


CHILDREN: dict[type[Object], ChildKind] = {
    PodClique: ChildKind(
        wanted_cliques,
        ErrorCode.CREATE_OR_UPDATE_POD_CLIQUE,
        EventReason.POD_CLIQUE_CREATE_OR_UPDATE_SUCCESSFUL,
        EventReason.POD_CLIQUE_DELETE_SUCCESSFUL,
        EventReason.POD_CLIQUE_CREATE_OR_UPDATE_FAILED,
    ),
    PodCliqueScalingGroup: ChildKind(
        wanted_groups,
        ErrorCode.CREATE_GROUP,
        EventReason.GROUP_CREATE_SUCCESSFUL,
        EventReason.GROUP_DELETE_SUCCESSFUL,
        EventReason.GROUP_CREATE_OR_UPDATE_FAILED,
    ),
    Service: ChildKind(wanted_services, ErrorCode.SYNC_SERVICE),
    ServiceAccount: ChildKind(_access(ServiceAccount), ErrorCode.SYNC_SERVICE_ACCOUNT),
    Role: ChildKind(_access(Role), ErrorCode.SYNC_ROLE),
    RoleBinding: ChildKind(_access(RoleBinding), ErrorCode.SYNC_ROLE_BINDING),
    Secret: ChildKind(_access(Secret), ErrorCode.CREATE_SECRET),
    HorizontalPodAutoscaler: ChildKind(wanted_autoscalers, ErrorCode.SYNC_AUTOSCALER),
}


@dataclass(frozen=True, slots=True)
class ObservedChildren:
    """The facts that were read about the children of a set, to compare them with the wanted ones.

    `parts` are its Services, cliques and groups, `secrets` the names of its token Secrets that are there. Its pods,
    which may be thousands, are asked for only where they count, and so are its PodCliques with those of groups.
    `has_domains`: ComputeDomains are kept here. `former` are the templates of before an update, read if a PodClique is
    missing.
    """

    parts: Sequence[Object]
    secrets: Collection[str]
    pods: Callable[[], Sequence[Pod]]
    has_domains: bool = False
    cliques: Callable[[], Sequence[PodClique]] = tuple
    former: Json | None = None


@dataclass(frozen=True, slots=True)
class ChildrenPlan:
    """The changes of a set's children, in this order: delete `surplus` replicas whole, then compare `kinds`.

    `access_in_use`: the set has no start order any more and a pod from before still watches its parents. `kept_secrets`
    are not looked at: the token under its old name, while a pod still mounts it. ComputeDomains of `replicas_with_pods`
    stay. `revisions` have a Service. PodCliques that are missing in `unreached` replicas are made as `former` says.
    """

    surplus: frozenset[int] = frozenset()
    access_in_use: bool = False
    kept_secrets: tuple[str, ...] = ()
    replicas_with_pods: frozenset[int] = frozenset()
    revisions: Revisions = field(default_factory=dict)
    former: PodCliqueSet | None = None
    unreached: frozenset[int] = frozenset()
    there: Sequence[Object] = ()

    @property
    def kinds(self) -> dict[type[Object], ChildKind]:
        kinds = {kind: child for kind, child in CHILDREN.items() if not (self.access_in_use and kind in ACCESS)}
        services = kinds[Service]._replace(wanted=lambda pcs: wanted_services(pcs, self.revisions))
        cliques = kinds[PodClique]._replace(wanted=self._cliques)
        return {**kinds, Service: services, PodClique: cliques}

    def _cliques(self, pcs: PodCliqueSet) -> list[Json]:
        wanted = wanted_cliques(pcs)
        if self.former is None or not self.unreached:
            return wanted
        before = (clique for clique in wanted_cliques(self.former) if _replica_in(clique) in self.unreached)
        return choose_templates(wanted, before, self.there)


def _replica_in(wanted: Json) -> int:
    return int(wanted["metadata"]["labels"][labels.REPLICA_INDEX])


def plan_set_children(pcs: PodCliqueSet, seen: ObservedChildren) -> ChildrenPlan:
    """The plan for children of a set that stays."""
    name = pcs.metadata.name
    token, old_token = names.token_secret(name), names.legacy_token_secret(name)
    may_close = token in seen.secrets and not has_start_order(pcs)
    by_revision = has_revision_services(pcs)
    pods = seen.pods() if may_close or old_token in seen.secrets or seen.has_domains or by_revision else ()
    keeps_old = old_token in seen.secrets and any(mounts_secret(pod, old_token) for pod in pods)
    kept = kept_replicas(pcs)
    surplus = (
        replica
        for part in seen.parts
        if (replica := find_replica(name, part.metadata.name)) is not None
        and replica not in kept
        and not part.metadata.is_deleting
    )
    in_use = (replica_of(pod.metadata) for pod in pods) if seen.has_domains else ()
    return ChildrenPlan(
        surplus=frozenset(surplus),
        access_in_use=may_close and any(mounts_token(pod, name) for pod in pods),
        kept_secrets=(old_token,) if keeps_old else (),
        replicas_with_pods=frozenset(replica for replica in in_use if replica is not None),
        revisions=revisions_in_use(pcs, seen.cliques(), pods) if by_revision else {},
        former=with_templates(pcs, seen.former, seen.cliques()) if seen.former is not None else None,
        unreached=unreached_replicas(pcs, seen.cliques()) if seen.former is not None else frozenset(),
        there=tuple(part for part in seen.parts if isinstance(part, PodClique)) if seen.former is not None else (),
    )


@dataclass(frozen=True, slots=True)
class SetPlan:
    """The changes of a set, in this order: children, the status.

    `children` is None while there is no reason to compare them, `terminated` are the replicas that have been in breach
    too long.
    """

    observed: ObservedSet
    now: datetime
    children: ChildrenPlan | None
    terminated: Terminations
    of_parts: PodCliqueSetStatus
    """The status but for how the writes go."""
    next_look_s: float | None

    def status(self, outcome: Outcome) -> PodCliqueSetStatus:
        seen, generation = self.observed, self.observed.pcs.metadata.generation
        after = with_outcome(self.of_parts, seen.pcs.status, outcome, self.now, (*seen.cliques, *seen.groups))
        conditions = with_features_condition(after.conditions, outcome.missing, generation, self.now)
        after = structs.replace(after, conditions=conditions)
        standing = set_standing(seen.pcs, after, seen.cliques, seen.groups, seen.gangs, outcome, self.now)
        return judged(after, standing, generation, self.now)

    def is_news(self, after: PodCliqueSetStatus) -> bool:
        """True if readers wait for this status. Otherwise the write may wait for more changes."""
        before = self.observed.pcs.status
        return before.replica_restarts != after.replica_restarts or set_news(
            self.observed.pcs.spec.replicas, before, after
        )

    def is_all_running(self, after: PodCliqueSetStatus) -> bool:
        """True if all replicas are available and all gangs run, so no more progress follows."""
        is_whole = after.available_replicas == self.observed.pcs.spec.replicas
        return is_whole and all(status.phase == RUNNING for status in after.pod_gang_statuses)

    def may_flap(self, after: PodCliqueSetStatus) -> bool:
        """True if the status only reports that replicas became available or unavailable."""
        before = self.observed.pcs.status
        return before.replica_restarts == after.replica_restarts and not set_turned(before, after)

    def events(self, after: PodCliqueSetStatus) -> list[Notice]:
        """The events to send when the status is written."""
        pcs, before = self.observed.pcs, self.observed.pcs.status
        notices = appeared(pcs, before.conditions, after.conditions, (GANG_RESTARTS_EXHAUSTED, UPDATE_STALLED))
        old, new = (find_condition(status.conditions, TOPOLOGY_LEVELS_UNAVAILABLE) for status in (before, after))
        if new is not None and new.status != "False" and (old is None or old.status != new.status):
            notices.append(Notice(pcs, new.reason, new.message, warning=True))
        refused = refused_slices(before)
        for replica, why in refused_slices(after).items():
            if replica not in refused:
                message = f"replica {replica}: the next slice is not taken down, its new pods have no place: {why}"
                notices.append(Notice(pcs, EventReason.SLICE_NOT_PLACED, message, warning=True))
        for restart in self.terminated.now:
            what = f"replica {restart.index}"
            message = f"restarted {what} as a gang (restart {restart.count}): {restart.blame} stayed in breach"
            notices.append(Notice(pcs, EventReason.SET_REPLICA_DELETE_SUCCESSFUL, message))
        return notices


def plan_set(observed: ObservedSet, children: ObservedChildren | None, now: datetime) -> SetPlan:
    """The plan for a set that stays; `children` were read if there is a reason to compare them."""
    pcs, cliques, groups, gangs = observed.pcs, observed.cliques, observed.groups, observed.gangs
    decided = replace(observed, pcs=_with_indexes(observed))
    replicas = decided.replicas(observed.generation_hash)
    stepped = replace(observed, pcs=next_replicas(decided, replicas, now))
    after = with_draining(decided, set_status(stepped, now, replicas), now)
    conditions = with_gang_conditions(after.conditions, gangs, pcs.metadata.generation, now)
    after, stalls_s = with_progress_time(structs.replace(after, conditions=conditions), observed, now)
    judged = structs.replace(pcs, status=after)
    in_breach = [replica.index for replica in replicas if replica.in_breach]
    terminated = set_replicas_to_restart(judged, in_breach, cliques, groups, now, observed.moment)
    after = with_set_restarts(judged, cliques, groups, terminated, now)
    times = (stalls_s, terminated.wait_s, next_end_s(after.draining, now) if after.draining else None)
    next_look_s = min((at for at in times if at is not None), default=None)
    planned = plan_set_children(structs.replace(pcs, status=after), children) if children is not None else None
    return SetPlan(observed, now, planned, terminated, after, next_look_s)


def _with_indexes(observed: ObservedSet) -> PodCliqueSet:
    """The set with the replicas that a change of `replicas` leaves. Its status records them before one is deleted."""
    pcs = observed.pcs
    costs = set_costs(pcs, observed.every_clique(), observed.pods_of) if pcs.is_scaled_in else {}
    indexes = next_indexes(pcs.recorded_indexes, pcs.indexes, costs)
    if indexes == pcs.status.replica_indexes:
        return pcs
    return structs.replace(pcs, status=structs.replace(pcs.status, replica_indexes=indexes))
