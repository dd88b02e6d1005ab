"""What the scheduler decides, written down and compared: 2,000 random gangs and a few hundred that are hard to place.

    python -m bench.decisions record before.json
    python -m bench.decisions compare before.json after.json

Record before a change and after it. The comparison says whether the change moved any gang. It prints every case with
different answers, both answers, and how good each is. Cases are pure functions of their names.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from tests.support.scheduler import cases
from tests.support.scheduler.kit import LEVELS

from grove.scheduler.cluster.snapshot import Snapshot, cluster
from grove.scheduler.evict.preempt import Victims, preempt
from grove.scheduler.evict.running import Running
from grove.scheduler.model.answers import NoFit, Placement
from grove.scheduler.model.facts import NodeFacts, PodFacts
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from grove.scheduler.solve.place import place

SMALL, NESTED, BRIM, MEDIUM = 2_000, 400, 200, 200

Digest = dict[str, Any]


def corpus() -> Iterator[tuple[str, list[NodeFacts], list[PodFacts], Gang, tuple[str, ...]]]:
    """(name, nodes, running pods, gang, levels)."""
    for seed in range(SMALL):
        case = cases.random_case(seed)
        yield f"small {seed}", case.nodes, case.running, case.gang, cases.LEVELS
    for seed in range(NESTED):
        yield f"nested {seed}", *cases.nested_case(seed), LEVELS
    for seed in range(BRIM):
        yield f"brim {seed}", *cases.brim_case(seed), LEVELS
    for seed in range(MEDIUM):
        yield f"medium {seed}", *cases.medium_case(seed, nested=seed % 2 == 0), LEVELS


def decisions() -> Iterator[tuple[str, Digest]]:
    for name, nodes, running, wanted, levels in corpus():
        snapshot = cluster(nodes, running, {"t": levels})
        answer = place(snapshot, wanted)
        yield name, digest(answer, snapshot, wanted, levels)
        if isinstance(answer, Placement) and answer.core > 1:
            yield f"repair of {name}", repaired(snapshot, wanted, answer, Random(name), levels)
        if isinstance(answer, NoFit):
            yield f"preemption for {name}", victims(snapshot, wanted)


def digest(answer: Placement | NoFit, snapshot: Snapshot, gang: Gang, levels: tuple[str, ...]) -> Digest:
    if isinstance(answer, NoFit):
        return {"fits": False, "reason": answer.reason, "proven": answer.proven}
    names = {*answer.nodes.values(), *(node for group in gang.groups() for node in group.bound)}
    rows = [snapshot.nodes.row_of[name] for name in names]
    crossed = [len({int(snapshot.nodes.column(level).ids[row]) for row in rows}) for level in levels]
    return {"fits": True, "nodes": answer.nodes, "core": answer.core, "score": answer.score, "domains": crossed}


def repaired(snapshot: Snapshot, gang: Gang, placed: Placement, rng: Random, levels: tuple[str, ...]) -> Digest:
    """A placed gang loses some of its pods, and new ones are placed beside the rest."""
    lost = {pod.uid for pod in rng.sample(placed.pods, rng.randint(1, max(1, len(placed.pods) // 4)))}
    twin = snapshot.copy()
    twin.assume(placed)
    for uid in lost:
        twin.remove_pod(uid)
    stays = [pod for pod in placed.pods if pod.uid not in lost]
    again = _standing(gang, stays, lost, placed)
    return digest(place(twin, again), twin, again, levels)


def _standing(gang: Gang, stays: list[PodFacts], lost: set[str], placed: Placement) -> Gang:
    again = {pod.uid: pod for pod in placed.pods if pod.uid in lost}

    def part_of(part: Branch | PodGroup) -> Branch | PodGroup:
        if isinstance(part, Branch):
            children = tuple(part_of(child) for child in part.children)
            return Branch(part.name, children, part.required, part.preferred)
        bound = tuple(sorted((*part.bound, *(pod.node for pod in stays if pod.group == part.name))))
        pods = tuple(pod for pod in part.pods if pod.uid in again)
        standing = tuple(Counter(pod.shape for pod in stays if pod.group == part.name).items())
        return replace(part, pods=pods, bound=bound, standing=standing)

    root = part_of(gang.root)
    assert isinstance(root, Branch)
    return replace(gang, root=root)


def victims(snapshot: Snapshot, gang: Gang) -> Digest:
    units = [Running(pod.name, pod.priority, (pod,)) for pod in sorted(snapshot.pods(), key=lambda pod: pod.uid)]
    answer = preempt(snapshot, Gang(gang.name, gang.root, priority=10), units)
    if isinstance(answer, Victims):
        return {"fits": True, "victims": sorted(pod.uid for pod in answer.pods), "nodes": answer.placement.nodes}
    return {"fits": False, "reason": answer.reason, "proven": answer.proven}


def compare(before: dict[str, Digest], after: dict[str, Digest]) -> Counter[str]:
    """Prints where the two differ; counts by kind of case and how."""
    seen: Counter[str] = Counter()
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        kind = name.rpartition(" ")[0]
        how = "same" if old == new else verdict(old, new)
        seen[f"{kind}: {how}"] += 1
        if old != new:
            print(f"{name}: {how}\n  before {json.dumps(old)}\n  after  {json.dumps(new)}")
    return seen


def verdict(old: Digest | None, new: Digest | None) -> str:
    """One word for a difference: what got better or worse, by fit, proof, score, domains crossed, victims."""
    if old is None or new is None:
        return "only in one"
    if old["fits"] != new["fits"]:
        return "fits now" if new["fits"] else "FITS NO MORE"
    for key, less_is_better in (("proven", False), ("domains", True), ("victims", True), ("score", False)):
        if key in old and key in new:
            earlier, other = (len(d[key]) if key == "victims" else d[key] for d in (old, new))
            if earlier != other:
                return f"{key} better" if (other < earlier) == less_is_better else f"{key} WORSE"
    return "placed otherwise" if old["fits"] else "explained otherwise"


def main(command: str, *paths: str) -> None:
    if command == "record":
        Path(paths[0]).write_text(json.dumps(dict(decisions())))
        return
    before, after = (json.loads(Path(path).read_text()) for path in paths)
    for how, count in sorted(compare(before, after).items()):
        print(f"{count:>6} {how}")


if __name__ == "__main__":
    main(*sys.argv[1:])
