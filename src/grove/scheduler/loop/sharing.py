"""Places gangs whose pods claim devices, and sets those aside; for shared claims homes are tried until the gang fits.

The gang is placed without regard to its shared claims first: if that is impossible there is no need to look for homes,
and if it is possible, homes near that place are the first to be tried. A decision tries a few; what is left of the
choices is tried in the next ones, and only when all of them failed does the gang wait for a change of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from grove.api.meta import Key
from grove.scheduler.cluster.nodes import Mask
from grove.scheduler.devices.cel import NotUnderstood
from grove.scheduler.devices.devices import SHARED
from grove.scheduler.devices.homes import Lot, Open, at_homes, bound_to, lots
from grove.scheduler.loop.decisions import Decider
from grove.scheduler.loop.view import View
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import NO_DEVICES, SHARED_HOME, Reason

TRIES = 32
"""Choices of homes that one decision tries."""
MOST_TRIES = 1024
"""Choices that are tried at all before a gang waits for a change."""

MOST_BARRED = 16
"""Nodes that are tried without, one after the other, when their devices turn out not to be enough."""

NO_HOME = "no node can hold all pods that share a resourceclaim"


@dataclass(frozen=True, slots=True)
class Found:
    decision: str
    answer: Placement | NoFit
    has_more: bool = False
    """Whether there are homes that were not tried."""


class Sharing:
    def __init__(self, view: View, decider: Decider, budget: Budget) -> None:
        self._view, self._decider, self._budget = view, decider, budget
        self._tried: dict[str, tuple[int, int]] = {}
        """By unit: how many choices of homes failed so far, and the version of the snapshot when the first did."""

    async def place(
        self, unit: str, gang: Gang, closed: Collection[str], to_bind: Callable[[Placement], Sequence[PodFacts]]
    ) -> Found:
        """`Decider.place`, with devices set aside for the pods that will be bound.

        Where counting devices was too hopeful (claims of several kinds met on one node) it is tried without that node.
        """
        barred: dict[str, str] = {}
        while True:
            found = await self._place(unit, gang, (*closed, *barred))
            if isinstance(found.answer, Placement):
                refusal = self._view.take(to_bind(found.answer))
                if refusal is None:
                    return found
                barred[refusal.node] = refusal.why
            if barred and (isinstance(found.answer, NoFit) or len(barred) > MOST_BARRED):
                why = next(iter(barred.values()))
                return Found(found.decision, NoFit(gang.name, _no_devices(why), False, version=found.answer.version))
            if isinstance(found.answer, NoFit):
                return found

    async def _place(self, unit: str, gang: Gang, closed: tuple[str, ...]) -> Found:
        """With the users of each shared claim on one node that can serve it."""
        gang, found = shared_lots(self._view, gang)
        decision, answer = await self._decider.place(gang, self._budget, closed)
        if isinstance(answer, NoFit) or not found:
            return Found(decision, answer)
        return await self._at_home(unit, gang, found, answer, decision, closed)

    def forget(self, unit: str) -> None:
        self._tried.pop(unit, None)

    async def _at_home(
        self, unit: str, gang: Gang, found: list[Lot], loose: Placement, decision: str, closed: tuple[str, ...]
    ) -> Found:
        sites = self._view.claims.sites(self._view.snapshot, self._near(loose))
        done, began = self._tried.pop(unit, (0, loose.version))
        choices = islice(sites.homes(found), done, MOST_TRIES)
        users = {pod.uid for lot in found for pod in lot.users}
        partial: Found | None = None
        most = 0
        refusals: list[tuple[str, NoFit]] = []
        for homes in islice(choices, TRIES):
            decision, answer = await self._decider.place(at_homes(gang, found, homes), self._budget, closed)
            if isinstance(answer, Placement):
                if users.isdisjoint(pod.uid for pod in answer.unplaced):
                    return Found(decision, answer)
                if partial is None or len(answer.pods) > most:
                    partial, most = Found(decision, answer), len(answer.pods)
                continue
            why = answer.why.with_parts(Reason(SHARED_HOME, found[0].name, names={"node": homes[0]}))
            refusals.append((decision, replace(answer, proven=False, why=why)))
        if partial is not None:  # the minimum fits, or there was none to place; a few of the rest stay behind
            return partial
        if not refusals and not done:
            text = lack(sites.lacking(found) or found[0])
            return Found(decision, NoFit(gang.name, _no_devices(text), False, version=loose.version))
        has_more = next(choices, None) is not None
        if has_more:
            self._tried[unit] = (done + TRIES, began)
        decision, first = refusals[0] if refusals else (decision, NoFit(gang.name, _no_devices(NO_HOME), False))
        # What came while the choices were tried may have helped one that had failed by then.
        return Found(decision, first, has_more or (done > 0 and began != loose.version))

    def _near(self, loose: Placement) -> Mask:
        """Nodes of the domain where the gang would go if it shared nothing."""
        nodes = self._view.snapshot.nodes
        if not loose.domain_key or not loose.pods:
            return np.ones(nodes.rows, dtype=np.bool_)
        ids = nodes.column(loose.domain_key).ids[: nodes.rows]
        near: Mask = ids == ids[nodes.row_of[loose.pods[0].node]]
        return near


def shared_lots(view: View, gang: Gang) -> tuple[Gang, list[Lot]]:
    """The gang with pods sent where a claim of theirs is promised, and what is still to find a home."""
    waiting = [pod for group in gang.groups() for pod in group.pods]
    marked = {shape for shape in {pod.shape for pod in waiting} if any(name == SHARED for name, _ in shape.requests)}
    if not marked:
        return gang, []
    sent: dict[str, PodFacts | None] = {}
    users: list[tuple[PodFacts, Open]] = []
    for facts in (pod for pod in waiting if pod.shape in marked):
        pod = view.pods.get(Key(facts.namespace, facts.name))
        if pod is None:
            continue
        try:
            homes, claims = view.claims.shared(pod)
        except NotUnderstood:
            continue  # its class changed just now; the pod is read again for that
        sent[facts.uid] = moved = bound_to(facts, sorted(homes))
        if claims:
            users.append((moved, claims))
    return gang.with_pods(sent), lots(users)


def at_best_homes(view: View, gang: Gang) -> Gang:
    """The gang as it would be tried first, for explanations."""
    gang, found = shared_lots(view, gang)
    if not found:
        return gang
    sites = view.claims.sites(view.snapshot, np.ones(view.snapshot.nodes.rows, dtype=np.bool_))
    homes = next(sites.homes(found), None)
    if homes is not None:
        return at_homes(gang, found, homes)
    lot = sites.lacking(found) or found[0]
    return gang.with_pods({pod.uid: replace(pod, shape=replace(pod.shape, blocked=lack(lot))) for pod in lot.users})


def lack(lot: Lot) -> str:
    return f'no node with room has the free devices that the shared resourceclaim "{lot.name}" asks for'


def _no_devices(why: str) -> Reason:
    """Refusals of claims are the words of whoever serves the devices."""
    return Reason(NO_DEVICES, names={"why": why})
