"""Pods above the minimum: placed after the core, best effort, as near to their own group and gang as room allows."""

from __future__ import annotations

import numpy as np

from grove.scheduler.cluster.nodes import Ints, Mask
from grove.scheduler.solve.fill import take_seats
from grove.scheduler.solve.problem import Part, Problem, positions_of
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
        if back := take_seats(state, option, slots, wanted, 0):
            wanted -= back
            slots = state.room(option, 0, problem.size) * open_rows
        if wanted == 0 or not slots.any():
            continue
        if near is None:
            near = 2 * _nearness(problem, _positions_of(problem, state, [group]))
            near += _nearness(problem, _positions_of(problem, state, problem.root.groups))
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
    """By row: on how many levels it shares a domain with one of these positions in the tree's order."""
    near = np.zeros(problem.size, dtype=np.int64)
    if used.size == 0:
        return near
    for domains in problem.tree.domains:
        taken = domains[used]
        near += np.isin(domains[problem.positions], taken[taken >= 0])
    return near


def _positions_of(problem: Problem, state: State, groups: list[int]) -> Ints:
    """Where pods of these groups are: placed just now, or bound before, on nodes that may be full."""
    wanted = set(groups)
    found = [problem.positions[at] for option, at, _ in state.placed if problem.options[option].group in wanted]
    bound = [node for g, group in enumerate(problem.gang.groups()) if g in wanted for node in group.bound]
    if (positions := positions_of(problem, bound)) is not None:
        found.append(positions)
    return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)
