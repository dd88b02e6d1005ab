"""Writes the results of gangs and pods: PodGang status, the pods' PodScheduled condition, events.

A status is written only if it differs from the object's, once for each settled change. It is one merge patch under the
version it was made from, since the operator writes the same list of conditions. The condition of a waiting pod is
written once. It is written again only when the reason changed and some time has passed, because a gang may have
hundreds of pods. The reason `Unschedulable` is withdrawn at once, because node autoscalers buy nodes for it. The longer
a gang waits, the longer a text stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from grove.api import conditions as words
from grove.api.conditions import EventReason, with_condition
from grove.api.core import Pod
from grove.api.meta import find_condition
from grove.api.podgang import PodGang, PodGangStatus
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.controller import DONE, Controller, Result
from grove.kube.errors import Conflict, NotFound
from grove.kube.events import Recorder
from grove.scheduler.loop.state.unit import UnitRecord
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gang_life import Phase
from grove.scheduler.policy.gang_state import (
    BIND_FAILED,
    INVALID,
    NO_PLACE,
    PREEMPTING,
    UNSCHEDULABLE,
    WAITING_FOR_PODS,
    GangState,
    ReplacedPod,
    Verdict,
    missing_pods,
)
from grove.scheduler.policy.hold_ledger import LONG_WAIT
from grove.scheduler.policy.hold_records import records
from grove.scheduler.policy.podgang_status import (
    LONGEST,
    condition_json,
    dated_after,
    is_just_starting,
    only_rewords,
    reword_after_s,
    says_nothing,
    status_patch,
    wanted_status,
)
from grove.scheduler.policy.waiting_reasons import pod_reason

POD_SCHEDULED = "PodScheduled"
FAILED_SCHEDULING = "FailedScheduling"

SOON_S = 0.05
"""Readiness comes pod by pod; one write for those that come together."""
CREATION_S = 3.0
"""Pods of a gang may take this long to be created before the status says that they are missing."""
START_S, MOST_START_S, FEW_PODS = 1.0, 10.0, 2
"""A gang of so few pods is given a moment to be ready before it is said to be starting: one status, not two.

A longer one while pods of others become ready: where many start at once, its own may be next.
"""
ORPHAN_S = 5.0
"""How long a pod may name a PodGang that does not exist before its condition says so."""
REWORD_S = 60.0
"""A pod's text is not changed more often than this, unless the pod stops to be unschedulable."""
TEXT_WRITES = 8
WRITTEN_ON_PODS = (*NO_PLACE, INVALID)
"""Reasons that the pods get too. A pod that has a text gets every other reason as well, so that none is outdated."""


