"""Everything a look at one PodCliqueScalingGroup decides: its members, the replicas it restarts, its status.

Which replicas an update or a termination takes is said by the group's status (`replicaRestarts`): writing it is what
restarts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from msgspec import structs

from grove.api import labels
from grove.api.conditions import BELOW_MINIMUM, GANG_RESTARTS_EXHAUSTED, EventReason
from grove.api.deletion_cost import next_indexes
from grove.api.meta import Json
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupStatus
from grove.api.status import SurgeProgress
from grove.operator.scalinggroup.rollout import next_group_replicas
from grove.operator.scalinggroup.status import ObservedGroup, group_status, with_draining
from grove.operator.shared.children import wanted_members
from grove.operator.shared.draining import next_end_s
from grove.operator.shared.former import choose_templates, unreached_group_replicas, with_templates
from grove.operator.shared.layout import group_costs
from grove.operator.shared.outcome import Notice, Outcome, appeared, with_outcome
from grove.operator.shared.readiness import group_standing, judged
from grove.operator.shared.rollout import (
    find_restart,
    known_restarts,
    lost_all_scheduled,
    replica_incarnation,
)
from grove.operator.shared.status_batching import group_news
from grove.operator.shared.surge import surge_given_up_s, surge_refused
from grove.operator.shared.termination import (
    Terminations,
    group_replicas_to_restart,
    max_gang_restarts,
    with_group_memory,
    with_group_restarts,
)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The changes of a group, in this order: claims, members, the status.

    `terminated` are the replicas that have been in breach too long.
    """

    observed: ObservedGroup
    now: datetime
    terminated: Terminations
    of_parts: PodCliqueScalingGroupStatus
    """The status but for how the writes go."""
    costs: Mapping[int, int]
    """By which a scale-in was decided now."""

    @property
    def group(self) -> PodCliqueScalingGroup:
        """The group with the replicas that drain from now on. All else follows what its status recorded before.

        A scale-in that costs decided is recorded first, and nothing goes until then.
        """
        group, after = self.observed.group, self.of_parts
        if self.costs and self.is_gap_new:
            kept = structs.replace(group.spec, replicas=len(group.recorded_indexes))
            group = structs.replace(group, spec=kept)
        seen = structs.replace(group.status, draining=after.draining, observed_generation=after.observed_generation)
        return structs.replace(group, status=seen)

    @property
    def is_gap_new(self) -> bool:
        return self.observed.group.status.replica_indexes != self.of_parts.replica_indexes

    def members(self) -> list[Json]:
        """The members that are wanted; no new one before the set has recorded which templates an update leads to."""
        seen = self.observed
        wanted = wanted_members(seen.pcs, self.group)
        if unreached := self.unreached:
            former = with_templates(seen.pcs, seen.former or {}, seen.of_set())
            before = wanted_members(former, self.group) if former is not None else []
            wanted = choose_templates(
                wanted, (member for member in before if _index_in(member) in unreached), seen.members
            )
        if seen.recorded:
            return wanted
        there = {clique.metadata.name for clique in self.observed.members}
        return [member for member in wanted if member["metadata"]["name"] in there]

    @property
    def unreached(self) -> frozenset[int]:
        """Replicas of which a missing member is made from the templates of before."""
        seen = self.observed
        return unreached_group_replicas(seen.pcs, seen.group, seen.of_set()) if seen.former is not None else frozenset()

    @property
    def next_look_s(self) -> float | None:
        """At once where surge replicas or gaps were recorded or forgotten: the cliques follow what the status says."""
        old, new = (_surge(status) for status in (self.observed.group.status, self.of_parts))
        if (old.indexes if old else ()) != (new.indexes if new else ()) or self.is_gap_new:
            return 0.0
        given_up_s = surge_given_up_s(new, self.observed.surge_wait_s, self.now) if new is not None else None
        drained_s = next_end_s(self.of_parts.draining, self.now) if self.of_parts.draining else None
        return min((at for at in (self.terminated.wait_s, given_up_s, drained_s) if at is not None), default=None)

    @property
    def restarts(self) -> bool:
        return self.observed.group.status.replica_restarts != self.of_parts.replica_restarts

    def status(self, outcome: Outcome) -> PodCliqueScalingGroupStatus:
        group, members = self.observed.group, self.observed.members
        after = with_outcome(self.of_parts, group.status, outcome, self.now, members)
        standing = group_standing(group, after, members, outcome, self.now)
        return judged(after, standing, group.metadata.generation, self.now)

    def is_news(self, after: PodCliqueScalingGroupStatus) -> bool:
        """True if readers wait for this status. Otherwise the write may wait for more changes."""
        group = self.observed.group
        is_decided = bool(self.costs) or self.is_gap_new
        return self.restarts or is_decided or group_news(group.spec, group.status, after)

    def events(self, after: PodCliqueScalingGroupStatus) -> list[Notice]:
        """The events to send when the status is written."""
        group, pcs, before = self.observed.group, self.observed.pcs, self.observed.group.status
        reason, notices = EventReason.GROUP_REPLICA_DELETE_SUCCESSFUL, list[Notice]()
        if lost_all_scheduled(group.spec.replicas, before, after):
            message = "no replica of this group is scheduled any more"
            notices.append(Notice(group, EventReason.ALL_SCHEDULED_REPLICAS_LOST, message, warning=True))
        notices += appeared(group, before.conditions, after.conditions, (BELOW_MINIMUM, GANG_RESTARTS_EXHAUSTED))
        surge = _surge(after)
        if surge is not None and (refused := surge_refused(_surge(before), surge, self.observed.surge_wait_s)):
            message = f"{group.metadata.name}: {refused}"
            notices.append(Notice(pcs, EventReason.SURGE_NOT_PLACED, message, warning=True))
        for restart in self.terminated.now:
            what = f"replica {restart.index} of {group.metadata.name}"
            message = f"restarted {what} as a gang (restart {restart.count}): {restart.blame} stayed in breach"
            notices.append(Notice(pcs, reason, message))
        for entry in after.replica_restarts:
            old = find_restart(before.replica_restarts, entry.replica_index)
            if old.generation_hash != entry.generation_hash:
                message = f"recreating replica {entry.replica_index} of {group.metadata.name} for an update"
                notices.append(Notice(pcs, reason, message))
        return notices


