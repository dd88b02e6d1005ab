"""Why a gang is pending, with numbers, and the smallest changes that would make it fit, each tried out by `place`.

Findings go from the outside in: gates, the gang against the cluster, the closest domain, the nodes. Changes come from
`changes`; none is named that was not verified on a copy of the snapshot. `Diagnosis` and `InLine` are what `explain`
and `queue` are answered with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from grove.scheduler.cluster.nodes import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.victims import Running
from grove.scheduler.explain.changes import smallest_changes
from grove.scheduler.explain.reasons import nodes_for_groups, scarcest, scores_of
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.changes import Change
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import CLOSEST, FITS, GROUP_ROOM, TOGETHER, Reason
from grove.scheduler.solve.bounds import bounds_for, running_sums, within_segments
from grove.scheduler.solve.place import place
from grove.scheduler.solve.problem import Part, Problem, state_problem
from grove.scheduler.solve.state import State

TRIAL = Budget(4_000)


@dataclass(frozen=True, slots=True)
class Explanation:
    """`why` is the blocking constraint, for one line; `findings` go from the outside in: gang, domain, nodes."""

    gang: str
    fits: bool
    why: Reason
    findings: tuple[Reason, ...]
    changes: tuple[Change, ...]
    proven: bool = True
    version: int = 0

    @property
    def reason(self) -> str:
        return self.why.kind


def explain(
    snapshot: Snapshot,
    gang: Gang,
    running: Sequence[Running] = (),
    *,
    gate: Reason | None = None,
    most: int = 5,
) -> Explanation:
    """Why a gang waits. `gate` is why it is not considered yet; whoever is in `running` may be asked to leave."""
    answer = place(snapshot, gang, TRIAL)
    if isinstance(answer, Placement):
        why = gate or Reason(FITS, numbers={"pods": answer.core, "score": answer.score})
        liked = tuple(scores_of(snapshot, answer))
        return Explanation(gang.name, gate is None, why, liked, (), True, snapshot.version)
    total = scarcest(snapshot, gang)
    pods = sum(group.need for group in gang.groups())
    findings = [Reason(TOGETHER, gang.name, {"pods": pods}, parts=(total,) if total else ())]
    closest = closest_domain(snapshot, gang)
    if closest is not None:
        findings.append(closest)
    findings += nodes_for_groups(snapshot, gang)
    findings += snapshot.seams.outlooks(snapshot, gang)
    why = gate or answer.why.with_parts(*([closest] if closest else ()))
    changes = smallest_changes(snapshot, gang, running, most, TRIAL)
    return Explanation(gang.name, False, why, tuple(findings), changes, answer.proven, snapshot.version)


def closest_domain(snapshot: Snapshot, gang: Gang) -> Reason | None:
    """The domain of the gang's outermost requirement that comes closest to holding it, with numbers."""
    problem = state_problem(snapshot, gang)
    if isinstance(problem, NoFit) or problem.size == 0:
        return None
    part = _outermost(problem.root)
    if part is None:
        return None
    bounds = bounds_for(problem, tuple(part.groups))
    segments = problem.segments(part.level)
    if segments.starts.size == 0:
        return None
    capacities = State(problem, 1).capacities(bounds, 0, problem.size)
    held = within_segments(running_sums(capacities), segments, 0, segments.starts.size, 0)
    need = np.array([bound.need for bound in bounds], dtype=np.int64)
    share = np.minimum(held / need[:, None], 1.0)
    best = int(np.lexsort((np.arange(share.shape[1]), -share.sum(axis=0), -share.min(axis=0)))[0])
    name = snapshot.domain_name(problem.tree, part.level, int(segments.ids[best]))
    return _closest(problem, part, name, held[:, best], need)


def _closest(problem: Problem, part: Part, name: str, held: Ints, need: Ints) -> Reason:
    """`each` is 1 when every group has room by itself, though not all at once."""
    rooms = []
    for i, group in enumerate(problem.groups[g] for g in part.groups if problem.groups[g].need > 0):
        numbers = {"room": min(int(held[i]), group.need), "pods": group.need}
        rooms.append(Reason(GROUP_ROOM, group.name, numbers))
    each = {} if (held < need).any() else {"each": 1}
    return Reason(CLOSEST, name, each, {"level": problem.tree.keys[part.level]}, tuple(rooms))


def _outermost(part: Part) -> Part | None:
    if part.level >= 0:
        return part
    found = [inner for child in part.children if child.need and (inner := _outermost(child))]
    return max(found, key=lambda p: p.need) if found else None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`placed` gangs have their minimum on nodes; the others wait for their `gate` or for room, as explained."""

    gang: str
    placed: bool
    gate: Reason | None = None
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class InLine:
    """A gang that waits. `can_start` is False while something else has to happen before it is considered at all.

    `why` is known before it is considered; what the scheduler found when it tried is on the gang's condition, `said`.
    """

    namespace: str
    name: str
    priority: int
    pods: int
    created: datetime | None
    can_start: bool
    why: Reason | None
    said: str = ""
