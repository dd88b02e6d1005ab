"""The scheduler's pure core on one CPU core: decision times by cluster size, proofs, victims, snapshot upkeep.

Every figure is the median of several runs in a warm process, in CPU time, which a busy machine does not stretch. It is
the decision alone that is measured, without any API.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from tests.support.scheduler.adversarial import expensive

from bench.figures import Figure
from grove.api.core import Container, Pod, PodSpec, ResourceRequirements
from grove.api.meta import ObjectMeta
from grove.api.selector import of_labels
from grove.scheduler.cluster.snapshot import Snapshot, cluster
from grove.scheduler.evict.preempt import Victims, preempt
from grove.scheduler.evict.repack import Movable, NoRepack, Repack, repack
from grove.scheduler.evict.running import Running, RunningIndex
from grove.scheduler.explain.explanation import explain
from grove.scheduler.loop.deciding.decisions import IN_PLACE_STEPS, Decider
from grove.scheduler.model.answers import Budget, DecisionSteps, NoFit, Placement
from grove.scheduler.model.facts import NodeFacts, PodFacts, PodScope, Shape
from grove.scheduler.model.gang import Branch, Gang, PodGroup, UnitSpread, gang_of
from grove.scheduler.model.reading import read_pod
from grove.scheduler.model.reasons import NO_MOVES
from grove.scheduler.solve.place import place

ZONE, BLOCK, RACK, HOST = "bench/zone", "bench/block", "bench/rack", "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
TOPOLOGY = {"bench": (ZONE, BLOCK, RACK, HOST)}


def nodes(count: int, *, rack: int = 16, block: int = 8, zone: int = 8) -> list[NodeFacts]:
    """Eight-GPU nodes, in racks, blocks and zones of the sizes given."""
    facts = []
    for i in range(count):
        r, b, z = i // rack, i // rack // block, i // rack // block // zone
        labels = {HOST: f"node-{i:05}", RACK: f"rack-{r:04}", BLOCK: f"block-{b:03}", ZONE: f"zone-{z}"}
        facts.append(NodeFacts(f"node-{i:05}", {"cpu": 128_000, "memory": 2 << 40, "pods": 110, GPU: 8}, labels))
    return facts


def shape(gpu: int, cpu: int = 4_000) -> Shape:
    return Shape(requests=tuple(sorted({GPU: gpu, "cpu": cpu, "memory": 16 << 30, "pods": 1}.items())))


def pods(name: str, count: int, of: Shape, **more: Any) -> tuple[PodFacts, ...]:
    return tuple(PodFacts(f"{name}-{i}", "bench", f"{name}-{i}", of, **more) for i in range(count))


def group(name: str, count: int, gpu: int, required: str = "", preferred: str = "") -> PodGroup:
    return PodGroup(name, count, pods(name, count, shape(gpu)), (), required, preferred)


def gang(name: str, *parts: Branch | PodGroup, required: str = "", preferred: str = "", priority: int = 0) -> Gang:
    return Gang(f"bench/{name}", Branch(name, parts, required, preferred), priority)


def half_used(count: int, **shape_of_zones: int) -> Snapshot:
    """A cluster where two nodes in three run something, unevenly, so that domains differ."""
    running = []
    for i in range(count):
        gpu = (i * 7 + i // 16) % 12
        if 0 < gpu <= 8:
            running.append(PodFacts(f"r{i}", "bench", f"r{i}", shape(gpu), {}, f"node-{i:05}"))
    return cluster(nodes(count, **shape_of_zones), running, TOPOLOGY)


def spread_over_zones_ms() -> float:
    """1,000 pods, at most one more in a zone than in another, on 5,000 nodes in 12 zones."""
    snapshot = half_used(5_000, rack=14, block=10, zone=3)
    scope = PodScope(of_labels({"app": "wide"}), frozenset(("bench",)), with_terminating=False)
    spread = UnitSpread(ZONE, 1, True, scope, "", (("", ("worker",)),))
    workers = PodGroup("worker", 1_000, pods("worker", 1_000, shape(1), labels={"app": "wide"}))
    wanted = replace(gang("wide", workers), spreads=(spread,))
    zones = {node.name: node.labels[ZONE] for node in snapshot.nodes.facts if node is not None}
    counts = Counter(zones[pod.node] for pod in placed(place(snapshot, wanted)).pods)
    assert len(set(zones.values())) == len(counts) == 12, counts
    assert max(counts.values()) - min(counts.values()) <= 1, counts
    return placing_ms(snapshot, wanted)


def full(count: int) -> tuple[Snapshot, list[Running]]:
    """Every GPU taken by a one-GPU job."""
    single = shape(1, 1_000)
    jobs = [
        PodFacts(f"job-{i}-{k}", "bench", f"job-{i}-{k}", single, {}, f"node-{i:05}", created_s=float(i * 8 + k))
        for i in range(count)
        for k in range(8)
    ]
    return cluster(nodes(count), jobs, TOPOLOGY), [Running(job.name, 0, (job,)) for job in jobs]


def disaggregated() -> Gang:
    """Eight groups of mixed sizes: two pairs of leader and workers in a rack each, routers and caches beside them."""
    prefill = Branch("prefill", (group("p-leader", 1, 8), group("p-worker", 3, 8)), RACK)
    decode = Branch("decode", (group("d-leader", 2, 4), group("d-worker", 16, 2)), RACK)
    return gang(
        "disaggregated",
        prefill,
        decode,
        group("router", 2, 0),
        group("cache", 4, 1, preferred=RACK),
        group("encode", 4, 2, required=HOST),
        group("embed", 8, 1, preferred=HOST),
        required=BLOCK,
        preferred=RACK,
    )


def median_ms(work: Callable[[], object], rounds: int = 9) -> float:
    work()
    times = []
    gc.disable()
    try:
        for _ in range(rounds):
            began = time.process_time()
            work()
            times.append((time.process_time() - began) * 1000)
    finally:
        gc.enable()
    return statistics.median(times)


def placed(answer: object) -> Placement:
    assert isinstance(answer, Placement), answer
    return answer


def refused(answer: object) -> NoFit:
    assert isinstance(answer, NoFit), answer
    assert answer.proven, answer
    return answer


def placing_ms(snapshot: Snapshot, wanted: Gang) -> float:
    return median_ms(lambda: placed(place(snapshot, wanted)))


def refusing_ms(snapshot: Snapshot, wanted: Gang) -> float:
    return median_ms(lambda: refused(place(snapshot, wanted)))


def explaining_ms(snapshot: Snapshot, wanted: Gang, running: list[Running]) -> float:
    return median_ms(lambda: explain(snapshot, wanted, running), 3)


def fill_one_by_one(count: int) -> float:
    """Time to place and assume eight one-GPU jobs a node, one by one, on an empty cluster."""
    snapshot = cluster(nodes(count), (), TOPOLOGY)
    single = shape(1, 1_000)
    jobs = [
        gang_of(f"job-{i}", [PodGroup("job", 1, (PodFacts(f"job-{i}", "bench", f"job-{i}", single),))])
        for i in range(count * 8)
    ]
    began = time.process_time()
    for job in jobs:
        snapshot.assume(placed(place(snapshot, job)))
    return (time.process_time() - began) * 1000


def api_pods(count: int, on: int) -> list[Pod]:
    asked = ResourceRequirements(requests={"cpu": "4", "memory": "16Gi", GPU: "1"}, limits={GPU: "1"})
    spec = [PodSpec(node_name=f"node-{i:05}", containers=(Container(name="main", resources=asked),)) for i in range(on)]
    return [
        Pod(
            metadata=ObjectMeta(name=f"p{i}", namespace="bench", uid=f"uid-{i}", labels={"app": "x"}), spec=spec[i % on]
        )
        for i in range(count)
    ]


def snapshot_events_ms() -> float:
    """1,000 pod events, half arrivals and half departures, read from API objects, on 10,000 nodes."""
    snapshot = half_used(10_000)
    arriving = api_pods(500, 10_000)

    def work() -> None:
        for pod in arriving:
            snapshot.add_pod(read_pod(pod))
        for pod in arriving:
            snapshot.remove_pod(pod.metadata.uid)

    return median_ms(work)


def victims_among_16000_ms() -> float:
    """What a refused gang costs that may evict every other: which pods run under which budgets, then which to evict."""
    snapshot, _ = full(2_000)
    index = RunningIndex()
    for pod in snapshot.pods():
        index.add(pod)
    hero = gang("hero", group("worker", 250, 8), priority=10)
    budgets = [("bench", f"b{i}", of_labels({"app": f"a{i}"}), 1) for i in range(20)]

    def work() -> None:
        running = index.units(lambda _: None, below=hero.priority)
        answer = preempt(snapshot, hero, running, index.budgets(budgets))
        assert isinstance(answer, Victims), answer
        assert len(answer.pods) == 2_000

    return median_ms(work, 5)


def fragmented() -> tuple[Snapshot, list[Movable]]:
    """1,000 nodes in racks of 16, on which 800 gangs leave no rack free."""
    rng, free = Random(1), {f"node-{i:05}": 8 for i in range(1_000)}
    names, movable = list(free), list[Movable]()
    while len(movable) < 800:
        name, count, gpu = f"gang-{len(movable)}", rng.choice((1, 1, 2, 4)), rng.choice((2, 2, 4))
        rack = rng.randrange(62) * 16
        at = [node for node in rng.sample(names[rack : rack + 16], 16) if free[node] >= gpu][:count]
        if len(at) == count:
            free |= {node: free[node] - gpu for node in at}
            tree = gang(name, group(name, count, gpu), required=RACK)
            waiting = [pod for part in tree.groups() for pod in part.pods]
            unit = Running(name, 0, tuple(pod.on(node) for pod, node in zip(waiting, at, strict=True)))
            movable.append(Movable(unit, tree))
    return cluster(nodes(1_000), [pod for candidate in movable for pod in candidate.unit.pods], TOPOLOGY), movable


def repack_ms() -> float:
    """A plan for 14 nodes in one rack."""
    snapshot, movable = fragmented()
    wanted = gang("waits", group("whole", 14, 8), required=RACK)

    def work() -> None:
        answer = repack(snapshot, wanted, movable)
        assert isinstance(answer, Repack), answer

    return median_ms(work, 3)


def no_repack_ms() -> float:
    """A gang of 400 nodes: all that counting alone can leave out is counted, and no plan is found."""
    snapshot, movable = fragmented()
    wanted = gang("waits", group("whole", 400, 8))

    def work() -> None:
        answer = repack(snapshot, wanted, movable)
        assert isinstance(answer, NoRepack), answer
        assert answer.why.kind == NO_MOVES

    return median_ms(work, 3)


def node_removed_ms() -> float:
    snapshot, _ = full(2_000)
    names = iter(sorted(snapshot.nodes.row_of))
    return median_ms(lambda: snapshot.remove_node(next(names)), 49)


def measure() -> Iterable[tuple[str, float, str, float]]:
    for count, aim in ((1_000, 1.0), (5_000, 3.0), (10_000, 6.0)):
        snapshot = half_used(count)
        wanted = gang("hundred", group("worker", 100, 1), required=BLOCK, preferred=RACK)
        yield f"100-pod gang, {count} nodes", placing_ms(snapshot, wanted), "ms", aim
    wanted = gang("whole", group("worker", 512, 8), preferred=RACK)
    yield "512-pod gang on 512 nodes", placing_ms(cluster(nodes(512), (), TOPOLOGY), wanted), "ms", 20.0
    yield "disaggregated gang of 8 groups, 5000 nodes", placing_ms(half_used(5_000), disaggregated()), "ms", 30.0
    yield "1000 pods spread over 12 zones, 5000 nodes", spread_over_zones_ms(), "ms", 30.0
    yield "4000 one-GPU jobs one by one, 500 nodes", fill_one_by_one(500), "ms", 1_000.0
    for count, aim in ((500, 20.0), (5_000, 100.0)):
        snapshot, running = full(count)
        wanted = gang("eighty", group("worker", 10, 8), required=RACK)
        yield f"proven no, 10 pods of 8 GPUs, {count} full nodes", refusing_ms(snapshot, wanted), "ms", aim
        took = explaining_ms(snapshot, wanted, running)
        yield f"explanation of it with verified changes, {count} nodes", took, "ms", 20 * aim
    wanted = gang("tall", group("big", 12, 8), group("small", 8, 2), required=RACK)
    took = refusing_ms(half_used(5_000), wanted)
    yield "proven no, no rack of 5000 half-used nodes has capacity for all", took, "ms", 100.0
    snapshot, running = full(500)
    hero = gang("hero", group("worker", 250, 8), priority=10)

    def victims() -> Victims:
        answer = preempt(snapshot, hero, running)
        assert isinstance(answer, Victims), answer
        assert len(answer.pods) == 2_000
        return answer

    yield "victims for 250 pods of 8 GPUs among 4000 jobs", median_ms(victims, 3), "ms", 1_000.0
    yield (
        "victims for 250 pods of 8 GPUs among 16000 jobs, listing them included",
        victims_among_16000_ms(),
        "ms",
        150.0,
    )
    yield "repack plan for 14 nodes of a rack, 800 gangs on 1000 nodes", repack_ms(), "ms", 2_000.0
    yield "no repack plan for 400 nodes, 800 gangs on 1000 nodes", no_repack_ms(), "ms", 2_000.0
    yield "node removed, 16000 pods on 2000 nodes", node_removed_ms(), "ms", 1.0
    yield "snapshot, 1000 pod events, 10000 nodes", snapshot_events_ms(), "ms", 10.0
    snapshot = half_used(10_000)
    yield "snapshot copy, 10000 nodes", median_ms(snapshot.copy, 99) * 1000, "µs", 20.0


async def longest_stall(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Milliseconds an event loop stood still, at most, while this was done on it: by the clock, and of its own CPU.

    What the clock says beyond that is waiting: for a decision's thread to let go of the interpreter, or for a core.
    """
    longest, busiest, loop = 0.0, 0.0, asyncio.get_running_loop()
    last, worked = time.perf_counter(), time.thread_time()

    def beat() -> None:
        nonlocal longest, busiest, last, worked
        now, cpu = time.perf_counter(), time.thread_time()
        longest, busiest = max(longest, now - last), max(busiest, cpu - worked)
        last, worked = now, cpu
        loop.call_later(0.001, beat)

    beat()
    await asyncio.sleep(0.01)
    await work()
    await asyncio.sleep(0)
    beat()
    return longest * 1000, busiest * 1000


