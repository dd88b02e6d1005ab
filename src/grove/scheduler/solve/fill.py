"""Puts pods of one group on the nodes of a run: the last and cheapest decision, made greedily in a few array passes.

Pods go back to the nodes that their group left. Packing goes down the levels. It takes the tightest domain that holds
all pods, and a partly used one before a whole one. If none holds all, it takes the largest ones, so that few are used.
On the hosts, the fullest come first, so whole nodes stay whole. Spread distributes evenly. Pods above the minimum come
after those of the minimum, best effort, as near to their own group and gang as capacity allows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask, running_sum
from grove.scheduler.solve.problem import Part, Problem, Segments
from grove.scheduler.solve.search_state import ROWS_A_STEP, SearchState

FILL_STEPS = 3
"""What a fill costs in steps beside its pass over the rows: it makes some thirty small array calls."""


def fill_group(state: SearchState, group: int, count: int, low: int, high: int, level: int) -> int:
    """Puts up to `count` pods of the group into the run; gives how many it could put. `level` is the run's own."""
    problem = state.problem
    entry = problem.groups[group]
    left = count
    for option in entry.options:
        kind = problem.options[option].kind
        asked = min(left, len(entry.classes[kind]) - state.taken[group][kind])
        if asked > 0:
            left -= fill_option(state, option, asked, low, high, level)
        if left == 0:
            break
    return count - left


def fill_option(state: SearchState, option: int, count: int, low: int, high: int, level: int) -> int:
    """Puts up to `count` pods of one option into the run, as many as there is capacity for."""
    state.spend(high - low + FILL_STEPS * ROWS_A_STEP)
    slots = state.pod_slots(option, low, high)
    total = int(slots.sum())
    count = min(count, total)
    if count == 0:
        return 0
    back = 0 if state.problem.is_new else take_earlier_nodes(state, option, slots, count, low)
    if back < count:
        slots = state.pod_slots(option, low, high) if back else slots
        _fill(state, option, slots, count - back, low, high, level)
    return count


def take_earlier_nodes(state: SearchState, option: int, slots: Ints, count: int, low: int) -> int:
    """Puts pods back on the nodes that pods of their group left, as far as `slots` (from row `low` on) go; how many."""
    problem = state.problem
    group = problem.options[option].group
    if not problem.groups[group].earlier_nodes or problem.cost is not None:
        return 0
    back = np.zeros_like(slots)
    for row, earlier_nodes in state.earlier_nodes_left(group).items():
        if 0 <= row - low < slots.size:
            back[row - low] = min(earlier_nodes, int(slots[row - low]), count - int(back.sum()))
    _put(state, option, low, back)
    return int(back.sum())


def _fill(state: SearchState, option: int, slots: Ints, count: int, low: int, high: int, level: int) -> None:
    problem = state.problem
    if problem.gang.strategy == "spread":
        _put(state, option, low, _level_out(slots, count))
    elif problem.cost is not None:
        # Preemption: cheapest rows first, then best liked (soft affinity), then fullest.
        suitability = problem.options[option].suitability
        liked = np.zeros_like(slots) if suitability is None else -suitability[low:high]
        _put(state, option, low, _in_order(slots, count, np.lexsort((slots, liked, problem.cost[low:high]))))
    else:
        for here in (slots,) if problem.is_new else _nearest_first(state, option, slots, low, high, level):
            part = min(count, int(here.sum()))
            suitability = problem.options[option].suitability
            if suitability is not None:
                here = _liked(here, suitability[low:high], part)
            _pack(state, option, here, part, low, high, level)
            count -= part
            if count == 0:
                break


def _nearest_first(state: SearchState, option: int, slots: Ints, low: int, high: int, level: int) -> Iterator[Ints]:
    """The slots, split by how near the rows are to where pods of the group run."""
    problem = state.problem
    pods_at = problem.groups[problem.options[option].group].pods_at
    if pods_at is not None:
        for inner in range(problem.tree.host_level - 1, level, -1):
            domains = problem.tree.domains[inner]
            near: Ints = slots * np.isin(domains[problem.positions[low:high]], domains[pods_at])
            if near.any():
                yield near.copy()
                slots = slots - near
    yield slots


def _pack(state: SearchState, option: int, slots: Ints, count: int, low: int, high: int, level: int) -> None:
    problem = state.problem
    at, end = low, high
    for inner in range(level + 1, problem.tree.host_level):
        domains = problem.segments(inner).inside(at, end)
        if domains.size < 2 and (domains.size == 0 or domains.ends[0] - domains.starts[0] == end - at):
            continue
        running = running_sum(slots[at - low : end - low])
        starts, ends = domains.starts - at, domains.ends - at
        sums = running[ends] - running[starts]
        chosen = _tightest(state, option, sums, count, inner, domains)
        if chosen < 0:
            full, chosen, count = _largest_first(sums, count)
            for d in full:
                a, b = int(starts[d]) + at, int(ends[d]) + at
                _put(state, option, a, slots[a - low : b - low])
                slots[a - low : b - low] = 0
            if count == 0:
                return
            if chosen < 0:
                break  # what is left goes to nodes that are in no domain of this level
        at, end = int(starts[chosen]) + at, int(ends[chosen]) + at
    inside = slots[at - low : end - low]
    _put(
        state,
        option,
        at,
        _level_out(inside, count) if problem.options[option].rather_apart else _on_hosts(inside, count),
    )


def _tightest(state: SearchState, option: int, sums: Ints, count: int, level: int, domains: Segments) -> int:
    """The domain with the least capacity that holds all, broken ones before whole ones; -1 if none does."""
    fits = (sums >= count).nonzero()[0]
    if fits.size == 0:
        return -1
    if fits.size > 1:
        whole = state.problem.idle_in(option, level, domains)[fits] <= sums[fits]
        fits = fits[np.lexsort((fits, sums[fits], whole))]
    return int(fits[0])


