"""Pods above the minimum: placed after the core, best effort, as near to their own group and gang as room allows."""

from __future__ import annotations

import numpy as np

from grove.scheduler.cluster.nodes import Ints, Mask
from grove.scheduler.solve.problem import Part, Problem
from grove.scheduler.solve.state import State


def place_surplus(problem: Problem, state: State) -> None:
    """Puts what fits of every group's remaining pods. Requirements hold for surplus as for the core."""
    if all(sum(state.taken[g]) >= group.pending for g, group in enumerate(problem.groups)):
        return
    _visit(problem, state, problem.root, np.ones(problem.size, dtype=np.bool_))


def _visit(problem: Problem, state: State, part: Part, open_rows: Mask) -> None:
    if part.level >= 0:
        open_rows = open_rows & _home_rows(problem, state, part, open_rows)
    if part.is_leaf and part.groups:
        _fill_near(problem, state, part.groups[0], open_rows)
    for child in part.children:
        _visit(problem, state, child, open_rows)


def _home_rows(problem: Problem, state: State, part: Part, open_rows: Mask) -> Mask:
    """Rows of the one domain the part is in, or may still go to: of several, the one with the most room for it."""
    segments = problem.segments(part.level)
    placed = [at for option, at, _ in state.placed if problem.options[option].group in part.groups]
    if placed:
        # Core pods are together, so the first one tells the domain.
        homes = np.searchsorted(segments.starts, placed[0][:1], side="right") - 1
    elif part.domains is not None:
        homes = np.flatnonzero(np.isin(segments.ids, sorted(part.domains)))
    else:
        homes = np.arange(segments.ids.size)
    mask = np.zeros(problem.size, dtype=np.bool_)
    if homes.size:
        room = np.zeros(problem.size, dtype=np.int64)
        for o in (o for g in part.groups for o in problem.groups[g].options):
            room += state.room(o, 0, problem.size) * open_rows
        running = np.concatenate([[0], np.cumsum(room)])
        home = homes[np.argmax(running[segments.ends[homes]] - running[segments.starts[homes]])]
        mask[segments.starts[home] : segments.ends[home]] = True
    return mask


def _fill_near(problem: Problem, state: State, group: int, open_rows: Mask) -> None:
    entry = problem.groups[group]
    near: Ints | None = None
    for option in entry.options:
        kind = problem.options[option].kind
        wanted = len(entry.classes[kind]) - state.taken[group][kind]
        if wanted <= 0:
            continue
        slots = state.room(option, 0, problem.size) * open_rows
        if not slots.any():
            continue
        if near is None:
            near = 2 * _nearness(problem, _rows_of(problem, state, [group]))
            near += _nearness(problem, _rows_of(problem, state, problem.root.groups))
        soft = problem.options[option].soft
        liked = np.zeros_like(slots) if soft is None else -soft
        tight = slots if problem.gang.strategy == "pack" else -slots
        order = np.lexsort((tight, -near, liked))
        taken = slots[order]
        pods = np.zeros_like(slots)
        pods[order] = np.clip(wanted - (np.cumsum(taken) - taken), 0, taken)
        at = np.flatnonzero(pods)
        state.put(option, at, pods[at])


def _nearness(problem: Problem, used: Ints) -> Ints:
    """By row: on how many levels it shares a domain with one of the used rows."""
    near = np.zeros(problem.size, dtype=np.int64)
    if used.size == 0:
        return near
    for level in range(problem.tree.host_level + 1):
        domains = problem.tree.domains[level][problem.positions]
        taken = domains[used]
        near += np.isin(domains, taken[taken >= 0])
    return near


def _rows_of(problem: Problem, state: State, groups: list[int]) -> Ints:
    """Candidate rows that hold pods of these groups: placed just now, or bound before."""
    wanted = set(groups)
    found = [at for option, at, _ in state.placed if problem.options[option].group in wanted]
    names = {problem.groups[g].name for g in groups}
    row_of = problem.snapshot.nodes.row_of
    bound = [row_of[node] for g in problem.gang.groups() if g.name in names for node in g.bound if node in row_of]
    if bound:
        found.append(np.flatnonzero(np.isin(problem.rows, bound)))
    return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)