async def decided(decider: Decider, wanted: Gang) -> None:
    await decider.place(wanted, DecisionSteps(Budget()))


def stalls(in_place_steps: int = IN_PLACE_STEPS) -> Iterator[tuple[str, float, float]]:
    """The longest stall of the event loop for each gang made to be expensive, and for victims among 16,000 pods.

    The least of five: what a busy machine adds is no work of ours. The same loop with nothing to decide comes first.
    """

    def least(name: str, work: Callable[[], Awaitable[object]]) -> tuple[str, float, float]:
        stalls_taken = [asyncio.run(longest_stall(work)) for _ in range(5)]
        return name, min(clock for clock, _ in stalls_taken), min(cpu for _, cpu in stalls_taken)

    yield least("nothing to decide", lambda: asyncio.sleep(0.05))
    for name, make in expensive():
        snapshot, wanted = make()
        decider = Decider(snapshot, "bench", in_place_steps=in_place_steps)
        yield least(name, partial(decided, decider, wanted))
    snapshot, _ = full(2_000)
    index = RunningIndex()
    for pod in snapshot.pods():
        index.add(pod)
    hero = gang("hero", group("worker", 250, 8), priority=10)
    decider = Decider(snapshot, "bench", in_place_steps=in_place_steps)

    async def victims() -> None:
        await decider.preempt(hero, index.units(lambda _: None, below=hero.priority), (), DecisionSteps(Budget()))

    yield least("victims for 250 pods among 16,000", victims)


def run(results: dict[str, Figure]) -> None:
    (_, baseline, _), *stalls_taken = stalls()
    for name, clock, cpu in sorted(stalls_taken, key=lambda entry: -entry[1]):
        print(f"    longest stall of the event loop: {clock:6.1f} ms, {cpu:6.1f} ms of its own CPU  {name}")
    worst_clock, worst_cpu = (max(entry[part] for entry in stalls_taken) for part in (1, 2))
    for what, worst, aim in (("", worst_clock, 50), (", its own CPU", worst_cpu, 20)):
        results[f"loop: longest stall{what}, {len(stalls_taken)} expensive decisions"] = Figure(
            round(worst, 1), "ms", f"≤ {aim} (nothing to decide {baseline:.1f})"
        )
    for name, value, unit, aim in measure():
        results[f"core: {name}"] = Figure(round(value, 3), unit, f"≤ {aim:g}")


if __name__ == "__main__":
    figures: dict[str, Figure] = {}
    run(figures)
    for name, figure in figures.items():
        print(f"{name:<66} {figure.value:>10.2f} {figure.unit:<3} {figure.aim}")
