"""Where the live scheduler calls the core: every decision gets an id, is measured, counted and recorded.

Nearly all decisions take a millisecond and run on the event loop. A long one runs again in a thread, on a copy of the
snapshot, so that the event loop keeps its lease, watches and binds. The cluster changes meanwhile, so the caller
checks that the answer still holds. The answer does not depend on where the decision runs.

`SharedClaimPlacer` places gangs whose pods claim devices. It first ignores claims that pods share. Then it tries nodes
that can serve those claims, nodes near the first placement first. A decision tries a few choices, and the next
decisions try the rest. The gang waits for a change of the cluster only when all choices failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import structlog

from grove.api.meta import Key
from grove.scheduler.cluster.node_table import Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.devices.cel import NotUnderstood
from grove.scheduler.devices.device_inventory import SHARED
from grove.scheduler.devices.shared_claims import OpenClaims, SharedClaims, confined_to, on_nodes, tied_claims
from grove.scheduler.evict.preempt import NoVictims, Victims, preempt
from grove.scheduler.evict.running import DisruptionBudget, Running
from grove.scheduler.evict.victims import NO_VACANCIES, Vacancies
from grove.scheduler.loop import metrics
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.answers import Budget, DecisionSteps, NoFit, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import NO_DEVICES, SHARED_HOME, Reason
from grove.scheduler.reserve.keeping_apart import ways_apart
from grove.scheduler.solve.place import place
from grove.scheduler.solve.search_state import TakesLong, limited_steps

if TYPE_CHECKING:
    from grove.scheduler.replay.journal import Journal

IN_PLACE_STEPS = 300
"""A decision of more steps is made in a thread: some 5 to 15 milliseconds of work."""
IN_PLACE_PODS = 2_000
"""Where more pods run victims are chosen in a thread from the start: taking them all out is work of its own."""

T = TypeVar("T")
Aside = Callable[[Callable[[], Any]], Awaitable[Any]]

log = structlog.get_logger(__name__)


class Decider:
    """`aside` runs work beside the event loop; on the simulator's loop that is in place, too."""

    def __init__(
        self,
        snapshot: Snapshot,
        run: str,
        tape: Journal | None = None,
        *,
        in_place_steps: int = IN_PLACE_STEPS,
        aside: Aside | None = None,
    ) -> None:
        self._snapshot, self._run, self._tape = snapshot, run, tape
        self._in_place_steps, self._aside = in_place_steps, aside or self._in_thread
        self._thread = ThreadPoolExecutor(1, "decision")
        self._count = 0
        self.asides = 0
        """How often others got the event loop in the middle of a decision, mostly because it was made aside.
        The cluster may have moved on where this grew."""
        self._aside_s = 0.0

    async def place(
        self, gang: Gang, steps: DecisionSteps, closed: Iterable[str] = (), open_uids: Collection[str] = ()
    ) -> tuple[str, Placement | NoFit]:
        """The decision's id and the core's answer. What the snapshot counts under `open_uids` counts as free."""
        decision, budget = self._next(), steps.next_search()
        shut = tuple(sorted(closed))
        began = time.perf_counter()

        def note(answer: Placement | NoFit) -> None:
            if self._tape is not None:
                self._tape.decided(decision, gang, budget, shut, answer, open_uids)

        def ask(snapshot: Snapshot, budget: Budget) -> Placement | NoFit:
            return place(snapshot.without(open_uids), gang, budget, closed=shut)

        answer = await self.search(gang, steps, ask, note)
        metrics.DECISION_SECONDS.observe(time.perf_counter() - began)
        if isinstance(answer, Placement):
            metrics.ATTEMPTS.labels("placed", "").inc()
        else:
            metrics.ATTEMPTS.labels("refused", answer.reason).inc()
        return decision, answer

    async def search(
        self,
        gang: Gang,
        steps: DecisionSteps,
        ask: Callable[[Snapshot, Budget], Placement | NoFit],
        note: Callable[[Placement | NoFit], None] = lambda _: None,
        *,
        is_long: bool = False,
    ) -> Placement | NoFit:
        """The answer of one search, within the remaining steps of the decision."""
        if steps.are_over:
            return steps.refusal(gang.name, self._snapshot.version)
        budget = steps.next_search()
        answer = await self.work(lambda snapshot: ask(snapshot, budget), note, is_long=is_long)
        steps.take(answer.steps)
        return answer

    async def preempt(
        self,
        gang: Gang,
        running: Sequence[Running],
        budgets: Sequence[DisruptionBudget],
        steps: DecisionSteps,
        closed: Iterable[str] = (),
        vacancies: Vacancies = NO_VACANCIES,
        leaving: Sequence[PodFacts] | None = None,
        open_uids: Collection[str] = (),
    ) -> tuple[str, Victims | NoVictims]:
        """The same for victims. A recording has what sources said would come free."""
        decision = self._next()
        if steps.are_over:
            refused = steps.refusal(gang.name, self._snapshot.version)
            return decision, NoVictims(gang.name, refused.why, False, refused.version)
        budget = steps.next_search()
        shut = tuple(sorted(closed))
        if self._tape is not None and vacancies:
            vacancies = vacancies.recording()

        def note(answer: Victims | NoVictims) -> None:
            if self._tape is not None:
                freed = vacancies.answers()
                self._tape.preempted(decision, gang, running, budgets, budget, shut, answer, freed, leaving, open_uids)

        is_long = sum(len(unit.pods) for unit in running) > IN_PLACE_PODS

        def ask(snapshot: Snapshot) -> Victims | NoVictims:
            free = snapshot.without(open_uids)
            return preempt(free, gang, running, budgets, budget, closed=shut, vacancies=vacancies, leaving=leaving)

        answer = await self.work(ask, note, is_long=is_long)
        steps.take(answer.steps)
        return decision, answer

    async def work(
        self, decide: Callable[[Snapshot], T], note: Callable[[T], None] = lambda _: None, *, is_long: bool = False
    ) -> T:
        """What the core answers on the snapshot as it is now; `note` gets it before any later change."""
        if is_long:
            return await self._decide_aside(decide, note)
        try:
            with limited_steps(self._in_place_steps):
                answer = decide(self._snapshot)
        except TakesLong:
            return await self._decide_aside(decide, note)
        note(answer)
        return answer

    async def _decide_aside(self, decide: Callable[[Snapshot], T], note: Callable[[T], None]) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.asides += 1
        metrics.DECIDED_ASIDE.inc()
        if self._tape is not None:
            self._tape.hold()
        try:
            answer: T = await self._aside(partial(decide, self._snapshot.copy_for_thread()))
            note(answer)
            return answer
        finally:
            self._aside_s += loop.time() - began
            if self._tape is not None:
                self._tape.go_on()

    def take_aside_s(self) -> float:
        """Seconds of waiting for decisions in threads since the last call."""
        aside_s, self._aside_s = self._aside_s, 0.0
        return aside_s

    def _in_thread(self, work: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _next(self) -> str:
        self._count += 1
        return f"{self._run}-{self._count}"


TRIES = 32
"""Choices of nodes for shared claims that one decision tries."""
MOST_TRIES = 1024
"""The most choices that one decision tries before a gang waits for a change."""

MOST_APART = 64
"""Ways of keeping pods apart that are tried when sources cannot give what was counted on."""

NO_HOME = "no node can hold all pods that share a resourceclaim"


class FoundPlacement(msgspec.Struct, frozen=True):
    decision: str
    answer: Placement | NoFit
    has_more: bool = False
    """Whether untried choices of nodes remain."""


class SharedClaimPlacer:
    def __init__(self, view: View, decider: Decider) -> None:
        self._view, self._decider = view, decider

    async def place(
        self,
        unit: str,
        gang: Gang,
        steps: DecisionSteps,
        closed: Collection[str],
        to_bind: Callable[[Placement], Sequence[PodFacts]],
        open_uids: Collection[str] = (),
    ) -> FoundPlacement:
        """`Decider.place`, with what sources give set aside for the pods that will be bound."""
        shut = tuple(closed)
        placement = await self._place(unit, gang, steps, shut, open_uids)
        if (
            isinstance(placement.answer, NoFit)
            or (refused := self._view.counted.take(to_bind(placement.answer))) is None
        ):
            return placement
        why = refused.why
        for attempts in ways_apart(gang, refused, MOST_APART):
            for apart in attempts:
                if steps.are_over:
                    break
                placement = await self._place(unit, apart, steps, shut, open_uids)
                if isinstance(placement.answer, NoFit):
                    continue
                refused = self._view.counted.take(to_bind(placement.answer))
                if refused is None:
                    return placement
                why = refused.why
                attempts.note_refused(refused)
        return FoundPlacement(
            placement.decision, NoFit(gang.name, _no_devices(why), False, version=placement.answer.version)
        )

    async def _place(
        self, unit: str, gang: Gang, steps: DecisionSteps, closed: tuple[str, ...], open_uids: Collection[str]
    ) -> FoundPlacement:
        """With the users of each shared claim on one node that can serve it."""
        gang, shared_claims = shared_claims_of(self._view, gang)
        decision, answer = await self._decider.place(gang, steps, closed, open_uids)
        if isinstance(answer, NoFit) or not shared_claims:
            return FoundPlacement(decision, answer)
        return await self._place_at_homes(unit, gang, steps, shared_claims, answer, decision, closed, open_uids)

    async def _place_at_homes(
        self,
        unit: str,
        gang: Gang,
        steps: DecisionSteps,
        shared_claims: list[SharedClaims],
        loose: Placement,
        decision: str,
        closed: tuple[str, ...],
        open_uids: Collection[str],
    ) -> FoundPlacement:
        sites = self._view.sources.sites(self._view.snapshot, self._near(loose))
        record = self._view.units.of(unit)
        done, began = record.tried_choices or (0, loose.version)
        record.tried_choices = None
        choices = islice(sites.choices(shared_claims), done, MOST_TRIES)
        users = {pod.uid for shared in shared_claims for pod in shared.users}
        partial: FoundPlacement | None = None
        most = 0
        refusals: list[tuple[str, NoFit]] = []
        tried = 0
        while tried < TRIES and not (tried and steps.are_over) and (nodes := next(choices, None)) is not None:
            tried += 1
            decision, answer = await self._decider.place(on_nodes(gang, shared_claims, nodes), steps, closed, open_uids)
            if isinstance(answer, Placement):
                if users.isdisjoint(pod.uid for pod in answer.unplaced):
                    return FoundPlacement(decision, answer)
                if partial is None or len(answer.pods) > most:
                    partial, most = FoundPlacement(decision, answer), len(answer.pods)
                continue
            why = answer.why.with_parts(Reason(SHARED_HOME, shared_claims[0].name, names={"node": nodes[0]}))
            refusals.append((decision, replace(answer, proven=False, why=why)))
        if partial is not None:  # the minimum fits, or there was none to place; a few of the rest stay behind
            return partial
        if not refusals and not done:
            text = devices_lacking(sites.lacking(shared_claims) or shared_claims[0])
            return FoundPlacement(decision, NoFit(gang.name, _no_devices(text), False, version=loose.version))
        has_more = next(choices, None) is not None
        if has_more:
            record.tried_choices = (done + tried, began)
        decision, first = refusals[0] if refusals else (decision, NoFit(gang.name, _no_devices(NO_HOME), False))
        # What came while the choices were tried may have helped one that had failed by then.
        return FoundPlacement(decision, first, has_more or (done > 0 and began != loose.version))

    def _near(self, loose: Placement) -> Mask:
        """Nodes of the domain where the gang would go if it shared nothing."""
        nodes = self._view.snapshot.nodes
        if not loose.domain_key or not loose.pods:
            return np.ones(nodes.rows, dtype=np.bool_)
        ids = nodes.column(loose.domain_key).ids[: nodes.rows]
        near: Mask = ids == ids[nodes.row_of[loose.pods[0].node]]
        return near


def shared_claims_of(view: View, gang: Gang) -> tuple[Gang, list[SharedClaims]]:
    """The gang with pods sent where a claim of theirs is promised, and what is still to find a home."""
    waiting = [pod for group in gang.groups() for pod in group.pods]
    marked = {shape for shape in {pod.shape for pod in waiting} if any(name == SHARED for name, _ in shape.requests)}
    if not marked:
        return gang, []
    sent: dict[str, PodFacts | None] = {}
    users: list[tuple[PodFacts, OpenClaims]] = []
    for facts in (pod for pod in waiting if pod.shape in marked):
        pod = view.pods.get(Key(facts.namespace, facts.name))
        if pod is None:
            continue
        try:
            nodes, claims = view.sources.shared(pod)
        except NotUnderstood:
            continue  # its class changed just now, so the scheduler reads the pod again
        sent[facts.uid] = moved = confined_to(facts, sorted(nodes))
        if claims:
            users.append((moved, claims))
    return gang.with_pods(sent), tied_claims(users)


def devices_lacking(shared: SharedClaims) -> str:
    return f'no node with free capacity has the free devices that the shared resourceclaim "{shared.name}" asks for'


def _no_devices(why: str) -> Reason:
    """A refusal of a claim is the text of the driver that serves the devices."""
    return Reason(NO_DEVICES, names={"why": why})
