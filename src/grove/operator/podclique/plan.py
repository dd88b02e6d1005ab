"""Everything a look at one PodClique decides: its pods, its step in an update or a restart, its status, what to say.

`plan_clique` takes what was read and answers with a `CliquePlan`; the controller carries it out. The status is asked
for at the end, with how that went.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random

from msgspec import structs

from grove.api.conditions import ErrorCode, EventReason
from grove.api.core import Pod
from grove.api.podclique import PodClique, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.backends.base import Backend, BackendError
from grove.operator.podclique.pod import PodBlueprint
from grove.operator.podclique.pods import GoneSince, PodPlan, plan_pods
from grove.operator.podclique.rollout import CliqueTurn, clique_turn
from grove.operator.podclique.status import BELOW_MINIMUM, clique_status
from grove.operator.podgang.gangs import may_be_ungated
from grove.operator.shared.layout import Unit
from grove.operator.shared.outcome import COMPLETE, UNKNOWN_SCHEDULER, Notice, Outcome, appeared
from grove.operator.shared.rollout import lost_all_scheduled
from grove.operator.shared.status_batching import clique_news
from grove.operator.shared.termination import with_clique_memory


@dataclass(frozen=True, slots=True)
class ObservedClique:
    """What was read about a clique that its set wants.

    `base_scheduled`: the base gang of a scaled gang has its minimum on nodes. `recorded`: the set's status names its
    templates as they are now. `stuck` are the uids of pods that wait for more of a parent than it has, `loads` what
    pods have to do, by name, as far as is known. `core_nodes` are the labels of the nodes on which pods stand that the
    gang needs, a node as often as it has such pods.
    """

    clique: PodClique
    pcs: PodCliqueSet
    unit: Unit
    pods: Sequence[Pod]
    backend: Backend | None
    template_hash: str
    recorded: bool = True
    group: PodCliqueScalingGroup | None = None
    gang: PodGang | None = None
    base_scheduled: bool = True
    parent_replicas: Mapping[str, int] = field(default_factory=dict)
    stuck: frozenset[str] = frozenset()
    loads: Mapping[str, float] = field(default_factory=dict)
    core_nodes: Sequence[Mapping[str, str]] = ()
    gone_since: GoneSince = lambda node: None
    startup_image: str = ""


@dataclass(frozen=True, slots=True)
class CliquePlan:
    """What to do about a clique, in this order: `recorded_first`, claims for `pods.indexes`, `pods`, the status.

    `refused` says why no pod can be made at all; then only the status is written.
    """

    observed: ObservedClique
    now: datetime
    turn: CliqueTurn
    pods: PodPlan = field(default_factory=PodPlan)
    refused: Outcome | None = None

    @property
    def recorded_first(self) -> PodCliqueStatus | None:
        """A status that must be written before any pod goes: whom an update waits for has to outlive a crash."""
        if not self.turn.must_be_recorded(self.observed.clique.status):
            return None
        return self.status(Outcome(waiting_for="pods to be replaced"))

    @property
    def next_look_s(self) -> float | None:
        return self.pods.next_look_s

    @property
    def events(self) -> list[Notice]:
        """What is said once the pods are as planned."""
        clique, said = self.observed.clique, []
        count = len(self.pods.create)
        if count and clique.status.observed_generation is not None:  # that a new clique has pods is no news
            message = f"created {count} pod{'s' if count > 1 else ''}"
            said.append(Notice(clique, EventReason.POD_CREATE_SUCCESSFUL, message))
        for removal in self.pods.delete:
            message = f"deleted pod {removal.pod.metadata.name}: {removal.reason}"
            said.append(Notice(clique, EventReason.POD_DELETE_SUCCESSFUL, message))
        return said

    def status(self, outcome: Outcome = COMPLETE) -> PodCliqueStatus:
        seen = self.observed
        clique = seen.clique
        turned = structs.replace(clique, status=structs.replace(clique.status, update_progress=self.turn.progress))
        after = clique_status(turned, seen.pods, seen.pcs, seen.template_hash, outcome, self.now)
        # Pods of an earlier incarnation that could not be deleted: the restart has not taken place yet.
        incarnation = clique.status.incarnation if self.turn.restart else self.turn.incarnation
        return with_clique_memory(after, incarnation, self.now)

    def is_news(self, after: PodCliqueStatus) -> bool:
        """Whether somebody waits for this status; else it may wait for more to report."""
        return clique_news(self.observed.clique.spec, self.observed.clique.status, after)

    def warnings(self, after: PodCliqueStatus) -> list[Notice]:
        """What is said when the status is written."""
        clique, before = self.observed.clique, self.observed.clique.status
        said = []
        if lost_all_scheduled(clique.spec.replicas, before, after):
            message = "no pod of this clique has a node any more"
            said.append(Notice(clique, EventReason.ALL_SCHEDULED_REPLICAS_LOST, message, warning=True))
        return [*said, *appeared(clique, before.conditions, after.conditions, (BELOW_MINIMUM,))]


def plan_clique(observed: ObservedClique, now: datetime, rng: Random) -> CliquePlan:
    """The plan for a clique that stays; `rng` is where the names of new pods come from."""
    clique, pcs, pods, backend = observed.clique, observed.pcs, observed.pods, observed.backend
    turn = clique_turn(pcs, clique, observed.group, pods, observed.template_hash, now, recorded=observed.recorded)
    if turn.must_be_recorded(clique.status):
        clique = structs.replace(clique, status=structs.replace(clique.status, update_progress=turn.progress))
    if backend is None:
        return CliquePlan(observed, now, turn, refused=Outcome(errors=((ErrorCode.BUILD_POD, UNKNOWN_SCHEDULER),)))
    if clique.spec.starts_after and not observed.startup_image:
        message = "the operator was not told the image of the start-order container"
        return CliquePlan(observed, now, turn, refused=Outcome(errors=((ErrorCode.STARTUP_IMAGE_MISSING, message),)))
    blueprint = PodBlueprint(
        pcs,
        clique,
        observed.unit,
        backend,
        observed.startup_image,
        observed.parent_replicas,
        turn.incarnation,
        observed.gang,
    )
    try:
        planned = plan_pods(
            blueprint,
            pods,
            now=now,
            rng=rng,
            gone_since=observed.gone_since,
            may_be_ungated=_ungated_by_backend(observed, backend),
            replace=turn.replace,
            restart=turn.restart,
            stuck=observed.stuck,
            loads=observed.loads,
        )
        if planned.ungate and observed.gang is not None:
            labels = backend.node_labels_to_keep(observed.gang, observed.core_nodes)
            planned = replace(planned, node_labels=labels)
    except BackendError as error:
        return CliquePlan(observed, now, turn, refused=Outcome(errors=((ErrorCode.BUILD_POD, str(error)),)))
    return CliquePlan(observed, now, turn, planned)


def _ungated_by_backend(observed: ObservedClique, backend: Backend) -> list[Pod]:
    gang, name = observed.gang, observed.clique.metadata.name
    if not backend.needs_gate or gang is None:
        return []
    complete = may_be_ungated(observed.pods, name, gang, base_scheduled=observed.base_scheduled)
    return [pod for pod in complete if backend.may_ungate(pod, gang)]
