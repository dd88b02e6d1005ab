"""Everything a look at one PodClique decides: its pods, its step in an update or a restart, its status, what to say.

`plan_clique` takes what was read and answers with a `CliquePlan`; the controller carries it out. The status is asked
for at the end, with how that went.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random

from msgspec import structs

from grove.api.conditions import BELOW_MINIMUM, ErrorCode, EventReason
from grove.api.meta import Json, rfc3339
from grove.api.podclique import PodCliqueStatus
from grove.api.words import many
from grove.backends.base import BackendError
from grove.operator.podclique.pods import PodPlan, plan_pods
from grove.operator.podclique.rollout import CliqueStep, next_clique_step, waits_for_turn
from grove.operator.podclique.status import ObservedClique, clique_status
from grove.operator.shared.children import with_template
from grove.operator.shared.outcome import UNKNOWN_SCHEDULER, Notice, Outcome, appeared
from grove.operator.shared.readiness import clique_standing, judged
from grove.operator.shared.rollout import lost_all_scheduled
from grove.operator.shared.status_batching import FIRST_S, PROGRESS_S, TURN_S, clique_news
from grove.operator.shared.surge import surge_given_up_s, surge_refused
from grove.operator.shared.termination import max_gang_restarts, with_clique_memory


@dataclass(frozen=True, slots=True)
class CliquePlan:
    """The writes for a clique, in this order: `recorded_first`, claims for `pods.indexes`, `pods`, the status.

    `refused` says why no pod can be made at all; then only the status is written.
    """

    observed: ObservedClique
    now: datetime
    step: CliqueStep
    pods: PodPlan = field(default_factory=PodPlan)
    refused: Outcome | None = None

    @property
    def recorded_first(self) -> PodCliqueStatus | None:
        """A status that must be written before any pod is deleted: the pods that an update waits for must survive a
        crash.
        """
        if not self.step.must_be_recorded(self.observed.clique.status):
            return None
        return self.status(Outcome(waiting_for="pods to be replaced"))

    @property
    def next_look_s(self) -> float | None:
        surge, due_s = self.step.progress.surge if self.step.progress is not None else None, self.pods.next_look_s
        given_up_s = surge_given_up_s(surge, self.observed.surge_wait_s, self.now) if surge is not None else None
        return due_s if given_up_s is None or (due_s is not None and due_s < given_up_s) else given_up_s

    @property
    def events(self) -> list[Notice]:
        """The events after the pods are as planned."""
        clique, notices = self.observed.clique, []
        count = len(self.pods.create)
        if count and clique.status.observed_generation is not None:  # that a new clique has pods is no news
            message = f"created {many(count, 'pod')}"
            notices.append(Notice(clique, EventReason.POD_CREATE_SUCCESSFUL, message))
        patched = [pod.metadata.name for pod, step in self.pods.in_place if step.patch]
        if patched:
            message = f"updated {many(len(patched), 'pod')} in place: {', '.join(sorted(patched)[:5])}"
            notices.append(Notice(clique, EventReason.POD_UPDATED_IN_PLACE, message))
        marked = {
            pod.metadata.name: drain_step.until for pod, drain_step in self.pods.drain if drain_step.until is not None
        }
        if marked:
            until = rfc3339(max(marked.values()))
            message = f"draining {many(len(marked), 'pod')} until {until}: {', '.join(sorted(marked)[:5])}"
            notices.append(Notice(clique, EventReason.POD_DRAINING, message))
        for removal in self.pods.delete:
            message = f"deleted pod {removal.pod.metadata.name}: {removal.reason}"
            notices.append(Notice(clique, EventReason.POD_DELETE_SUCCESSFUL, message))
        return notices

    def status(self, outcome: Outcome) -> PodCliqueStatus:
        seen = self.observed
        clique = seen.clique
        turned = structs.replace(clique, status=structs.replace(clique.status, update_progress=self.step.progress))
        after = clique_status(replace(seen, clique=turned), outcome, self.now)
        # Pods of an earlier incarnation that could not be deleted: the restart has not taken place yet.
        incarnation = clique.status.incarnation if self.step.restart else self.step.incarnation
        is_limited = max_gang_restarts(seen.pcs) is not None
        after = with_clique_memory(clique, after, incarnation, self.now, is_limited=is_limited)
        unfit = sum(pod.has_no_place and not pod.metadata.is_deleting for pod in seen.pods)
        standing = clique_standing(clique.spec, after, unfit, self.now, is_scaled=seen.unit.is_scaled)
        return judged(after, standing, clique.metadata.generation, self.now)

    def is_news(self, after: PodCliqueStatus) -> bool:
        """True if readers wait for this status. Otherwise the write may wait for more changes."""
        return clique_news(self.observed.clique.spec, self.observed.clique.status, after)

    def may_wait_s(self, after: PodCliqueStatus) -> float:
        """Seconds that a status without news may wait for more changes."""
        before = self.observed.clique.status
        if before.observed_generation is None:
            return FIRST_S
        is_only_recount = structs.replace(after, updated_replicas=before.updated_replicas) == before
        return TURN_S if is_only_recount and waits_for_turn(self.observed) else PROGRESS_S

    def warnings(self, after: PodCliqueStatus) -> list[Notice]:
        """The events to send when the status is written."""
        clique, before = self.observed.clique, self.observed.clique.status
        notices = []
        if lost_all_scheduled(clique.spec.replicas, before, after):
            message = "no pod of this clique has a node any more"
            notices.append(Notice(clique, EventReason.ALL_SCHEDULED_REPLICAS_LOST, message, warning=True))
        old, new = (
            status.update_progress.surge if status.update_progress is not None else None for status in (before, after)
        )
        if new is not None and (refused := surge_refused(old, new, self.observed.surge_wait_s)):
            message = f"{clique.metadata.name}: {refused}"
            notices.append(Notice(self.observed.pcs, EventReason.SURGE_NOT_PLACED, message, warning=True))
        return [*notices, *appeared(clique, before.conditions, after.conditions, (BELOW_MINIMUM,))]


def plan_turn(observed: ObservedClique, wanted: Json, now: datetime) -> CliquePlan:
    """The plan for a clique that is about to get the template of this manifest: only its step is decided."""
    turned = replace(observed, clique=with_template(observed.clique, wanted))
    return CliquePlan(turned, now, next_clique_step(turned, now))


def plan_clique(observed: ObservedClique, now: datetime, rng: Random) -> CliquePlan:
    """The plan for a clique that stays; `rng` is where the names of new pods come from."""
    step, backend = next_clique_step(observed, now), observed.backend

    def refused(code: str, message: str) -> CliquePlan:
        return CliquePlan(observed, now, step, refused=Outcome(errors=((code, message),)))

    if backend is None:
        return refused(ErrorCode.BUILD_POD, UNKNOWN_SCHEDULER)
    if observed.clique.spec.starts_after and not observed.startup_image:
        return refused(
            ErrorCode.STARTUP_IMAGE_MISSING, "the operator's configuration names no image for the start-order container"
        )
    try:
        return CliquePlan(observed, now, step, plan_pods(observed, backend, step, now, rng))
    except BackendError as error:
        return refused(ErrorCode.BUILD_POD, str(error))
