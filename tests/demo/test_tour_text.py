"""What the chapters of the tour say beforehand is what then happens: every sentence of their text has a check."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from rich.console import Console
from tests.support.demo_story import LEVELS, ROOM, SAMPLES, TENTH, Witness

from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.demo.chronicle import Note
from grove.demo.pace import run_paced
from grove.demo.performance import perform
from grove.demo.scenario import load_manifests, load_scenario
from grove.demo.stage import PLAIN_WIDTH, Plain
from grove.diagnosis.gang_answer import Verdict
from grove.diagnosis.seen import Seen
from grove.plan.world import World, binding, shaped
from grove.scheduler.model.reading import pod_requests
from grove.sim.loop import run

GPU = "nvidia.com/gpu"


@dataclass
class Chapter:
    """When it began and ended, what was seen at each good moment to look, and what was explained meanwhile."""

    title: str
    begins_s: float
    ends_s: float = float("inf")
    seen: list[Seen] = field(default_factory=list)
    seen_s: list[float] = field(default_factory=list)
    explained: list[Verdict] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    groups: dict[str, int] = field(default_factory=dict)
    """Replicas of scaling groups as it began."""


class Recorded(Plain):
    """A stage that remembers what there was to see in each chapter."""

    def __init__(self, witness: Witness) -> None:
        self._out = io.StringIO()
        super().__init__(Console(file=self._out, width=PLAIN_WIDTH, color_system=None, highlight=False))
        self.witness = witness
        self.chapters: dict[str, Chapter] = {}

    @property
    def current(self) -> Chapter:
        return list(self.chapters.values())[-1]

    def chapter(self, title: str, text: str) -> None:
        now_s = self.witness.world.time_s
        if self.chapters:
            self.current.ends_s = now_s
        groups = {one.metadata.name: one.spec.replicas for one in self.witness.world.all(PodCliqueScalingGroup)}
        self.chapters[title] = Chapter(title, now_s, groups=groups)
        super().chapter(title, text)

    def tell(self, note: Note) -> None:
        self.current.notes.append(note)
        super().tell(note)

    def explain(self, verdict: Verdict) -> None:
        self.current.explained.append(verdict)
        super().explain(verdict)

    def picture(self, world: World) -> None:
        seen = world.seen()
        self.current.seen.append(replace(seen, pods=[pod for pod in seen.pods if not pod.metadata.is_deleting]))
        self.current.seen_s.append(world.time_s)
        super().picture(world)


@dataclass
class Told:
    """One chapter as it was played."""

    chapter: Chapter
    witness: Witness

    @property
    def last(self) -> Seen:
        return self.chapter.seen[-1]

    def during(self, moments: Iterable[tuple[float, Pod]]) -> list[tuple[float, Pod]]:
        begins, ends = self.chapter.begins_s, self.chapter.ends_s
        return [(at, pod) for at, pod in moments if begins - TENTH <= at < ends]

    @property
    def bound(self) -> list[tuple[float, Pod]]:
        return self.during(self.witness.bound)

    @property
    def left(self) -> list[tuple[float, Pod]]:
        return self.during(self.witness.left)

    def domains(self, level: str, pods: Iterable[Pod]) -> set[str]:
        return {self.witness.domain(pod, level) for pod in pods}


def notes(told: Told) -> list[str]:
    return [note.text for note in told.chapter.notes]


def when(told: Told, text: str) -> float:
    return next(note.at_s for note in told.chapter.notes if note.text == text)


def of(pods: Iterable[tuple[float, Pod]], label: str, value: str) -> list[Pod]:
    return [pod for _, pod in pods if pod.metadata.labels.get(label) == value]


def part(pod: Pod) -> str:
    """The clique of a pod without its set and numbers: `decode-worker`."""
    return re.sub(r"^[a-z]+-\d+-(?:[a-z]+-\d+-)?", "", pod.metadata.labels[labels.POD_CLIQUE])


def instance(pod: Pod) -> tuple[str, str]:
    marks = pod.metadata.labels
    return marks.get(labels.SCALING_GROUP, ""), marks.get(labels.SCALING_GROUP_REPLICA_INDEX, "")


def by_instance(pods: Iterable[Pod]) -> dict[tuple[str, str], list[Pod]]:
    found: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        if instance(pod)[0]:
            found.setdefault(instance(pod), []).append(pod)
    return found


def gpus_of(seen: Seen, name: str) -> int:
    mine = [pod for pod in seen.pods if pod.metadata.labels[labels.PART_OF] == name and pod.is_bound]
    return sum(dict(pod_requests(pod)).get(GPU, 0) for pod in mine)


# The tour, sentence by sentence


def parts_of_the_system(told: Told) -> None:
    kinds = {part(pod) for pod in told.last.pods}
    assert kinds == {"router", "prefill-leader", "prefill-worker", "decode-leader", "decode-worker"}
    for pods in by_instance(told.last.pods).values():
        assert sorted(part(pod).rpartition("-")[2] for pod in pods)[:2] == ["leader", "worker"]


def whole_and_close(told: Told) -> None:
    gangs = {pod.metadata.labels[labels.POD_GANG] for _, pod in told.bound}
    assert len(gangs) >= 2
    for gang in gangs:
        wanted = next(one for one in told.last.gangs if one.metadata.name == gang)
        needed = sum(group.min_replicas for group in wanted.spec.podgroups)
        times = sorted(at for at, pod in told.bound if pod.metadata.labels[labels.POD_GANG] == gang)
        assert times[needed - 1] - times[0] <= TENTH, "its minimum is bound at one moment"
    assert len(told.domains("block", told.last.pods)) == 1
    for pods in by_instance(told.last.pods).values():
        assert len(told.domains("rack", pods)) == 1


def leaders_then_workers(told: Told) -> None:
    ready = {pod.metadata.name: at for at, pod in told.during(told.witness.ready)}
    router = min(ready[pod.metadata.name] for pod in told.last.pods if part(pod) == "router")
    for pods in by_instance(told.last.pods).values():
        leaders = [ready[pod.metadata.name] for pod in pods if part(pod).endswith("-leader")]
        workers = [ready[pod.metadata.name] for pod in pods if part(pod).endswith("-worker")]
        assert router < min(leaders) <= max(leaders) < min(workers)


def from_two_to_four(told: Told) -> None:
    assert told.chapter.groups["chat-0-prefill"] == 2
    assert len({key for key in by_instance(told.last.pods) if key[0] == "chat-0-prefill"}) == 4


def gangs_of_their_own_near_the_base(told: Told) -> None:
    new = by_instance(pod for _, pod in told.bound)
    assert len(new) == 2
    base = [pod for pod in told.last.pods if pod.metadata.labels[labels.POD_GANG] == "chat-0"]
    for pods in new.values():
        [gang] = {pod.metadata.labels[labels.POD_GANG] for pod in pods}
        mine = {pod.metadata.name for pod in told.last.pods if pod.metadata.labels[labels.POD_GANG] == gang}
        assert mine == {pod.metadata.name for pod in pods}
        assert len(told.domains("rack", pods)) == 1
        assert told.domains("block", pods) == told.domains("block", base)


def five_of_four(told: Told) -> None:
    [wide] = load_manifests(ROOM / "wide.yaml")
    spec = wide["spec"]["template"]
    gpus = spec["cliques"][0]["spec"]["podSpec"]["containers"][0]["resources"]["limits"][GPU]
    assert (spec["cliques"][0]["spec"]["minAvailable"], spec["topologyConstraint"]["pack"]["required"]) == (5, "rack")
    sizes: dict[str, int] = {}
    for node in told.witness.nodes.values():
        assert int(node.status.allocatable[GPU]) == gpus, "a pod takes a whole node"
        rack = node.metadata.labels[LEVELS["rack"]]
        sizes[rack] = sizes.get(rack, 0) + 1
    assert max(sizes.values()) == 4


def nothing_started_and_help_told(told: Told) -> None:
    [verdict] = told.chapter.explained
    assert verdict.advice
    helped = next(note for note in notes(told) if note.startswith("so be it: "))
    assert helped.removeprefix("so be it: ") in [one.text for one in verdict.advice]
    first = min(at for at, pod in told.bound if pod.metadata.labels[labels.PART_OF] == "wide")
    assert first >= when(told, helped) - TENTH


def a_decode_worker_s_node(told: Told) -> None:
    assert {part(pod) for _, pod in told.left} >= {"decode-worker"}
    [node] = {pod.spec.node_name for _, pod in told.left}
    assert f"node {node} does not answer any more" in notes(told)


def five_minutes_and_a_new_one_beside_the_rest(told: Told) -> None:
    [node] = {pod.spec.node_name for _, pod in told.left}
    silent = when(told, f"node {node} does not answer any more")
    assert all(295 < at - silent < 305 for at, _ in told.left)
    lost = [pod for _, pod in told.left if part(pod) == "decode-worker"]
    new = [pod for _, pod in told.bound if part(pod) == "decode-worker"]
    assert len(lost) == len(new) == 1
    rest = [pod for pod in told.last.pods if instance(pod) == instance(new[0])]
    assert len(rest) == 3
    assert len(told.domains("rack", rest)) == 1
    assert new[0].spec.node_name != node


def the_gang_moves_where_its_rack_is_full(told: Told) -> None:
    """Played apart: the rest of the rack is closed, and a node of it falls silent."""
    before, after, delay_s, gave_up_s = run(_without_room())
    assert before.isdisjoint(after), "all of it is elsewhere"
    assert delay_s - gave_up_s >= 600 - 1, "after the termination delay of chat.yaml, ten minutes"


async def _without_room() -> tuple[set[str], set[str], float, float]:
    async with World(shaped(64), seed=1, objects=[(ClusterTopologyBinding, binding())]) as world:
        await world.apply(load_manifests(ROOM / "chat.yaml")[0])
        assert await world.until(lambda: world.is_settled("chat"))

        def decode() -> list[Pod]:
            found = [pod for pod in world.all(Pod) if instance(pod)[0] == "chat-0-decode"]
            return [pod for pod in found if pod.is_bound and not pod.metadata.is_deleting]

        first = decode()
        racks = {node.metadata.name: node.metadata.labels[LEVELS["rack"]] for node in world.all(Node)}
        rack = racks[first[0].spec.node_name]
        for name, where in racks.items():
            if where == rack:
                await world.cluster.nodes.cordon(name)
        worker = next(pod for pod in first if part(pod) == "decode-worker")
        await world.cluster.nodes.stop_node(worker.spec.node_name)
        assert await world.until(lambda: worker.metadata.uid not in {pod.metadata.uid for pod in decode()}, 600)
        gave_up_s = world.time_s
        assert await world.until(lambda: len(decode()) == 3 and rack not in {racks[p.spec.node_name] for p in decode()})
        return {pod.metadata.uid for pod in first}, {pod.metadata.uid for pod in decode()}, world.time_s, gave_up_s


def a_new_engine(told: Told) -> None:
    images = {part(pod): pod.spec.containers[0].image for pod in told.last.pods}
    assert images["decode-leader"] == images["decode-worker"] == "lmsysorg/sglang:v0.5.24"
    assert images["prefill-leader"] == "lmsysorg/sglang:v0.5.23"


def as_a_unit_and_nothing_else(told: Told) -> None:
    gone = [pod for _, pod in told.left]
    assert {instance(pod) for pod in gone} == {("chat-0-decode", "0")}
    assert len(gone) == 3
    new = [at for at, pod in told.bound if instance(pod) == ("chat-0-decode", "0")]
    assert max(new) - min(new) <= TENTH, "placed together"
    assert max(at for at, _ in told.left) <= min(new), "all of the old one are gone before"


def guaranteed_of_32(told: Told) -> None:
    said = [note for note in notes(told) if note.startswith("quota ")]
    assert said == [
        "quota fleet: 32 GPUs guaranteed, 32 at most",
        "quota red: 16 GPUs guaranteed, 32 at most",
        "quota blue: 16 GPUs guaranteed, 32 at most",
    ]


def red_borrows_all(told: Told) -> None:
    assert gpus_of(told.chapter.seen[0], "red") == 32


def extra_instances_go_whole(told: Told) -> None:
    both = told.chapter.seen[1]
    assert (gpus_of(both, "red"), gpus_of(both, "blue")) == (16, 16)
    assert {pod.metadata.labels[labels.POD_GANG] for pod in both.pods if pod.is_bound} >= {"red-0", "blue-0"}
    gone = of([(at, pod) for at, pod in told.left if at <= told.chapter.seen_s[1]], labels.PART_OF, "red")
    gangs = {pod.metadata.labels[labels.POD_GANG] for pod in gone}
    assert len(gangs) == 2
    assert "red-0" not in gangs, "its base stays"
    for gang in gangs:
        mine = {p.metadata.name for p in told.chapter.seen[0].pods if p.metadata.labels[labels.POD_GANG] == gang}
        assert mine <= {pod.metadata.name for pod in gone}, "whole"
        assert all(p.metadata.labels[labels.POD_GANG] != gang or not p.is_bound for p in both.pods)


def red_grows_back(told: Told) -> None:
    assert gpus_of(told.chapter.seen[2], "red") == 32


# A night on call


def replaced_where_the_gang_is(told: Told) -> None:
    [failed] = [note for note in notes(told) if note.endswith("ends with an error")]
    name = failed.split()[1]
    [(_, gone)] = [(at, pod) for at, pod in told.witness.bound if pod.metadata.name == name]
    gang = gone.metadata.labels[labels.POD_GANG]
    new = of(told.bound, labels.POD_GANG, gang)
    assert len(new) == 1
    rest = [pod for pod in told.last.pods if pod.metadata.labels[labels.POD_GANG] == gang]
    assert len(told.domains("block", rest)) == 1


def one_decode_pod(told: Told) -> None:
    assert sum(note.endswith("ends with an error") for note in notes(told)) == 1
    assert any(re.match(r"pod deepseek-0-decode\S* ends with an error", note) for note in notes(told))


def drained(told: Told) -> None:
    assert any(note.endswith("is cordoned") for note in notes(told))


def evicted_and_back_in_the_block(told: Told) -> None:
    [node] = {pod.spec.node_name for _, pod in told.left}
    gangs = {pod.metadata.labels[labels.POD_GANG] for _, pod in told.left}
    for gang in gangs:
        mine = [pod for pod in told.last.pods if pod.metadata.labels[labels.POD_GANG] == gang]
        assert all(pod.is_bound and pod.spec.node_name != node for pod in mine)
        assert len(told.domains("block", mine)) == 1


def two_more_systems(told: Told) -> None:
    [pcs] = told.last.sets
    assert pcs.spec.replicas == 4
    new = {pod.metadata.labels[labels.REPLICA_INDEX] for _, pod in told.bound}
    assert new == {"2", "3"}
    wanted = [one for one in told.last.cliques if one.metadata.labels[labels.REPLICA_INDEX] in new]
    assert sum(one.spec.replicas for one in wanted) == len(told.bound), "complete"


Check = Callable[[Told], None]
CLAIMS: dict[tuple[str, str], Check] = {
    (
        "One object, a whole system",
        "A router, prefill and decode instances with a leader and workers each.",
    ): parts_of_the_system,
    (
        "One object, a whole system",
        "Grove places them as gangs: whole or not at all, a replica within one block, every instance within one rack.",
    ): whole_and_close,
    ("One object, a whole system", "Leaders start after the router, workers after their leader."): leaders_then_workers,
    ("Scale out", "Prefill grows from two instances to four."): from_two_to_four,
    (
        "Scale out",
        "Every new instance is a gang of its own, in one rack, near its base.",
    ): gangs_of_their_own_near_the_base,
    ("A gang that does not fit", "Five whole nodes in one rack, but a rack has four."): five_of_four,
    (
        "A gang that does not fit",
        "Nothing of it is started, and Grove says what would help.",
    ): nothing_started_and_help_told,
    ("A node dies", "The node of a decode worker falls silent."): a_decode_worker_s_node,
    (
        "A node dies",
        "After five minutes Kubernetes gives its pods up; Grove makes a new one, and the scheduler puts it where the "
        "rest of its instance is, for a rack is required.",
    ): five_minutes_and_a_new_one_beside_the_rest,
    (
        "A node dies",
        "If that rack were full, the operator would restart the whole gang elsewhere after its termination delay.",
    ): the_gang_moves_where_its_rack_is_full,
    ("A rolling update", "A new engine for decode."): a_new_engine,
    (
        "A rolling update",
        "The instance is replaced as a unit; router and prefill are not touched.",
    ): as_a_unit_and_nothing_else,
    ("Two teams share a fleet", "Red and blue have 16 GPUs guaranteed each, of 32."): guaranteed_of_32,
    ("Two teams share a fleet", "While blue asks for nothing red may borrow all of it."): red_borrows_all,
    (
        "Two teams share a fleet",
        "When blue comes, red gets smaller: its extra instances go, whole, its base stays.",
    ): extra_instances_go_whole,
    ("Two teams share a fleet", "When blue leaves, red grows back."): red_grows_back,
    ("A pod fails", "One decode pod ends with an error."): one_decode_pod,
    ("A pod fails", "It is replaced where the rest of its gang is."): replaced_where_the_gang_is,
    ("A node is drained", "The machine is needed for other work."): drained,
    ("A node is drained", "Its pods are evicted and come back elsewhere in the block."): evicted_and_back_in_the_block,
    ("The load doubles", "Two more complete systems, or none of them where they do not fit."): two_more_systems,
}
STORIES = {"tour": ROOM / "tour.yaml", "rough-night": SAMPLES / "scenarios" / "rough-night.yaml"}
_PLAYED: dict[tuple[str, int], Recorded] = {}


def played(name: str, nodes: int) -> Recorded:
    """A story, played once on this number of nodes."""
    if (name, nodes) not in _PLAYED:
        witness = Witness()
        stage = Recorded(witness)
        console = Console(file=io.StringIO(), width=PLAIN_WIDTH)
        plot = load_scenario(STORIES[name])
        run_paced(perform(plot, stage, console, seed=1, nodes=nodes, attend=witness.attend), seed=1)
        _PLAYED[name, nodes] = stage
    return _PLAYED[name, nodes]


def sentences(path: Path) -> list[tuple[str, str]]:
    """Each sentence of each chapter's text, with the chapter's title."""
    chapters = [step.args for step in load_scenario(path).steps if step.verb == "chapter"]
    return [(one["title"], text) for one in chapters for text in re.split(r"(?<=\.)\s+", one.get("text", "")) if text]


STORY_OF = {claim: name for name, path in STORIES.items() for claim in sentences(path)}


def test_every_sentence_has_a_check() -> None:
    assert set(STORY_OF) == set(CLAIMS)


@pytest.mark.parametrize("nodes", [pytest.param(64, id="64 nodes"), pytest.param(17, id="17 nodes")])
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim[1])
def test_what_a_chapter_says_is_so(claim: tuple[str, str], nodes: int) -> None:
    stage = played(STORY_OF[claim], nodes)
    CLAIMS[claim](Told(stage.chapters[claim[0]], stage.witness))
