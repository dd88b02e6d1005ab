"""What would happen if: a change is made to a copy of the cluster, and the real operator and scheduler answer.

`plan` never writes to the cluster it copied. What it promises is what the same code does to the same objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from grove.api import conditions, labels
from grove.api.core import Pod, PodDisruptionBudget
from grove.api.meta import Key, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.words import many
from grove.diagnosis.advice import Advice, advice_for
from grove.diagnosis.held_capacity import headroom_lines
from grove.diagnosis.reasons import sentence
from grove.diagnosis.refused import why_refused
from grove.diagnosis.seen import Seen
from grove.diagnosis.spreads import SpreadCount, spread_counts
from grove.diagnosis.standing import cliques_of
from grove.diagnosis.words import counted
from grove.plan.displaced import Displaced, bystanders, displaced, kept_words
from grove.plan.world import World
from grove.scheduler.explain.explanation import Explanation
from grove.scheduler.loop.diagnosis import LiveDiagnosis
from grove.scheduler.loop.state.gang_trees import tree_of
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.gang import BadGang
from grove.scheduler.model.reasons import named
from grove.scheduler.solve.place import place

DECIDED_S = 120.0
"""Virtual time in which the scheduler has said what it has to say about every gang."""
MOST_MORE = 32
"""Further copies that are tried out; more than that is "at least as many"."""
POD_SCHEDULED = "PodScheduled"
UNDECIDED = "it would fit, but the scheduler did not take it up while the plan was played"
FITS, WAITS, NO_FIT = "fits", "waits", "cannot fit"


@dataclass(frozen=True, slots=True)
class Placed:
    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class GangPlan:
    """One gang of the plan. `helps` are verified changes, any one of which would make it fit.

    One that fits may have pods above its minimum that do not; `why` says so.
    """

    name: str
    namespace: str
    answer: str
    pods: tuple[Placed, ...] = ()
    unplaced: int = 0
    where: str = ""
    score: float | None = None
    why: str = ""
    helps: tuple[str, ...] = ()
    moved: int = 0
    """Its pods that stood elsewhere before, or not at all."""
    commands: tuple[str, ...] = ()
    """For each of `helps` the command that makes the change after the plan is carried out; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`preempted` are gangs and pods that would have to leave; `more` is how many further copies would fit then.

    `others` are pods without a gang that a drained node sends away.
    """

    gangs: tuple[GangPlan, ...]
    preempted: tuple[str, ...] = ()
    more: int | None = None
    unreadable: tuple[str, ...] = ()
    others: tuple[Displaced, ...] = ()
    note: str = ""
    """What is not as it would be on the cluster itself."""
    missing: tuple[str, ...] = ()
    """Objects that pods cannot start without and that are not there or not right, each with what to do."""
    warnings: tuple[str, ...] = ()
    """What admission warns of, each with the name of its set."""
    spreads: tuple[SpreadCount, ...] = ()
    """How evenly the units of the concerned sets would be distributed."""
    headroom: tuple[str, ...] = ()
    """How much of the headroom that the concerned sets ask for would be held."""

    @property
    def fits(self) -> bool:
        return all(gang.answer == FITS for gang in self.gangs)


async def planned(
    world: World,
    change: Callable[[World], Awaitable[None]],
    sets: Sequence[Key],
    *,
    count_more: bool = True,
    drained: Collection[str] = (),
    controllers: Mapping[str, str] | None = None,
) -> Plan:
    """Makes the change in a world that runs, waits for the answers, and reads them off.

    `drained` are nodes the change empties; where their other pods fit is part of the plan then.
    """
    await asyncio.sleep(_patience_so_far_s(world))
    before = {pod.metadata.uid: pod for pod in world.all(Pod) if pod.is_bound and not pod.metadata.is_deleting}
    concerned, lived = set(sets), {pcs.metadata.key for pcs in world.all(PodCliqueSet)}
    strangers = bystanders(world, drained, concerned) if drained else []
    await change(world)
    await world.until(lambda: bool(_gangs(world, concerned)), DECIDED_S)
    stand: set[str] = set()
    await world.until(lambda: all(_is_answered(world, gang, stand) for gang in _gangs(world, concerned)), DECIDED_S)
    await _update_played(world, concerned)
    await asyncio.sleep(2.0)  # pods above a minimum follow their gang
    seen = world.seen()
    here = {pod.metadata.uid for pod in seen.pods if not pod.metadata.is_deleting}
    seen = replace(seen, pods=[pod for pod in seen.pods if _set_of(pod) in concerned])
    answers = LiveDiagnosis(world.scheduler.view, world.scheduler.config.node_policy, world.scheduler.config)
    gangs = tuple(
        _gang_plan(world, seen, answers, gang, before.keys(), lived, frozenset(drained))
        for gang in sorted(
            _gangs(world, concerned), key=lambda gang: (gang.metadata.namespace, counted(gang.metadata.name))
        )
    )
    gone = [pod for uid, pod in before.items() if uid not in here]
    sent = {pod.metadata.uid for pod in strangers}
    evicted = [pod for pod in gone if _set_of(pod) not in concerned and pod.metadata.uid not in sent]
    preempted = sorted({_owner(pod) for pod in evicted})
    more = _further(world, gangs) if count_more and gangs and all(gang.answer == FITS for gang in gangs) else None
    others = displaced(world, strangers, controllers or {})
    mine = _gangs(world, concerned)
    spreads, headroom = spread_counts(seen, mine), headroom_lines(mine)
    return Plan(gangs, tuple(preempted), more, others=others, spreads=spreads, headroom=headroom)


async def _update_played(world: World, sets: set[Key]) -> None:
    """Waits for updates of the sets to end, as long as they go on.

    The gangs of a set that runs have an answer already when its template changes. In the middle of the update a pod
    that was just replaced has no node yet: that is no lack of capacity.
    """

    def updated() -> list[int]:
        return [clique.status.updated_replicas for clique in world.all(PodClique) if _set_of(clique) in sets]

    def is_over() -> bool:
        mine = [pcs for pcs in world.all(PodCliqueSet) if pcs.metadata.key in sets]
        return all(
            pcs.status.observed_generation == pcs.metadata.generation
            and (pcs.status.update_progress is None or pcs.status.update_progress.update_ended_at is not None)
            for pcs in mine
        )

    def goes_on(before: list[int]) -> bool:
        return is_over() or updated() != before

    while not is_over():
        if not await world.until(partial(goes_on, updated()), DECIDED_S):
            return  # stuck, paused, or not ours to end; the answer says what waits


def _patience_so_far_s(world: World) -> float:
    """How long the longest waiting gang has been waiting, as far as that matters.

    A gang that has waited for a while has its best domain held for it. The copy's scheduler has just begun; it is given
    that while, so that it holds what the cluster's own scheduler holds.
    """
    now = world.cluster.clock.now()
    since = [
        condition.last_transition_time
        for gang in world.all(PodGang)
        if (condition := find_condition(gang.status.conditions, conditions.SCHEDULED)) is not None
        and condition.status == conditions.FALSE
        and condition.last_transition_time is not None
    ]
    waited_s = max(((now - moment).total_seconds() for moment in since), default=0.0)
    return min(max(0.0, waited_s), world.scheduler.config.hold_after + 1.0)


def _gangs(world: World, sets: set[Key]) -> list[PodGang]:
    return [gang for gang in world.all(PodGang) if _set_of(gang) in sets and not gang.metadata.is_deleting]


def _set_of(obj: PodGang | PodClique | Pod) -> Key:
    return Key(obj.metadata.namespace, obj.metadata.labels.get(labels.PART_OF, ""))


def _owner(pod: Pod) -> str:
    gang = pod.metadata.labels.get(labels.POD_GANG)
    return f"{pod.metadata.namespace}/{gang}" if gang else f"{pod.metadata.namespace}/{pod.metadata.name}"


def _is_answered(world: World, gang: PodGang, stand: set[str]) -> bool:
    """True if the scheduler has refused a gang or placed all its pods. `stand` collects the uids of placed gangs."""
    if gang.metadata.uid in stand:
        return True
    condition = find_condition(gang.status.conditions, conditions.SCHEDULED)
    if condition is None or condition.status != conditions.TRUE:
        return condition is not None
    if all(pod.is_bound for pod in world.pods_of(gang.metadata.name)):
        stand.add(gang.metadata.uid)  # asked at every write: hundreds of gangs that stand are not looked up again
    return gang.metadata.uid in stand


def _gang_plan(
    world: World,
    seen: Seen,
    answers: LiveDiagnosis,
    gang: PodGang,
    before: Container[str],
    lived: Container[Key],
    drained: frozenset[str],
) -> GangPlan:
    key = gang.metadata.key
    pods = [pod for pod in seen.pods_of_gang.get(key, ()) if not pod.metadata.is_deleting]
    bound = tuple(Placed(pod.metadata.name, pod.spec.node_name) for pod in pods if pod.is_bound)
    moved = sum(pod.metadata.uid not in before for pod in pods)
    plan = GangPlan(key.name, key.namespace, WAITS, bound, len(pods) - len(bound), moved=moved)
    condition = find_condition(gang.status.conditions, conditions.SCHEDULED)
    if condition is not None and condition.status == conditions.TRUE:
        return _with_place(plan, world, seen, gang, pods, drained)
    if (missing := _not_created(seen, gang)) is not None:
        return replace(plan, why=missing)
    scheduler = gang.metadata.labels.get(labels.SCHEDULER_NAME) or labels.GROVE_SCHEDULER
    if scheduler != labels.GROVE_SCHEDULER:
        return replace(plan, why=f"{scheduler} decides about it, and is not played here")
    state = world.scheduler.view.units.gangs.get(str(key))
    diagnosis = answers.diagnose(state) if state is not None else None
    if diagnosis is not None and diagnosis.gate:
        return replace(plan, why=sentence(diagnosis.gate))
    if diagnosis is None or diagnosis.explanation is None or diagnosis.explanation.fits:
        return replace(plan, why=(condition.message if condition else "") or UNDECIDED)
    return _with_refusal(plan, seen, gang, diagnosis.explanation, lived, drained)


def _with_place(
    plan: GangPlan, world: World, seen: Seen, gang: PodGang, pods: Sequence[Pod], drained: frozenset[str]
) -> GangPlan:
    """The plan of a gang that has its place: the smallest domain that holds all of it, and which pods still wait."""
    levels = seen.levels(gang.metadata.annotations.get(labels.TOPOLOGY_NAME, ""))
    paths = [seen.path(placed.node, levels) for placed in plan.pods]
    where = ""
    for depth in range(len(levels)):
        values = {path[depth] for path in paths}
        where = values.pop() if len(values) == 1 else where
    unbound = [pod for pod in pods if not pod.is_bound]
    answer, why = FITS, _above_minimum(unbound) if unbound else ""
    if kept := [pod for pod in pods if pod.spec.node_name in drained]:
        answer, why = WAITS, kept_words(kept, world.all(PodDisruptionBudget))
    return replace(plan, answer=answer, where=where, score=gang.status.placement_score, why=why)


def _with_refusal(
    plan: GangPlan,
    seen: Seen,
    gang: PodGang,
    explanation: Explanation,
    lived: Container[Key],
    drained: frozenset[str],
) -> GangPlan:
    """The plan of a gang that does not fit: why, and what would help. Drained nodes cannot help."""
    levels = seen.levels(gang.metadata.annotations.get(labels.TOPOLOGY_NAME, ""))
    pcs = seen.find_set(Key(plan.namespace, gang.metadata.labels.get(labels.PART_OF, "")))
    changes = [change for change in explanation.changes if not drained.intersection(change.nodes)]
    others = {str(other.metadata.key): other for other in seen.others}
    lives = pcs is not None and pcs.metadata.key in lived
    runs = pcs is not None and any(pod.is_bound for pod in seen.of_set(seen.pods, pcs))
    advice = advice_for(changes, gang, pcs, levels, others, runs=runs)
    return replace(
        plan,
        answer=NO_FIT,
        why=sentence(named(explanation.why, {key: name for name, key in levels})),
        helps=tuple(_helps(step, lives=lives) for step in advice),
        commands=tuple(step.command if lives or not step.path else "" for step in advice),
    )


def _not_created(seen: Seen, gang: PodGang) -> str | None:
    """Why the API server refuses pods of the gang, and what to do; None if all its pods exist."""
    refused = [
        (clique, error.description)
        for clique in cliques_of(seen, gang)
        for error in clique.status.last_errors
        if clique.status.replicas < clique.spec.replicas
    ]
    if not refused:
        return None
    _, reason, step, _ = why_refused(refused)
    return f"{reason}; {step}"


def _above_minimum(rest: Sequence[Pod]) -> str:
    """Why pods of a gang that is placed find no node: what the scheduler wrote on them."""
    scheduled = [find_condition(pod.status.conditions, POD_SCHEDULED) for pod in rest]
    reason = next((condition.message for condition in scheduled if condition is not None and condition.message), "")
    return f"{many(len(rest), 'pod')} above its minimum {'has' if len(rest) == 1 else 'have'} no place" + (
        f": {reason}" if reason else ""
    )


def _helps(advice: Advice, *, lives: bool) -> str:
    """One line; of a set that does not live yet what needs a new set needs another manifest, no more."""
    text = advice.sentence if lives else advice.text
    return f"{text} ({advice.path})" if advice.path else text


def _further(world: World, gangs: Sequence[GangPlan]) -> int:
    """How many more copies of the base gang the cluster holds, each placed whole after the ones before it."""
    base = min(gangs, key=lambda gang: (len(gang.name), gang.name))
    view = world.scheduler.view
    state = view.units.gangs.get(f"{base.namespace}/{base.name}")
    if state is None:
        return 0
    try:
        tree = tree_of(view, state, world.scheduler.config.node_policy)
    except BadGang:
        return 0
    mine = [view.reader.facts(pod) for pod, _ in view.members(state)]
    grouped = [
        msgspec.structs.replace(pod, group=group) for pod, (_, group) in zip(mine, view.members(state), strict=True)
    ]
    snapshot = view.snapshot.copy()
    for number in range(MOST_MORE):
        twins = [msgspec.structs.replace(pod, uid=f"{pod.uid}+{number}") for pod in grouped]
        answer = place(snapshot, tree.unbound(twins))
        if not isinstance(answer, Placement) or answer.unplaced:
            return number
        snapshot.assume(answer)
    return MOST_MORE
