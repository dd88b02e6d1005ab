"""Whole updates as a scaling group sees them: each row is what was observed next, and which replicas are taken then."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.support.manifests import clique, group, pcs
from tests.support.observed import NOW, clique_of, group_of, group_seen, set_of

from grove.api import conditions as words
from grove.api.meta import Json, ObjectMeta, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroupUpdateProgress
from grove.operator.scalinggroup.plan import plan_group
from grove.operator.scalinggroup.rollout import (
    GroupReplicaState,
    GroupUpdateFacts,
    group_update_facts,
    next_group_replicas,
    next_rollout_step,
)
from grove.operator.shared.children import template_hashes
from grove.operator.shared.rollout import known_restarts
from grove.operator.shared.stepper import Budget

OLD, NEW, NEWER = "hash-a", "hash-b", "hash-c"

LETTERS = {
    "o": GroupReplicaState(0, outdated=True, whole=True, new=False),
    "b": GroupReplicaState(0, outdated=True, whole=False, new=False),
    "r": GroupReplicaState(0, outdated=False, whole=False, new=False),
    "n": GroupReplicaState(0, outdated=False, whole=False, new=True),
    ".": GroupReplicaState(0, outdated=False, whole=True, new=True),
}


def states(text: str) -> list[GroupReplicaState]:
    """`o` old and whole, `b` old and broken, `r` taken and not back, `n` back but not ready, `.` new and whole."""
    return [replace(LETTERS[letter], index=index) for index, letter in enumerate(text)]


def flying(progress: PodCliqueScalingGroupUpdateProgress | None) -> str:
    """`-` no update, `0 2` the replicas selected, `` open with none, `end` over."""
    if progress is None:
        return "-"
    found = progress.ready_replica_indices_selected_to_update
    if progress.update_ended_at is not None:
        assert found is None
        return "end"
    return " ".join(map(str, (found.current, *found.also_current))) if found is not None else ""


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(
            [
                ("ooo", [0], "0"),
                ("roo", [], "0"),
                ("noo", [], "0"),
                (".oo", [1], "1"),
                (".ro", [], "1"),
                ("..o", [2], "2"),
                ("..r", [], "2"),
                ("...", [], "end"),
                ("...", [], "end"),
            ],
            id="one replica after the other, lowest first",
        ),
        pytest.param(
            [("obo", [1, 0], "0"), ("rro", [], "0"), (".ro", [2], "2"), (".rr", [], "2"), (".n.", [], "end")],
            id="broken replicas go at once and nobody waits for them to be whole",
        ),
        pytest.param(
            [
                ("oooo", [0, 1], "0 1", {"budget": Budget(2)}),
                ("rroo", [], "0 1"),
                (".roo", [2], "1 2"),
                (".r.o", [3], "1 3"),
                ("....", [], "end"),
            ],
            id="two at a time",
        ),
        pytest.param(
            [
                ("oooo", [0, 1], "0 1", {"budget": Budget(3, 2)}),
                ("rroo", [], "0 1"),
                (".roo", [2], "1 2"),
                ("..ro", [3], "2 3"),
                ("....", [], "end"),
            ],
            id="three may be down, and two must be whole: never below the minimum",
        ),
        pytest.param(
            [("oo", [0], "0", {"budget": Budget(2, 2)}), ("ro", [], "0"), (".o", [1], "1"), ("..", [], "end")],
            id="all are needed: one below the minimum, whatever is allowed",
        ),
        pytest.param(
            [("obb", [1, 2], "", {"budget": Budget(1, 2)}), ("onr", [], ""), ("o.n", [0], "0"), ("...", [], "end")],
            id="the minimum must be there before a whole replica goes",
        ),
        pytest.param(
            [("oo", [0], "0"), ("ro.", [], "0"), (".o.", [1], "1"), ("...", [], "end")],
            id="a replica added meanwhile is new and not taken",
        ),
        pytest.param([("ooo", [0], "0"), (".oo", [1], "1"), (".", [], "end")], id="those in the air are scaled away"),
        pytest.param([("o", [0], "0"), ("", [], "end")], id="scaled to nothing"),
        pytest.param([("...", [], "end")], id="nothing of this group changed"),
        pytest.param(
            [
                ("ooo", [0], "0"),
                ("roo", [], "end", {"chosen": False}),
                (".oo", [], "end"),
                (".oo", [1], "1", {"chosen": True}),
                ("..o", [2], "2"),
                ("...", [], "end"),
            ],
            id="not its turn any more: closed, and taken up again with the turn",
        ),
        pytest.param(
            [
                ("oo", [0], "0"),
                ("bo", [0], "0", {"target": NEWER}),
                ("ro", [], "0"),
                (".o", [1], "1"),
                ("..", [], "end"),
            ],
            id="a change in the middle retakes the replica in the air and no other",
        ),
        pytest.param(
            [
                ("oo", [0], "0"),
                ("oo", [0], "0", {"target": NEWER}),
                ("ro", [], "0"),
                (".o", [1], "1"),
                ("..", [], "end"),
            ],
            id="a change while the replica had not even left",
        ),
        pytest.param(
            [
                ("oo", [0], "0"),
                ("oo", [], "end", {"rolling": False}),
                ("oo", [], "end"),
                ("oo", [0], "0", {"rolling": True}),
                (".o", [1], "1"),
                ("..", [], "end"),
            ],
            id="OnDelete closes it; taken back within the same update it goes on",
        ),
        pytest.param([("oo", [], "end", {"rolling": False}), ("oo", [], "end")], id="under OnDelete over at once"),
        pytest.param([("oo", [], "-", {"chosen": False})], id="not its turn"),
        pytest.param(
            [
                ("..b", [], "-", {"chosen": False, "target": OLD}),
                ("..b", [2], "", {"chosen": True}),
                ("..n", [], "end"),
            ],
            id="taken back before its turn: a replica that scaling made from it goes",
        ),
    ],
)
def test_whole_updates(rows: list[Any]) -> None:
    observed = GroupUpdateFacts(target=NEW, realised=OLD, progress=None, replicas=())
    for number, (text, take, selected, *rest) in enumerate(rows):
        observed = replace(observed, replicas=states(text), **(rest[0] if rest else {}))
        step = next_rollout_step(observed, NOW + timedelta(minutes=number))
        assert (sorted(step.take), flying(step.progress)) == (sorted(take), selected), f"row {number}"
        ended = flying(step.progress) == "end" and observed.rolling and observed.chosen
        observed = replace(observed, progress=step.progress, realised=observed.target if ended else observed.realised)


def test_a_group_that_is_what_it_shall_be_has_no_update() -> None:
    step = next_rollout_step(GroupUpdateFacts(NEW, NEW, None, states("..")), NOW)
    assert (step.progress, step.take) == (None, ())


@given(
    facts=st.lists(st.text("obrn.", min_size=1, max_size=5), min_size=1, max_size=6),
    budget=st.integers(1, 3),
    current_minimum=st.integers(1, 4),
)
def test_what_is_taken_can_be_spared(facts: list[str], budget: int, current_minimum: int) -> None:
    observed = GroupUpdateFacts(NEW, OLD, None, (), budget=Budget(budget, current_minimum))
    for text in facts:
        observed = replace(observed, replicas=states(text))
        step = next_rollout_step(observed, NOW)
        whole = [index for index in step.take if observed.replicas[index].whole]
        broken = [replica.index for replica in observed.replicas if replica.outdated and not replica.whole]
        assert sorted(step.take) == sorted([*whole, *broken])
        assert len(whole) <= budget
        if whole:
            left = sum(replica.whole for replica in observed.replicas) - len(whole)
            is_only_one = len(flying(step.progress).split()) == 1 and left == current_minimum - 1
            assert left >= current_minimum or is_only_one, (
                "below the minimum only by one replica, if no other is in flight"
            )
        observed = replace(observed, progress=step.progress)


# From objects

HASH = "g2"


def demo(version: str = "", **status: Any) -> PodCliqueSet:
    labels = {"version": version} if version else None
    manifest = pcs(
        "d",
        clique("b", labels=labels),
        clique("c", 2, min_available=1),
        groups=[group("g", "b", "c", replicas=2)],
    )
    return set_of(manifest, currentGenerationHash=HASH, **status)


CHOSEN: Json = {"updateProgress": {"updateStartedAt": NOW.isoformat(), "currentlyUpdating": [{"replicaIndex": 0}]}}


def member(
    of: PodCliqueSet, replica: int, name: str, *, pods_from: PodCliqueSet | None = None, **status: Any
) -> PodClique:
    """A member as `of` has it, whose pods are from the templates of `pods_from`."""
    hashes, old = template_hashes(of), template_hashes(pods_from or of)
    pods = 1 if name == "b" else 2
    facts: Json = {
        "currentPodTemplateHash": old[name],
        "currentPodCliqueSetGenerationHash": HASH,
        "readyReplicas": pods,
        "scheduledReplicas": pods,
        "updatedReplicas": pods if old == hashes else 0,
    }
    found = clique_of(of, f"d-0-g-{replica}-{name}", **{**facts, **status})
    return structs.replace(found, status=structs.replace(found.status, replicas=pods))


def observe(found: list[PodClique], restarts: list[Json] | None = None) -> list[GroupReplicaState]:
    now_ = demo("two", **CHOSEN)
    whole = group_of(now_, "d-0-g", replicaRestarts=restarts or [])
    return list(group_update_facts(group_seen(now_, whole, found)).replicas)


BEFORE, AFTER = demo(), demo("two")


@pytest.mark.parametrize(
    ("found", "restarts", "want"),
    [
        pytest.param(
            [member(BEFORE, 0, "b"), member(BEFORE, 0, "c")],
            [],
            GroupReplicaState(0, outdated=True, whole=True, new=False),
            id="a clique has the old template: the replica is outdated",
        ),
        pytest.param(
            [member(AFTER, 0, "b"), member(AFTER, 0, "c")],
            [],
            GroupReplicaState(0, outdated=False, whole=True, new=True),
            id="all new",
        ),
        pytest.param(
            [member(AFTER, 0, "b", pods_from=BEFORE), member(AFTER, 0, "c")],
            [],
            GroupReplicaState(0, outdated=True, whole=True, new=False),
            id="OnDelete left old pods under a new template",
        ),
        pytest.param(
            [member(BEFORE, 0, "b", readyReplicas=0), member(BEFORE, 0, "c")],
            [],
            GroupReplicaState(0, outdated=True, whole=False, new=False),
            id="outdated and broken",
        ),
        pytest.param(
            [member(AFTER, 0, "b", pods_from=BEFORE), member(AFTER, 0, "c")],
            [{"replicaIndex": 0, "incarnation": 1, "generationHash": HASH}],
            GroupReplicaState(0, outdated=False, whole=False, new=False),
            id="taken: its cliques have not restarted yet, whatever their status says",
        ),
        pytest.param(
            [member(AFTER, 0, "b", pods_from=BEFORE, incarnation=1), member(AFTER, 0, "c", incarnation=1)],
            [{"replicaIndex": 0, "incarnation": 1, "generationHash": HASH}],
            GroupReplicaState(0, outdated=True, whole=True, new=False),
            id="taken, and restarted with old templates because another change came and was taken back",
        ),
        pytest.param(
            [member(AFTER, 0, "b", incarnation=1), member(AFTER, 0, "c", incarnation=1)],
            [{"replicaIndex": 0, "incarnation": 1, "generationHash": HASH}],
            GroupReplicaState(0, outdated=False, whole=True, new=True),
            id="taken and back",
        ),
        pytest.param(
            [member(BEFORE, 0, "b", pods_from=AFTER), member(AFTER, 0, "c")],
            [],
            GroupReplicaState(0, outdated=False, whole=True, new=False),
            id="told of a change that was taken back, its pods were never replaced: it is to be told back",
        ),
        pytest.param(
            [member(AFTER, 0, "b")],
            [],
            GroupReplicaState(0, outdated=False, whole=False, new=False),
            id="half a replica",
        ),
    ],
)
def test_a_group_replica_is_seen(found: list[PodClique], restarts: list[Json], want: GroupReplicaState) -> None:
    seen = observe(found, restarts)[0]
    assert replace(seen, scheduled=True) == want, "no member of these says that its pods have nodes"


def test_taking_a_group_replica_raises_its_incarnation_above_that_of_its_set_replica() -> None:
    now_ = demo("two", **CHOSEN, replicaRestarts=[{"replicaIndex": 0, "incarnation": 3}])
    whole = group_of(now_, "d-0-g", replicaRestarts=[{"replicaIndex": 1, "incarnation": 1, "gangRestarts": 1}])
    found = [member(BEFORE, replica, name, incarnation=3) for replica in (0, 1) for name in ("b", "c")]

    turned = next_group_replicas(group_seen(now_, whole, found), NOW)

    entries = [(one.replica_index, one.incarnation, one.generation_hash) for one in turned.status.replica_restarts]
    assert entries == [(0, 4, HASH), (1, 1, "")]


@pytest.mark.parametrize(
    ("of_set", "of_group", "of_members", "want"),
    [
        pytest.param(0, [], [0, 0], [], id="nothing was restarted"),
        pytest.param(0, [(1, 2)], [0, 2], [(1, 2)], id="members have what their group says"),
        pytest.param(3, [], [3, 3], [], id="or what their set says"),
        pytest.param(4, [(0, 5)], [3, 1], [(0, 5)], id="or have yet to follow"),
        pytest.param(0, [], [0, 2], [(1, 2)], id="the group was made again: its members know"),
        pytest.param(0, [(1, 4)], [3, 4], [(0, 3), (1, 4)], id="the set was: again they do"),
    ],
)
def test_a_group_is_never_behind_its_members(
    of_set: int, of_group: list[tuple[int, int]], of_members: list[int], want: list[tuple[int, int]]
) -> None:
    observed = demo(replicaRestarts=[{"replicaIndex": 0, "incarnation": of_set}])
    entries = [{"replicaIndex": index, "incarnation": number} for index, number in of_group]
    found = [member(observed, at, name, incarnation=of_members[at]) for at in (0, 1) for name in ("b", "c")]
    gone = structs.replace(member(observed, 0, "b", incarnation=9), metadata=deleting(found[0]))
    whole = group_of(observed, "d-0-g", replicaRestarts=entries)

    restarts = known_restarts(observed, 0, whole, [*found, gone])

    assert [(one.replica_index, one.incarnation) for one in restarts] == want


def deleting(clique: PodClique) -> ObjectMeta:
    return structs.replace(clique.metadata, deletion_timestamp=NOW)


def test_a_group_whose_set_was_made_again_is_not_said_to_be_restarted() -> None:
    observed = demo()
    found = [member(observed, at, name, incarnation=2) for at in (0, 1) for name in ("b", "c")]
    plan = plan_group(group_seen(observed, group_of(observed, "d-0-g", incarnation=2), found), NOW)
    assert plan.of_parts.incarnation == 2
    assert find_condition(plan.of_parts.conditions, words.GANG_TERMINATION_IN_PROGRESS) is None
