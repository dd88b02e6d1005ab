"""Everything a look at one PodGang decides: whether it is wanted, what it lists, its status, what to say about it.

A gang is written when all its pods exist, so that a scheduler sees it complete. A gang that stays incomplete is written
a moment later, and says what it waits for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import msgspec

from grove.api.conditions import NODES_PROVISIONED, SCHEDULER_OBJECTS_READY, TOPOLOGY_NOT_HONOURED
from grove.api.core import Pod
from grove.api.meta import Condition, Json, find_condition
from grove.api.patch import apply_merge_patch
from grove.api.podgang import PodGang, PodGangStatus
from grove.api.provisioning import CONSUMES
from grove.backends import base
from grove.backends.base import Backend, GangObjectsState
from grove.operator.podgang.gangs import ObservedGang, WantedGang, pods_in_gang, wanted_gang
from grove.operator.podgang.honoured import broken_requirements, spread_message
from grove.operator.podgang.provisioning import ProvisioningState
from grove.operator.podgang.status import (
    gang_status,
    is_trouble,
    with_provisioning_condition,
    with_topology_condition,
)
from grove.operator.shared.diff import adoption, is_controlled_by, is_left_behind, is_orphan, needed_patch
from grove.operator.shared.outcome import Notice
from grove.operator.shared.status_batching import ALL_PODS_S, FIRST_PODS_S, PROGRESS_S, gang_news

NOT_ENFORCED = GangObjectsState(
    True,
    base.NOT_ENFORCED,
    "the scheduler bound part of the gang and not the rest: its own feature gates for gangs may be off",
)


@dataclass(frozen=True, slots=True)
class GangPlan:
    """The action for a gang.

    - `nothing`: it is as it should be, or its deletion is the event to wait for.
    - `taken`: an object of another owner has its name.
    - `adopt`: an object without owner has its name, and becomes ours.
    - `write`: create or patch, which may wait up to `wait_s` for more pods, then the status. Objects for another
      scheduler are written after a create, and before a patch.
    """

    observed: ObservedGang
    now: datetime
    act: Literal["nothing", "remove", "taken", "adopt", "write"]
    wanted: WantedGang | None = None
    patch: Json | None = None
    wait_s: float | None = None

    @property
    def patched(self) -> PodGang | None:
        """A gang of ours, as it will be once it is patched; None if nothing is to be patched."""
        gang = self.observed.gang
        if gang is None or not self.patch or self.act == "adopt":
            return None
        return msgspec.convert(apply_merge_patch(msgspec.to_builtins(gang), self.patch), PodGang, strict=False)

    def pods_of(self, gang: PodGang) -> list[Pod]:
        """The pods that a gang lists and that are there to stay."""
        groups, pods_of = gang.spec.podgroups, self.observed.pods_of
        pods_by_group = (pods_in_gang(pods_of(group.name), gang.metadata.name) for group in groups)
        return [pod for pods in pods_by_group for pod in pods]

    def objects_state(
        self, gang: PodGang, backend: Backend, state: GangObjectsState | None
    ) -> tuple[GangObjectsState | None, float | None]:
        """The state of another scheduler's objects, from its answers; and when to check that it acts on them."""
        doubt_s = backend.doubt_s(gang, self.pods_of(gang), self.now) if state is not None else None
        return (NOT_ENFORCED, None) if doubt_s == 0.0 else (state, doubt_s)

    def concerns_node_autoscaler(self, gang: PodGang) -> bool:
        """True if pods of a gang use a ProvisioningRequest, or the gang still reports one."""
        if find_condition(gang.status.conditions, NODES_PROVISIONED) is not None:
            return True
        return any(CONSUMES in pod.metadata.annotations for pod in self.pods_of(gang))

    def status(
        self,
        gang: PodGang,
        backend: Backend,
        state: GangObjectsState | None,
        nodes: ProvisioningState | None = None,
    ) -> PodGangStatus:
        """The status of a gang that is as wanted; `gang` is what is there now, `nodes` what its request says."""
        if self.wanted is None:
            return gang.status
        seen = self.observed
        status = gang_status(gang, self.wanted, backend, seen.pods_of, self.now, state)
        broken = broken_requirements(gang, seen.pods_of, seen.labels_of, seen.binding) if gang.requires_domain else ()
        status = with_topology_condition(status, spread_message(broken) if broken else "", self.now)
        return with_provisioning_condition(status, nodes, self.now)

    def is_news(self, before: PodGangStatus, after: PodGangStatus, backend: Backend) -> bool:
        """True if readers wait for this status. Otherwise the write may wait for more changes."""
        if self.wanted is None or not gang_news(before, after, scheduler_reports=backend.reports_gang_status):
            return False
        return backend.reports_gang_status or not self.wanted.incomplete

    def troubles(self, gang: PodGang, after: PodGangStatus) -> list[Condition]:
        """New conditions which say that a gang's scheduler lacks its objects, or that a required placement is not
        kept.

        `gang` is as it was before `after` was written.
        """
        conditions: list[Condition] = []
        for type_ in (SCHEDULER_OBJECTS_READY, TOPOLOGY_NOT_HONOURED):
            old, new = (find_condition(status.conditions, type_) for status in (gang.status, after))
            if new is not None and is_trouble(new) and (old is None or old.reason != new.reason):
                conditions.append(new)
        return conditions

    def notice(self, gang: PodGang, trouble: Condition, backend: Backend) -> Notice:
        reason = backend.event_reasons.get(trouble.reason, trouble.reason)
        return Notice(self.observed.pcs, reason, f"PodGang {gang.metadata.name}: {trouble.message}", warning=True)


def plan_gang(observed: ObservedGang, now: datetime) -> GangPlan:
    """The plan for a gang of a set that stays."""
    pcs, gang = observed.pcs, observed.gang
    if gang is not None and (gang.metadata.is_deleting or is_left_behind(gang, pcs)):
        return GangPlan(observed, now, "nothing")  # when it is gone, its deletion brings us back
    wanted = wanted_gang(observed)
    if gang is not None and wanted is not None and is_orphan(gang, wanted.object):
        return GangPlan(observed, now, "adopt", wanted, adoption(wanted.object, gang))
    if gang is not None and not is_controlled_by(gang, pcs):
        return GangPlan(observed, now, "nothing" if wanted is None else "taken")
    if wanted is None:
        return GangPlan(observed, now, "nothing" if gang is None else "remove")
    patch = needed_patch(wanted.object, gang) if gang is not None else None
    wait_s = _wait_s(observed, wanted) if (gang is None or patch) and wanted.incomplete else None
    return GangPlan(observed, now, "write", wanted, patch, wait_s)


def _wait_s(observed: ObservedGang, wanted: WantedGang) -> float:
    """How long an incomplete gang may wait for its last pod: longest before its first, when its turn has not come.

    Not long where a clique met trouble: people look at the gang then, and its last pod may never come.
    """
    if observed.gang is not None or any(clique.status.last_errors for clique in observed.cliques.values()):
        return PROGRESS_S
    has_pods = any(group["podReferences"] for group in wanted.object["spec"]["podgroups"])
    return ALL_PODS_S if has_pods else FIRST_PODS_S
