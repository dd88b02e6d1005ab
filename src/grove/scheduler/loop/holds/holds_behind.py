"""Ends what is held for units behind a unit, where the unit takes it. The scheduler then places the owners again."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from grove.scheduler.loop.deciding.answer_checks import AnswerCheck
from grove.scheduler.loop.holds.headrooms import Headrooms
from grove.scheduler.loop.holds.nominations import Nominations
from grove.scheduler.loop.holds.replacements import Replacements
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.policy.hold_ledger import ClosedCapacity, HoldReason


class HoldsBehind:
    def __init__(
        self,
        view: View,
        check: AnswerCheck,
        nominations: Nominations,
        replacements: Replacements,
        headrooms: Headrooms,
    ) -> None:
        self._view, self._check = view, check
        self._nominations, self._replacements, self._headrooms = nominations, replacements, headrooms

    def take(self, closed: ClosedCapacity, pods: Sequence[PodFacts], going: Collection[str] = ()) -> None:
        """Ends holds of units behind, the last in order first, until these pods fit.

        `going` are uids of pods that leave before the unit is bound.
        """
        nodes, free = frozenset(pod.node for pod in pods), closed.own.union(going)
        for hold in closed.behind:
            if self._check.have_capacity(pods, free):
                return
            if nodes.isdisjoint(pod.node for pod in hold.pods):
                continue
            if hold.reason is HoldReason.REPLACEMENT:
                self._replacements.give_up(hold, nodes)
            elif hold.reason is HoldReason.HEADROOM:
                self._headrooms.give_up((hold,))
            else:
                self._nominations.drop(hold.owner)
                self._view.changes.mark(hold.owner, fresh=True)  # it needs a new place
                kept = self._view.ledger.find(hold.owner, HoldReason.REPLACEMENT)
                if kept is not None and not self._check.have_capacity(pods, free):
                    self._replacements.give_up(kept, nodes)  # the nodes of pods that it replaces were held again