def _surge(status: PodCliqueScalingGroupStatus) -> SurgeProgress | None:
    return status.update_progress.surge if status.update_progress is not None else None


def _index_in(wanted: Json) -> int:
    return int(wanted["metadata"]["labels"][labels.SCALING_GROUP_REPLICA_INDEX])


def plan_group(observed: ObservedGroup, now: datetime) -> GroupPlan:
    """The plan for a group that stays."""
    pcs, group, members, replica = observed.pcs, observed.group, observed.members, observed.replica
    costs = group_costs(group, members, observed.pods_of)
    known = structs.replace(
        group.status,
        replica_restarts=known_restarts(pcs, replica, group, members),
        replica_indexes=next_indexes(group.recorded_indexes, group.indexes, costs, group.spec.min_available),
    )
    turned = structs.replace(group, status=known)
    if observed.recorded:
        turned = next_group_replicas(replace(observed, group=turned), now)
    after = with_draining(observed, group_status(replace(observed, group=turned), now), now)
    # Never less than it had: a set that was created again beside its groups has no numbers.
    incarnation = max(replica_incarnation(pcs, replica), group.status.incarnation)
    after = with_group_memory(group, after, incarnation, now, is_limited=max_gang_restarts(pcs) is not None)
    judged = structs.replace(group, status=after)
    terminated = group_replicas_to_restart(pcs, judged, members, now, observed.moment)
    after = with_group_restarts(pcs, judged, replica, terminated, now)
    return GroupPlan(observed, now, terminated, after, costs)
