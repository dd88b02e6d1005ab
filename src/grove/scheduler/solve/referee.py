"""A second opinion where the search ended without an answer: CP-SAT, in a process of its own, as an optional extra.

A few gangs of mixed sizes that would fill a cluster to the last GPU take the exact search more steps than it has. A
constraint solver decides most of them in a fraction of a second. It runs only then, within a fixed amount of its own
deterministic work, so the same question has the same answer. `pip install "grove-k8s[exact]"` installs it. Without it
such a gang gets the reason that the search did not end.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask
from grove.scheduler.filters.fit import pod_slots
from grove.scheduler.model.gang import UnitSpread
from grove.scheduler.solve.problem import Problem
from grove.scheduler.solve.spread_domains import kept_in, spread_domains

WORK_S = 2.0
"""CP-SAT's deterministic time for one question: about this number of seconds."""
PATIENCE_S = 20.0
"""How long the process is waited for, its first start included."""

Found = list[tuple[int, int, int]]
"""(option, candidate row, pods)."""


@dataclass(frozen=True, slots=True)
class SpreadQuestion:
    """Units over domains. For pods `units` has one entry for each group, and every pod of it counts."""

    units: list[tuple[list[int], list[int]]]
    """(groups, domains it may go to) of every unit."""
    fresh: list[bool]
    """Whether the unit adds to the count of its domain."""
    domains: Ints
    """By row, -1 for none."""
    counts: dict[int, int]
    """By domain that counts."""
    skew: int
    are_pods: bool
    inside: tuple[int, int] | None = None
    """(number of a part, its domain): the numbers are for the case that this part is in this domain."""


@dataclass(frozen=True, slots=True)
class Question:
    """A problem as plain numbers, to be sent to the process."""

    free: Ints
    """Resource by row."""
    needs: list[int]
    """By group."""
    options: list[tuple[int, int, Ints, Ints]]
    """(group, class, request, most pods of it on each row)."""
    classes: list[list[int]]
    """Pods by group and class."""
    conflicts: list[list[int]]
    parts: list[tuple[list[int], Ints, list[int]]]
    """(groups, domain of each row or -1, domains it may go to) of every part that requires a level."""
    spreads: list[SpreadQuestion]


@dataclass(frozen=True, slots=True)
class Opinion:
    """`found` is a placement; none at all, and `proven`, means that there is none."""

    found: Found | None = None
    proven: bool = False


class Referee:
    """Asks a process that is started when the first question comes."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def ask(self, problem: Problem) -> Opinion:
        """Waits for the answer: not for the event loop's own thread."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        try:
            return self._pool.submit(opinion, question_of(problem)).result(PATIENCE_S)
        except (BrokenExecutor, TimeoutError):
            self.close()
            return Opinion()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def find_referee() -> Referee | None:
    """A referee where the solver is installed."""
    return Referee() if importlib.util.find_spec("ortools") is not None else None


def question_of(problem: Problem) -> Question:
    options = []
    for o in problem.options:
        most = np.minimum(pod_slots(problem.free, o.request), o.limit)
        if o.mask is not None:
            most = most * o.mask
        options.append((o.group, o.kind, o.request, np.minimum(most, problem.groups[o.group].need)))
    parts: list[tuple[list[int], Ints, list[int]]] = []
    for part in (part for part in problem.root.walk() if part.required_level >= 0 and part.need > 0):
        domains = problem.tree.domains[part.required_level][problem.positions]
        allowed = np.unique(domains[domains >= 0]).tolist()
        if part.pinned_domains is not None:
            allowed = [domain for domain in allowed if domain in part.pinned_domains]
        parts.append((list(part.groups), domains, allowed))
    required = [spread for spread in problem.gang.spreads if spread.is_required]
    parts += [unit for spread in required if spread.unit_label for unit in _units_as_parts(problem, spread)]
    return Question(
        problem.free,
        [group.need for group in problem.groups],
        options,
        [[len(pods) for pods in group.classes] for group in problem.groups],
        problem.conflicts,
        parts,
        [question for spread in required for question in _spread_questions(problem, spread, parts)],
    )


def _units_as_parts(problem: Problem, spread: UnitSpread) -> Iterator[tuple[list[int], Ints, list[int]]]:
    """A unit is in one domain, as a part that requires the level is."""
    question = _spread_question(problem, spread, None)
    for groups, allowed in question.units:
        if any(problem.groups[g].need for g in groups):
            yield groups, question.domains, allowed


def _spread_questions(
    problem: Problem, spread: UnitSpread, parts: Sequence[tuple[list[int], Ints, list[int]]]
) -> Iterator[SpreadQuestion]:
    """One question, or one for each domain that the part around all units may go to."""
    required = tuple(spread for spread in problem.gang.spreads if spread.is_required)
    kept = kept_in(replace(problem.gang, spreads=required), spread, problem.tree)
    level = problem.tree.find_level(kept[0]) if kept is not None else None
    if kept is None or level is None:
        yield _spread_question(problem, spread, None)
        return
    at = {group.name: g for g, group in enumerate(problem.groups)}
    groups, domains = {at[name] for name in kept[1]}, problem.tree.domains[level]
    for number, (mine, of_rows, allowed) in enumerate(parts):
        if groups <= set(mine) and np.array_equal(of_rows, domains[problem.positions]):
            for domain in allowed:
                inside = np.zeros(problem.snapshot.nodes.rows, dtype=np.bool_)
                inside[problem.tree.order[domains == domain]] = True
                yield replace(_spread_question(problem, spread, inside), inside=(number, domain))
            return


