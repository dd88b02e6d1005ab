"""Answers whether pods that are to replace others fit, while the others still run.

The operator asks on a PodGang (`spec.replacement`) before it takes down pods whose successors request more. The answer
counts the nodes of the old pods as free. All new pods need a place, also those above the minimum. The gang may evict
pods of lower priority, as any gang that waits. Devices of claims are not part of the question. Nothing is held: the
answer is about this moment. A change of the cluster makes the scheduler check a refusal again.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from grove.api.core import Pod
from grove.api.meta import Key
from grove.api.pod import PodSpec
from grove.api.podgang import Replacement, ReplacementAnswer
from grove.scheduler.loop.holds.nominations import Nominations
from grove.scheduler.loop.state.gang_trees import closed_capacity, order_of, tree_of
from grove.scheduler.loop.state.unit import AnsweredQuestion
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model.answers import Budget, DecisionSteps
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import BadGang, Gang
from grove.scheduler.model.reading import read_pod
from grove.scheduler.policy.gang_state import GangState

AGAIN_S = 5.0
"""Seconds between two answers to a question while the cluster changes."""
NEW = "new:"
"""Uids of pods that do not exist yet are called so, with that of the pod that they replace."""


class ReplacementAnswers:
    def __init__(
        self,
        view: View,
        nominations: Nominations,
        reporter: Reporter,
        config: SchedulerConfiguration,
        budget: Budget,
    ) -> None:
        self._view, self._nominations, self._reporter = view, nominations, reporter
        self._config, self._budget = config, budget
        self.asking: set[str] = set()
        """Gangs that ask something."""

    def note(self, gang: GangState) -> None:
        """The scheduler looked at the gang, which asks something."""
        self.asking.add(gang.name)

    async def turn(self, now_s: float) -> float | None:
        """Answers what is asked; returns when to look again, if an answer has to wait."""
        again_s: list[float] = []
        for name in sorted(self.asking):
            gang = self._view.units.gangs.get(name)
            asked = gang.podgang.spec.replacement if gang is not None else None
            if gang is None or asked is None:
                self.asking.discard(name)
                continue
            unit = self._view.units.of(name)
            if (answered := unit.answered) is not None and answered.id == asked.id:
                if answered.version == self._view.snapshot.version:
                    continue
                if now_s < answered.at_s + AGAIN_S:
                    again_s.append(answered.at_s + AGAIN_S)
                    continue
            unit.answered = AnsweredQuestion(asked.id, self._view.snapshot.version, now_s)
            if (answer := await self._answer(gang, asked)) is not None and self._view.units.is_current(gang):
                self._view.units.of(name).replacement = answer
                self._reporter.touch(name)
        return min(again_s, default=None)

    async def _answer(self, gang: GangState, asked: Replacement) -> ReplacementAnswer | None:
        """None if a pod that is to be replaced is not there any more: the operator asks again."""
        namespace, find = gang.podgang.metadata.namespace, self._view.snapshot.find_pod
        new: dict[Key, PodFacts] = {}
        leaving: list[PodFacts] = []
        for group in asked.pod_groups:
            for pod_name in group.pod_names:
                pod = self._view.pods.get(Key(namespace, pod_name))
                old = find(pod.metadata.uid) if pod is not None else None
                if pod is None or old is None or pod.metadata.is_deleting:
                    return None
                try:
                    new[pod.metadata.key] = _successor(pod, old, group.pod_spec)
                except msgspec.ValidationError as error:
                    return ReplacementAnswer(id=asked.id, message=f"the new pods cannot be read: {error}")
                leaving.append(old)
        try:
            tree = self._tree(gang, new)
        except BadGang as error:
            return ReplacementAnswer(id=asked.id, message=str(error))
        order = order_of(self._view, gang.name)
        accounts = self._view.snapshot.seams.accounts(group.pods[0] for group in tree.groups() if group.pods)
        closed = closed_capacity(self._view, gang.name, order, accounts)
        own = frozenset(pod.gang for pod in leaving)
        why = await self._nominations.search.refusal_without(
            tree, DecisionSteps(self._budget), closed, leaving, own, may_evict=self._config.preemption.enabled
        )
        message = self._reporter.say(why) if why is not None else ""
        return ReplacementAnswer(id=asked.id, fits=why is None, message=message)

    def _tree(self, base: GangState, new: dict[Key, PodFacts]) -> Gang:
        """The base gang and the gangs scaled with it as one, with the new pods instead of the old ones.

        What the whole replica requires holds for its scaled gangs too, so they are branches below it.
        """
        gangs = (self._view.units.gang_with(key) for key in new)
        scaled = {gang.name: gang for gang in gangs if gang is not None and gang is not base}
        strategy = self._config.node_policy
        tree = tree_of(self._view, base, strategy, instead=new)
        more = [tree_of(self._view, gang, strategy, instead=new).root for _, gang in sorted(scaled.items())]
        tree = replace(
            tree, root=replace(tree.root, children=(*tree.root.children, *more)), headroom=(), former=frozenset()
        )
        uids = {pod.uid for pod in new.values()}
        for group in list(tree.groups()):
            if count := sum(pod.uid in uids for pod in group.pods):
                tree = tree.with_part(group, minimum=max(group.minimum, len(group.bound) + count))
        return tree


def _successor(pod: Pod, old: PodFacts, pod_spec: object) -> PodFacts:
    """The pod that replaces another, as far as nodes are concerned."""
    spec = msgspec.convert(pod_spec, PodSpec, strict=False)
    spec = msgspec.structs.replace(spec, priority=pod.spec.priority, preemption_policy=pod.spec.preemption_policy)
    metadata = msgspec.structs.replace(pod.metadata, uid=f"{NEW}{pod.metadata.uid}")
    facts = read_pod(msgspec.structs.replace(pod, metadata=metadata, spec=spec))
    return msgspec.structs.replace(facts, gang=old.gang, group=old.group, priority=old.priority)
