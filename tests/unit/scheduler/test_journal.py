"""A recorded run replays to the same decisions, in this process and from what is on the disk."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from grove.api.core import Taint, Toleration
from grove.api.koordinator import QUOTA
from grove.api.selector import Requirement, Selector
from grove.cli.scheduler import replay as replay_command
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.preempt import Victims
from grove.scheduler.evict.running import DisruptionBudget, Running
from grove.scheduler.loop.deciding.decisions import Decider
from grove.scheduler.model.answers import Budget, DecisionSteps, Placement
from grove.scheduler.model.facts import HostPort, NodeFacts, NodeTerm, PodFacts, PodScope, PodTerm, Shape, Spread
from grove.scheduler.model.gang import Branch, Gang, Pin, PodGroup
from grove.scheduler.policy.queue_tree import QueueTree, QuotaQueue
from grove.scheduler.policy.quota_objects import ELASTIC, QueueObjects
from grove.scheduler.policy.quota_policy import FixedUse, Quota
from grove.scheduler.replay.journal import JOURNAL, Journal, RecordedSnapshot
from grove.scheduler.replay.replay import BadJournal, _apply, replay
from grove.scheduler.standard import STANDARD
from grove.sim.loop import run

RACK, CARD = "rack", "nvidia.com/gpu"


def shape(gpus: int, **fields: object) -> Shape:
    return Shape((("gpu", gpus), ("pods", 1)), **fields)  # type: ignore[arg-type]


SHAPES = [
    shape(1),
    shape(2, node_selector=(("kind", "a"),)),
    shape(1, node_affinity=(NodeTerm((Requirement("kind", "In", frozenset({"a", "b"})),)),)),
    shape(1, tolerations=(Toleration(key="dedicated", operator="Exists"),), ports=(HostPort(80),)),
    shape(1, anti_affinity=(PodTerm("kubernetes.io/hostname", PodScope(Selector(()), frozenset({"ns"}))),)),
    shape(1, spread=(Spread(RACK, 2, PodScope(Selector(()), frozenset({"ns"}))),)),
]


def random_pod(uid: str, rng: random.Random, group: str, **fields: object) -> PodFacts:
    return PodFacts(uid, "ns", uid, rng.choice(SHAPES), {"app": group}, group=group, **fields)  # type: ignore[arg-type]


def a_busy_day(directory: Path, seed: int) -> list[str]:
    return run(busy_day(directory, seed))


async def busy_day(directory: Path, seed: int) -> list[str]:
    """Nodes and pods come and go between decisions; what was placed is assumed. Returns the ids of the decisions."""
    rng = random.Random(seed)
    journal = Journal(directory)
    snapshot = RecordedSnapshot(journal)
    decider = Decider(snapshot, "day", journal)
    decisions = []
    snapshot.set_topology("levels", (RACK, "kubernetes.io/hostname"))
    snapshot.set_namespace("ns", {"team": "x"})
    for n in range(12):
        taints = (Taint(key="dedicated", effect="NoSchedule"),) if n % 5 == 0 else ()
        labels = {RACK: f"r{n % 3}", "kind": "ab"[n % 2], "kubernetes.io/hostname": f"n{n}"}
        snapshot.add_node(NodeFacts(f"n{n}", {"gpu": 4, "pods": 20}, labels, taints))
    placed: list[PodFacts] = []
    for g in range(15):
        groups = tuple(
            PodGroup(
                f"p{k}",
                1,
                tuple(random_pod(f"{g}-{k}-{n}", rng, f"p{k}", priority=g) for n in range(rng.randint(1, 3))),
            )
            for k in range(rng.randint(1, 2))
        )
        root = Branch(f"ns/g{g}", groups, required=rng.choice(("", RACK)))
        pin = Pin(RACK, "n1") if rng.random() < 0.2 else None
        gang = Gang(f"ns/g{g}", root, priority=g, pinned_domain=pin, headroom=((SHAPES[0], 2),))
        decision, answer = await decider.place(
            gang, DecisionSteps(Budget()), closed=["n2"] if rng.random() < 0.3 else []
        )
        decisions.append(decision)
        if isinstance(answer, Placement):
            snapshot.assume(answer)
            placed += answer.pods
        else:
            units = [Running(one.uid, one.priority, (one,)) for one in sorted(placed, key=lambda p: p.uid)]
            budget = DisruptionBudget("ns/keep", 1, frozenset(p.uid for p in placed[:3]))
            decisions.append((await decider.preempt(gang, units, [budget], DecisionSteps(Budget())))[0])
        if placed and rng.random() < 0.4:
            snapshot.remove_pod(placed.pop(rng.randrange(len(placed))).uid)
        if rng.random() < 0.2:
            snapshot.remove_node(f"n{rng.randrange(12)}")
    journal.close()
    return decisions


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_gives_the_same_answers(tmp_path: Path, seed: int) -> None:
    decisions = a_busy_day(tmp_path, seed)
    again = list(replay(tmp_path))
    assert [one.decision for one in again] == decisions
    assert [one for one in again if not one.is_same] == []
    assert any(one.recorded.get("fits") for one in again)


def test_some_of_those_days_have_refusals_and_victims(tmp_path: Path) -> None:
    kinds = set()
    for seed in range(5):
        a_busy_day(tmp_path / str(seed), seed)
        for one in replay(tmp_path / str(seed)):
            kinds.add((one.kind, bool(one.recorded.get("fits", one.recorded.get("found")))))
    assert kinds == {("place", True), ("place", False), ("preempt", True), ("preempt", False)}


def test_a_journal_that_was_tampered_with_is_reported(tmp_path: Path) -> None:
    a_busy_day(tmp_path, 0)
    file = tmp_path / JOURNAL
    text = file.read_text()
    assert '"core":1' in text
    file.write_text(text.replace('"core":1', '"core":2'))
    result = CliRunner().invoke(replay_command, [str(tmp_path), "-q"])
    assert result.exit_code == 1
    assert "DIFFERENT" in result.output


def test_a_resource_that_was_forgotten_has_its_row_given_away_in_a_replay_too(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    recorded = RecordedSnapshot(journal)
    recorded.add_node(NodeFacts("n", {"old": 1}))
    recorded.forget(["old"])
    recorded.add_node(NodeFacts("n", {}))
    recorded.add_node(NodeFacts("n", {"new": 1}))
    journal.close()
    replayed = Snapshot()
    for line in map(json.loads, (tmp_path / JOURNAL).read_text().splitlines()):
        list(_apply(line, replayed, []))
    assert replayed.resources == recorded.resources
    assert "old" not in replayed.resources


def test_the_command_says_that_all_is_the_same(tmp_path: Path) -> None:
    count = len(a_busy_day(tmp_path, 1))
    result = CliRunner().invoke(replay_command, [str(tmp_path), "-q"])
    assert (result.exit_code, result.output) == (0, f"{count} decisions, all the same\n")


def test_something_else_is_not_a_journal(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text('{"op":"journal","format":1}\nnonsense\n')
    with pytest.raises(BadJournal, match=f"{JOURNAL}:2"):
        list(replay(tmp_path))
    with pytest.raises(BadJournal, match="there is no journal"):
        list(replay(tmp_path / "empty"))


async def day_of_queues(directory: Path) -> list[bool]:
    """A gang is let in by its queue, the next is kept out; then the queue grows, and a loan is called back."""
    journal = Journal(directory)
    snapshot = RecordedSnapshot(journal)
    decider = Decider(snapshot, "day", journal)
    for n in range(2):
        snapshot.add_node(NodeFacts(f"n{n}", {CARD: 4, "pods": 20}, {"kubernetes.io/hostname": f"n{n}"}))

    def queues(red: int, blue: int) -> None:
        tree = QueueTree(
            [
                QuotaQueue(
                    f"{ELASTIC}/{name}", guaranteed={CARD: gpus}, limit={CARD: gpus * 2}, weight={CARD: 1}, tree="t"
                )
                for name, gpus in (("red", red), ("blue", blue))
            ]
        )
        quota = Quota(QueueObjects(tree, kinds=frozenset((ELASTIC,))))
        quota.ask({f"{ELASTIC}/red": {CARD: 4}})
        snapshot.use(STANDARD.joined(policies=[quota, FixedUse(quota)]))

    def wanted(name: str, queue: str, pods: int) -> Gang:
        labels, card = {QUOTA: queue}, Shape(((CARD, 1), ("pods", 1)))
        made = tuple(PodFacts(f"{name}-{n}", "ns", f"{name}-{n}", card, labels, gang=name) for n in range(pods))
        return Gang(name, Branch(name, (PodGroup("g", pods, made),)), labels=labels)

    fits = []
    for name, queue, pods in (("one", "blue", 8), ("two", "red", 4)):
        queues(4 if name == "two" else 1, 4)
        _, answer = await decider.place(wanted(name, queue, pods), DecisionSteps(Budget()))
        fits.append(isinstance(answer, Placement))
        if isinstance(answer, Placement):
            snapshot.assume(answer)
    units = [Running("one", 0, tuple(sorted(snapshot.pods(), key=lambda pod: pod.uid)), {"g": 4})]
    _, found = await decider.preempt(wanted("two", "red", 4), units, (), DecisionSteps(Budget()))
    fits.append(isinstance(found, Victims))
    queues(1, 1)
    _, answer = await decider.place(wanted("three", "blue", 3), DecisionSteps(Budget()))
    fits.append(isinstance(answer, Placement))
    journal.close()
    return fits


def test_queues_that_change_between_decisions_are_replayed_as_they_were(tmp_path: Path) -> None:
    assert run(day_of_queues(tmp_path)) == [True, False, True, False]
    again = list(replay(tmp_path))
    assert [one for one in again if not one.is_same] == []
    assert [one.recorded["reason"] for one in again if one.recorded.get("reason")] == ["NoSuitableNode", "NotAdmitted"]
    without = [line for line in (tmp_path / JOURNAL).read_text().splitlines() if '"op":"seams"' not in line]
    (tmp_path / JOURNAL).write_text("\n".join(without) + "\n")
    assert [one.is_same for one in replay(tmp_path)] != [True] * 4, "the queues decided"
