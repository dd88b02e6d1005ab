"""Why a gang is pending, with numbers, and the smallest changes that would make it fit, each tried out by `place`.

Findings go from the outside in: gates, the gang against the cluster, the closest domain, the nodes. Changes come from
`changes`; none is named that was not verified on a copy of the snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grove.scheduler.cluster.nodes import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.victims import Running
from grove.scheduler.explain.changes import Change, smallest_changes
from grove.scheduler.explain.reasons import node_counts, scarcest
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.gang import Gang
from grove.scheduler.solve.bounds import bounds_for, running_sums, within_segments
from grove.scheduler.solve.place import place
from grove.scheduler.solve.problem import Part, Problem, state_problem
from grove.scheduler.solve.state import State

TRIAL = Budget(4_000)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the why. `level` is gate, gang, domain or node."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    gang: str
    fits: bool
    reason: str
    message: str
    """One line for a condition or an event: the blocking constraint, with numbers."""
    findings: tuple[Finding, ...]
    changes: tuple[Change, ...]
    closest_domain: str = ""
    closest_nodes: tuple[str, ...] = ()
    """Nodes of the domain that comes closest to holding the gang; what to hold for one that waits long."""
    proven: bool = True
    version: int = 0


def explain(
    snapshot: Snapshot,
    gang: Gang,
    running: Sequence[Running] = (),
    *,
    gates: Sequence[str] = (),
    most: int = 5,
    budget: Budget = TRIAL,
) -> Explanation:
    """Why a gang waits. `gates` are reasons it is not considered yet; whoever is in `running` may be asked to leave."""
    findings = [Finding("gate", text) for text in gates]
    answer = place(snapshot, gang, budget)
    if isinstance(answer, Placement):
        message = findings[0].text if findings else f"fits: {answer.core} pods, score {answer.score:g}"
        return Explanation(
            gang.name, not gates, "Gated" if gates else "Fits", message, tuple(findings), (), answer.domain,
            tuple(sorted({pod.node for pod in answer.pods})), True, snapshot.version,
        )  # fmt: skip
    total = scarcest(snapshot, gang)
    pods = sum(group.need for group in gang.groups())
    findings.append(Finding("gang", f"{pods} pods must be placed together" + (f"; {total}" if total else "")))
    domain, nodes, text = closest_domain(snapshot, gang)
    if text:
        findings.append(Finding("domain", text))
    findings += _node_findings(snapshot, gang)
    message = _message(answer, findings)
    changes = smallest_changes(snapshot, gang, running, most, budget)
    return Explanation(
        gang.name, False, answer.reason, message, tuple(findings), changes, domain, nodes, answer.proven,
        snapshot.version,
    )  # fmt: skip


def _message(answer: NoFit, findings: Sequence[Finding]) -> str:
    if findings and findings[0].level == "gate":
        return findings[0].text
    closest = next((f.text for f in findings if f.level == "domain"), "")
    return f"{answer.message}; {closest}" if closest and answer.message else answer.message or closest


def _node_findings(snapshot: Snapshot, gang: Gang) -> list[Finding]:
    """For each group, how many nodes can take one pod, and what stops the others."""
    total = len(snapshot.nodes.row_of)
    found = []
    for group in gang.groups():
        if group.need and group.pods:
            fits, counts = node_counts(snapshot, gang, group.pods[0])
            why = ", ".join(f"{count.nodes} {count.reason}" for count in counts)
            tail = f": {why}" if why else ""
            found.append(Finding("node", f"{group.name}: {fits}/{total} nodes can take a pod now{tail}"))
    return found


def closest_domain(snapshot: Snapshot, gang: Gang) -> tuple[str, tuple[str, ...], str]:
    """The domain of the gang's outermost requirement that comes closest to holding it: name, nodes and numbers."""
    problem = state_problem(snapshot, gang)
    if isinstance(problem, NoFit) or problem.size == 0:
        return "", (), ""
    part = _outermost(problem.root)
    if part is None:
        return "", (), ""
    bounds = bounds_for(problem, tuple(part.groups))
    segments = problem.segments(part.level)
    if segments.starts.size == 0:
        return "", (), ""
    capacities = State(problem, 1).capacities(bounds, 0, problem.size)
    held = within_segments(running_sums(capacities), segments, 0, segments.starts.size, 0)
    need = np.array([bound.need for bound in bounds], dtype=np.int64)
    share = np.minimum(held / need[:, None], 1.0)
    best = int(np.lexsort((np.arange(share.shape[1]), -share.sum(axis=0), -share.min(axis=0)))[0])
    name = snapshot.domain_name(problem.tree, part.level, int(segments.ids[best]))
    rows = problem.tree.rows_in(part.level, int(segments.ids[best]))
    nodes = tuple(sorted(snapshot.nodes.names(rows)))
    return name, nodes, _domain_text(problem, part, name, held[:, best], need)


def _domain_text(problem: Problem, part: Part, name: str, held: Ints, need: Ints) -> str:
    groups = [g for g in part.groups if problem.groups[g].need > 0]
    rooms = [
        f"{problem.groups[g].name} {min(int(held[i]), problem.groups[g].need)}/{problem.groups[g].need}"
        for i, g in enumerate(groups)
    ]
    key = problem.tree.keys[part.level]
    alone = " each by itself" if len(groups) > 1 else ""
    short = "" if (held < need).any() else ", though not all at once"
    return f"{key} {name} comes closest, with room for {', '.join(rooms)} pods{alone}{short}"


def _outermost(part: Part) -> Part | None:
    if part.level >= 0:
        return part
    found = [inner for child in part.children if child.need and (inner := _outermost(child))]
    return max(found, key=lambda p: p.need) if found else None