def _spread_question(problem: Problem, spread: UnitSpread, inside: Mask | None) -> SpreadQuestion:
    where = spread_domains(problem.snapshot, problem.gang, spread, problem.tree, inside)
    at = {group.name: g for g, group in enumerate(problem.groups)}
    homes = [where.homes.get(unit) if spread.unit_label else None for unit, _ in spread.units]
    return SpreadQuestion(
        [
            ([at[name] for name in names], list(home or where.ids))
            for (_, names), home in zip(spread.units, homes, strict=True)
        ],
        [home is None for home in homes],
        problem.tree.domains[where.level][problem.positions],
        dict(zip(where.ids, where.counts, strict=True)),
        spread.max_skew,
        not spread.unit_label,
    )


def opinion(asked: Question) -> Opinion:
    """The answer of CP-SAT, in one thread and within a fixed amount of work."""
    from ortools.sat.python import cp_model  # noqa: PLC0415 (the package is optional)

    model = cp_model.CpModel()
    on: list[dict[int, Any]] = []
    for _, _, _, most in asked.options:
        on.append({int(row): model.new_int_var(0, int(most[row]), "") for row in np.flatnonzero(most > 0)})
    for g, need in enumerate(asked.needs):
        mine = [o for o, (group, *_) in enumerate(asked.options) if group == g]
        if need == 0:
            for count in (count for o in mine for count in on[o].values()):
                model.add(count == 0)
            continue
        model.add(sum(count for o in mine for count in on[o].values()) == need)
        for kind, pods in enumerate(asked.classes[g]):
            alike = [count for o in mine if asked.options[o][1] == kind for count in on[o].values()]
            model.add(sum(alike) <= pods)
    for row in range(asked.free.shape[1]):
        here = [(asked.options[o][2], counts[row]) for o, counts in enumerate(on) if row in counts]
        for r in range(asked.free.shape[0]):
            terms = [int(request[r]) * count for request, count in here if request[r] > 0]
            if terms:
                model.add(sum(terms) <= max(0, int(asked.free[r, row])))
    for o, others in enumerate(asked.conflicts):
        for other in (other for other in others if other > o):
            for row in on[o].keys() & on[other].keys():
                either = model.new_bool_var("")
                model.add(on[o][row] == 0).only_enforce_if(either)
                model.add(on[other][row] == 0).only_enforce_if(~either)
    chosen_by_part: list[dict[int, Any]] = []
    for groups, domains, allowed in asked.parts:
        chosen = {domain: model.new_bool_var("") for domain in allowed}
        chosen_by_part.append(chosen)
        model.add_exactly_one(chosen.values())
        for o, (group, *_, most) in enumerate(asked.options):
            for row, count in on[o].items() if group in groups else ():
                inside = chosen.get(int(domains[row]))
                model.add(count <= (0 if inside is None else int(most[row]) * inside))
    for spread in asked.spreads:
        when = [chosen_by_part[spread.inside[0]][spread.inside[1]]] if spread.inside is not None else []
        _add_spread(model, asked, on, spread, when)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.random_seed = 1, 1
    solver.parameters.max_deterministic_time = WORK_S
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        placed = [(o, row, solver.value(count)) for o, counts in enumerate(on) for row, count in counts.items()]
        return Opinion([(o, row, pods) for o, row, pods in placed if pods], proven=True)
    return Opinion(None, proven=status == cp_model.INFEASIBLE)


def _add_spread(model: Any, asked: Question, on: list[dict[int, Any]], spread: SpreadQuestion, when: list[Any]) -> None:
    """`low` is what every domain has in the end; a domain that gets a unit has at most `low` and the skew.

    All of it holds only if everything in `when` is true.
    """
    added: dict[int, list[Any]] = {domain: [] for domain in spread.counts}
    for (groups, allowed), fresh in zip(spread.units, spread.fresh, strict=True):
        chosen = {domain: model.new_bool_var("") for domain in allowed}
        placed = [
            (row, count, o) for o, (g, *_) in enumerate(asked.options) if g in groups for row, count in on[o].items()
        ]
        if not spread.are_pods and any(asked.needs[g] for g in groups):
            model.add(sum(chosen.values()) == 1).only_enforce_if(when)
        for row, count, o in placed:
            domain = int(spread.domains[row])
            if domain not in chosen:
                model.add(count == 0).only_enforce_if(when)
            elif spread.are_pods:
                added[domain].append(count)
            else:
                model.add(count <= int(asked.options[o][3][row]) * chosen[domain]).only_enforce_if(when)
        if fresh and not spread.are_pods and any(asked.needs[g] for g in groups):
            for domain, is_there in chosen.items():
                added[domain].append(is_there)
    low = model.new_int_var(0, max(spread.counts.values(), default=0) + sum(asked.needs) + 1, "")
    for domain, count in spread.counts.items():
        gained = model.new_bool_var("")
        model.add(low <= count + sum(added[domain])).only_enforce_if(when)
        model.add(sum(added[domain]) == 0).only_enforce_if(~gained)
        model.add(count + sum(added[domain]) <= low + spread.skew).only_enforce_if([*when, gained])
