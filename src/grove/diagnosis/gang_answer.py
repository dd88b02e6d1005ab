"""What is said of one gang: the reason why it is not running, its evidence, and the next step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grove.api import labels
from grove.api.meta import Key
from grove.api.podgang import PodGang
from grove.diagnosis.advice import Advice, advice_for
from grove.diagnosis.seen import Seen
from grove.diagnosis.states import brief
from grove.scheduler.model.reasons import Reason

if TYPE_CHECKING:  # it brings the solver along, which most questions do not need
    from grove.scheduler.model.answers import Change


MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """`level` is where the cause lies; `advice` are verified changes, any one of which would do.

    `fate` is what the operator will do about a gang that is broken. `command` carries out `next` as it stands; it is
    empty where a person has to decide something first.
    """

    gang: str
    state: str
    level: str
    reason: str
    evidence: tuple[str, ...] = ()
    next: str = ""
    advice: tuple[Advice, ...] = ()
    why: Reason | None = None
    fate: str = ""
    command: str = ""

    @property
    def brief(self) -> str:
        """The reason for a list, with what the operator will do where there is space for it."""
        return brief(self.reason, fate=self.fate)


def because(
    gang: str,
    level: str,
    reason: str,
    evidence: tuple[str, ...] = (),
    next: str = "",
    advice: tuple[Advice, ...] = (),
    why: Reason | None = None,
    command: str = "",
) -> Verdict:
    """A story whose state is decided elsewhere."""
    return Verdict(gang, "", level, reason, evidence, next, advice, why, command=command)


def has_minimum(seen: Seen, gang: PodGang) -> bool:
    """True if every pod group has its minimum of pods on nodes: the scheduler writes its condition a moment later."""
    bound = Counter(
        pod.metadata.labels.get(labels.POD_CLIQUE)
        for pod in seen.pods_of_gang.get(gang.metadata.key, ())
        if pod.is_bound and not pod.metadata.is_deleting
    )
    groups = gang.spec.podgroups
    return bool(bound and groups) and all(bound[group.name] >= group.min_replicas for group in groups)


def advice_to_place(
    seen: Seen, gang: PodGang, changes: Sequence[Change], levels: Sequence[tuple[str, str]]
) -> tuple[Advice, ...]:
    pcs = seen.find_set(Key(gang.metadata.namespace, gang.metadata.labels.get(labels.PART_OF, "")))
    others = {str(other.metadata.key): other for other in seen.others}
    runs = pcs is not None and any(pod.is_bound for pod in seen.of_set(seen.pods, pcs))
    return advice_for(changes, gang, pcs, levels, others, runs=runs)