class Reporter:
    """Two work queues: gangs whose status may differ, and units whose waiting pods get a condition."""

    def __init__(
        self,
        client: Client,
        view: View,
        events: Recorder,
        clock: Clock,
        *,
        settle_s: float,
        say: Callable[[Reason], str],
    ) -> None:
        self._client, self._view, self._events, self._clock = client, view, events, clock
        self.say = say
        self._settle_s = settle_s
        self.statuses = Controller[str]("scheduler-podgang-status", self.write_status, workers=4)
        self.texts = Controller[str]("scheduler-pod-condition", self._write_texts, workers=2)
        self._readiness_changed_s = 0.0
        self._turns = asyncio.Semaphore(TEXT_WRITES)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.statuses.run())
            group.create_task(self.texts.run())

    # What the cycle reports

    def report(self, gang: GangState, verdict: Verdict) -> None:
        """The gang's Scheduled condition should say this; a refusal is written only if it stands for a while."""
        before, now_s = gang.verdict, asyncio.get_running_loop().time()
        unit = self._view.units.of(gang.name)
        gang.judge(verdict)
        if not gang.has_object:
            is_news = verdict.reason not in (PREEMPTING, BIND_FAILED) or self._have_text(gang)
            if is_news and not (verdict.placed or verdict.brief):
                self.report_waiting(gang.name, verdict, after_s=ORPHAN_S if verdict.reason == INVALID else None)
            return
        if verdict.placed:
            unit.settling = (verdict.reason, now_s + START_S) if len(gang.group_of) <= FEW_PODS else None
            unit.pods_text = None
            self.statuses.add(gang.name)
            return
        unit.pods_verdict = None
        reason, due_s = unit.settling or ("", 0.0)
        if reason != verdict.reason:
            wait_s = max(self._settle_s, CREATION_S) if verdict.reason == WAITING_FOR_PODS else self._settle_s
            due_s = now_s + wait_s
            unit.settling = (verdict.reason, due_s)
        if verdict.brief:
            return
        wait_s = max(0.0, due_s - now_s)
        self.statuses.add(gang.name, after_s=wait_s)
        is_news = before is None or (before.reason, before.why) != (verdict.reason, verdict.why)
        if is_news and (verdict.reason in WRITTEN_ON_PODS or self._have_text(gang)):
            self.texts.add(gang.name, after_s=wait_s)

    def touch(self, gang: str) -> None:
        """A part of the status changed."""
        if self._with_object(gang) is not None:
            self.statuses.add(gang, after_s=SOON_S)

    def note_held(self, gang: str) -> None:
        """What is held for the gang changed. A pod without a PodGang names its node itself."""
        self.touch(gang)
        if (known := self._view.units.gangs.get(gang)) is not None and not known.has_object:
            self.texts.add(gang, after_s=SOON_S)

    def _with_object(self, name: str) -> GangState | None:
        """A gang whose PodGang exists."""
        gang = self._view.units.gangs.get(name)
        return gang if gang is not None and gang.has_object else None

    def readiness_changed(self, gang: str) -> None:
        """A pod of the gang became ready, or stopped to be."""
        self._readiness_changed_s = asyncio.get_running_loop().time()
        self.touch(gang)

    def tell(self, gang: GangState, reason: str, why: Reason | str) -> None:
        """An event on the PodGang, if there is one."""
        if gang.has_object:
            self._events.normal(gang.podgang, reason, why if isinstance(why, str) else self.say(why))

    def warn(self, gang: GangState, reason: str, why: Reason | str) -> None:
        """A warning event on the PodGang, if there is one."""
        if gang.has_object:
            self._events.warn(gang.podgang, reason, why if isinstance(why, str) else self.say(why))

    def warn_of_record(self, gang: GangState, text: str) -> None:
        """A warning event about a record of held capacity, on the PodGang or on the pods without one."""
        self.warn(gang, EventReason.INVALID_CAPACITY_HOLD, text)
        for pod in self._waiting_pods(gang) if not gang.has_object else ():
            self._events.warn(pod, EventReason.INVALID_CAPACITY_HOLD, text)

    def report_waiting(self, unit: str, verdict: Verdict, after_s: float | None = None) -> None:
        """Pods without a PodGang, or above the minimum of their gang, have no place."""
        self._view.units.of(unit).pods_verdict = verdict
        self.texts.add(unit, after_s=self._settle_s if after_s is None else after_s)

    # Writing

    async def write_status(self, name: str) -> Result:
        """Writes the gang's status if it differs from what it should be."""
        gang = self._with_object(name)
        if gang is None or gang.podgang.metadata.is_deleting:
            return DONE
        current = self._view.cache.get(PodGang, gang.podgang.metadata.key)  # our own last write, if it is newer
        if current is None:
            return DONE
        self._note_lacking(gang)
        unsettled_s, lacking_s = self._unsettled_s(gang), self._lacking_s(gang)
        standing = self._view.standing(gang)
        stands = gang.has_minimum(standing)
        ready = self._view.count(gang, lambda pod: pod.is_ready)
        verdict, now = self._settled_verdict(gang), self._clock.now()

        def wanted_with(replaced: Mapping[str, Sequence[ReplacedPod]]) -> PodGangStatus:
            held, former = self._view.ledger.of(name), frozenset() if stands else gang.former
            holds = records(held, replaced, former, now, current.status.capacity_holds)
            unit = self._view.units.of(name)
            headroom = unit.headroom.state if unit.headroom is not None else None
            return wanted_status(
                gang, verdict, current.status, standing, ready, now, self.say, holds, unit.replacement, headroom
            )

        # A gang that stands mostly gets its pods at once. The status reports lost pods of another one anyway.
        before = gang.replaced if current.status.capacity_holds else {}
        wanted = wanted_with((gang.replaced if lacking_s == 0 else {}) if stands else before)
        again = Result(after_s=unsettled_s or lacking_s or None)
        if says_nothing(current.status, wanted) or (unsettled_s and is_just_starting(current.status, wanted)):
            return again
        if only_rewords(current.status, wanted) and (early_s := self._too_early_s(name)) > 0:
            return Result(after_s=early_s)
        wanted = dated_after(wanted, self._bound(gang), gang) if stands else wanted_with(gang.replaced)
        try:
            answer = await self._client.patch(
                PodGang,
                current.metadata.name,
                status_patch(current, wanted),
                current.metadata.namespace,
                subresource="status",
            )
        except NotFound:
            return DONE
        self._view.cache.wrote(answer)
        if (unit := self._view.units.find(name)) is not None:  # it may have gone during the write
            unit.worded_s = asyncio.get_running_loop().time()
        self._warn_of_change(gang, current.status, wanted)
        return again

    def _too_early_s(self, name: str) -> float:
        """Seconds until the text of the gang's status may change."""
        unit, now_s = self._view.units.of(name), asyncio.get_running_loop().time()
        return 0.0 if unit.worded_s is None else unit.worded_s + self._reword_s(unit, now_s) - now_s

    def _reword_s(self, unit: UnitRecord, now_s: float) -> float:
        return 0.0 if unit.ready_since_s is None else reword_after_s(now_s - unit.ready_since_s)

    def _settled_verdict(self, gang: GangState) -> Verdict | None:
        verdict = gang.verdict
        if verdict is None or verdict.placed:
            return verdict
        if verdict.brief or self._unsettled_s(gang) is not None:
            return None
        # Of the pods that were missing more may have come since.
        return missing_pods(gang) if verdict.reason == WAITING_FOR_PODS and gang.missing else verdict

    def _unsettled_s(self, gang: GangState) -> float | None:
        """Seconds until the verdict there is may be written; None when there is nothing to wait for."""
        if gang.verdict is None or gang.verdict.brief:
            return None
        _, due_s = self._view.units.of(gang.name).settling or ("", 0.0)
        if due_s and gang.verdict.placed:
            due_s = max(due_s, min(self._readiness_changed_s + START_S, due_s + MOST_START_S - START_S))
        left_s = due_s - asyncio.get_running_loop().time()
        return left_s if left_s > 0 else None

    def _note_lacking(self, gang: GangState) -> None:
        """Notes since when nodes of replaced pods are vacant while other pods are awaited."""
        pods, unit = self._view.members(gang), self._view.units.of(gang.name)
        if any(gang.replaced.values()) and (gang.missing or any(self._view.is_pending(pod) for pod, _ in pods)):
            if unit.lacking_since_s is None:
                unit.lacking_since_s = asyncio.get_running_loop().time()
        else:
            unit.lacking_since_s = None

    def _lacking_s(self, gang: GangState) -> float | None:
        """Seconds until vacant nodes of replaced pods are worth a write of their own; None if no pod is awaited.

        Mostly the replacements come at once and take them.
        """
        since_s = self._view.units.of(gang.name).lacking_since_s
        return max(0.0, since_s + CREATION_S - asyncio.get_running_loop().time()) if since_s is not None else None

    def _bound(self, gang: GangState) -> dict[str, list[datetime]]:
        """When the pods on nodes were bound, by group, as far as their conditions say."""
        bound: dict[str, list[datetime]] = {name: [] for name in gang.minima}
        for pod, group in self._view.members(gang):
            if not pod.metadata.is_deleting and (moment := self._view.bound_since(pod)) is not None:
                bound[group].append(moment)
        return bound

    def _warn_of_change(self, gang: GangState, before: PodGangStatus, after: PodGangStatus) -> None:
        old = find_condition(before.conditions, words.SCHEDULED)
        new = find_condition(after.conditions, words.SCHEDULED)
        if new is None or (old is not None and (old.status, old.message) == (new.status, new.message)):
            return
        if new.status == words.FALSE and new.reason in NO_PLACE:
            self.warn(gang, EventReason.GANG_UNSCHEDULABLE, new.message)

    async def _write_texts(self, name: str) -> Result:
        unit, gang = self._view.units.find(name), self._view.units.gangs.get(name)
        if unit is None or gang is None:
            return DONE
        verdict, pods = unit.pods_verdict or gang.verdict, self._waiting_pods(gang)
        if verdict is None or verdict.placed:
            return DONE
        if gang.has_object and verdict is not unit.pods_verdict and verdict.reason not in WRITTEN_ON_PODS:
            pods = [pod for pod in pods if _has_text(pod)]
        if not pods:
            return DONE
        reason = pod_reason(verdict)
        is_withdrawn = reason != UNSCHEDULABLE and any(pod.is_unschedulable for pod in pods)
        now = asyncio.get_running_loop().time()
        text, when = unit.pods_text or (None, 0.0)
        is_same = all(pod.is_unschedulable == (reason == UNSCHEDULABLE) for pod in pods)
        early_s = when + max(REWORD_S, self._reword_s(unit, now) if is_same else 0.0) - now
        if text is not None and text != verdict.why and early_s > 0 and not is_withdrawn:
            return Result(after_s=early_s)
        unit.pods_text = (verdict.why, now)
        hold = self._view.ledger.find(name, *LONG_WAIT) if not gang.has_object else None
        node = next(iter(hold.nodes), "") if hold is not None else ""
        writes = (self._write_text(pod, reason, verdict.why, node) for pod in pods)
        failed = [error for error in await asyncio.gather(*writes, return_exceptions=True) if error is not None]
        if failed:
            unit.pods_text = None
            if not isinstance(failed[0], Conflict):
                raise failed[0]
            return Result(
                after_s=self._settle_s
            )  # bound, or changed meanwhile: those that still wait get the condition
        if not gang.has_object:
            self._events.warn(pods[0], FAILED_SCHEDULING, self.say(verdict.why))
        return DONE

    def _waiting_pods(self, gang: GangState) -> list[Pod]:
        """Its pods that wait for a place, or for victims to leave it; also a gated pod whose PodGang does not exist."""
        counted = self._view.counted
        node_of = counted.bound_node if gang.phase is Phase.NOMINATED else counted.node_of
        ours = (pod for pod, _ in self._view.members(gang) if self._view.is_ours(pod))
        waiting = (pod for pod in ours if not (node_of(pod) or pod.metadata.is_deleting))
        return [pod for pod in waiting if not pod.is_gated or not gang.has_object]

    def _have_text(self, gang: GangState) -> bool:
        return any(map(_has_text, self._waiting_pods(gang)))

    async def _write_text(self, pod: Pod, reason: str, why: Reason, held_node: str) -> None:
        conditions = with_condition(
            pod.status.conditions,
            POD_SCHEDULED,
            words.FALSE,
            reason,
            self.say(why)[:LONGEST],
            _second(self._clock),
        )
        is_new_node = held_node != pod.status.nominated_node_name
        if conditions is pod.status.conditions and not is_new_node:
            return
        meta = pod.metadata
        node = {"nominatedNodeName": held_node or None} if is_new_node else {}
        patch = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {"conditions": [condition_json(c) for c in conditions]} | node,
        }
        async with self._turns:
            try:
                await self._client.patch(Pod, meta.name, patch, meta.namespace, subresource="status")
            except NotFound:
                pass


def _has_text(pod: Pod) -> bool:
    """Whether it has a condition that says why it waits; that of a gate is the API server's."""
    return find_condition(pod.status.conditions, POD_SCHEDULED) is not None and not pod.is_held_by_gate


def _second(clock: Clock) -> datetime:
    return clock.now().replace(microsecond=0)