def _largest_first(sums: Ints, count: int) -> tuple[list[int], int, int]:
    """Domains to use up wholly, the one for the rest (the tightest that holds it, or -1), and how many are the rest."""
    full: list[int] = []
    order = (-sums).argsort(kind="stable")
    for d in order:
        rest = order[len(full) :]
        fits = rest[sums[rest] >= count]
        if fits.size:
            return full, int(fits[sums[fits].argmin()]), count
        full.append(int(d))
        count -= int(sums[d])
    return full, -1, count


def _on_hosts(slots: Ints, count: int) -> Ints:
    """Pods a host: one host if it holds all, the tightest such; else the fullest hosts first."""
    fits = (slots >= count).nonzero()[0]
    if fits.size:
        pods = np.zeros_like(slots)
        pods[fits[slots[fits].argmin()]] = count
        return pods
    return _in_order(slots, count, slots.argsort(kind="stable"))


def _in_order(slots: Ints, count: int, order: Ints) -> Ints:
    taken = slots[order]
    before = taken.cumsum() - taken
    pods = np.zeros_like(slots)
    pods[order] = np.clip(count - before, 0, taken)
    return pods


def _liked(slots: Ints, suitability: Ints, count: int) -> Ints:
    """The slots of the rows that are liked best, as many kinds of rows as it takes to hold all."""
    for least in np.unique(suitability[slots > 0])[::-1]:
        liked: Ints = slots * (suitability >= least)
        if int(liked.sum()) >= count:
            return liked
    return slots


def _level_out(slots: Ints, count: int) -> Ints:
    """Pods a host so that the fullest gets as few as can be; ties go to the earlier row."""
    levels = range(int(slots.max()))
    level = bisect_left(levels, True, key=lambda level: int(np.minimum(slots, level).sum()) >= count)
    pods = np.minimum(slots, level)
    surplus = int(pods.sum()) - count
    at_top = (pods == level).nonzero()[0]
    pods[at_top[at_top.size - surplus :]] -= 1
    return pods


def _put(state: SearchState, option: int, start: int, pods: Ints) -> None:
    at = pods.nonzero()[0]
    if at.size:
        state.put(option, at + start, pods[at])


def place_surplus(state: SearchState) -> None:
    """Puts what fits of every group's remaining pods. Requirements hold for surplus as for the core."""
    problem = state.problem
    if all(sum(state.taken[g]) >= group.pending for g, group in enumerate(problem.groups)):
        return
    _visit(state, problem.root, np.ones(problem.size, dtype=np.bool_))


def _visit(state: SearchState, part: Part, open_rows: Mask) -> None:
    if part.required_level >= 0:
        open_rows = open_rows & _domain_rows(state, part, open_rows)
    if part.is_leaf and part.groups:
        _fill_near(state, part.groups[0], open_rows)
    for child in part.children:
        _visit(state, child, open_rows)


def _domain_rows(state: SearchState, part: Part, open_rows: Mask) -> Mask:
    """Rows of the one domain the part is in, or may still go to: of several, the one with the most capacity for it."""
    problem = state.problem
    segments = problem.segments(part.required_level)
    placed = state.positions_of(part.groups)
    if placed.size:
        # Core pods are together, so the first one names the domain.
        domains = np.flatnonzero(segments.ids == problem.tree.domains[part.required_level][placed[0]])
    elif part.pinned_domains is not None:
        domains = np.isin(segments.ids, sorted(part.pinned_domains)).nonzero()[0]
    else:
        domains = np.arange(segments.ids.size)
    mask = np.zeros(problem.size, dtype=np.bool_)
    if domains.size:
        free_slots = np.zeros(problem.size, dtype=np.int64)
        for o in (o for g in part.groups for o in problem.groups[g].options):
            free_slots += state.pod_slots(o, 0, problem.size) * open_rows
        running = running_sum(free_slots)
        chosen = domains[np.argmax(running[segments.ends[domains]] - running[segments.starts[domains]])]
        mask[segments.starts[chosen] : segments.ends[chosen]] = True
    return mask


def _fill_near(state: SearchState, group: int, open_rows: Mask) -> None:
    problem = state.problem
    entry = problem.groups[group]
    near: Ints | None = None
    for option in entry.options:
        kind = problem.options[option].kind
        wanted = len(entry.classes[kind]) - state.taken[group][kind]
        if wanted <= 0:
            continue
        slots = state.pod_slots(option, 0, problem.size) * open_rows
        if not problem.is_new and (back := take_earlier_nodes(state, option, slots, wanted, 0)):
            wanted -= back
            slots = state.pod_slots(option, 0, problem.size) * open_rows
        if wanted == 0 or not slots.any():
            continue
        if near is None:
            near = 2 * _nearness(problem, state.pods_at([group]))
            near += _nearness(problem, state.pods_at(problem.root.groups))
        suitability = problem.options[option].suitability
        liked = np.zeros_like(slots) if suitability is None else -suitability
        tight = slots if problem.gang.strategy == "pack" else -slots
        _put(state, option, 0, _in_order(slots, wanted, np.lexsort((tight, -near, liked))))


def _nearness(problem: Problem, used: Ints) -> Ints:
    """By row: on how many levels it shares a domain with one of these positions in the tree's order."""
    near = np.zeros(problem.size, dtype=np.int64)
    if used.size == 0:
        return near
    for domains in problem.tree.domains:
        taken = domains[used]
        near += np.isin(domains[problem.positions], taken[taken >= 0])
    return near
