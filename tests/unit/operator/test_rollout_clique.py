"""Whole updates as a clique sees them: each row is what pods were observed next, and which are replaced then."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import clique, group, pcs
from tests.support.observed import NOW, clique_of, clique_seen, group_of, pod, set_of

from grove.api import labels as key
from grove.api.meta import Json
from grove.api.podclique import PodClique, PodCliqueUpdateProgress
from grove.api.podcliqueset import PodCliqueSet
from grove.operator.podclique.rollout import (
    CliqueUpdateFacts,
    PodState,
    clique_update_facts,
    is_due,
    next_clique_step,
    next_rollout_step,
)
from grove.operator.shared.children import template_hashes
from grove.operator.shared.stepper import Budget

OLD, NEW, NEWER = ("gen-a", "hash-a"), ("gen-b", "hash-b"), ("gen-c", "hash-c")


def pods(text: str) -> list[PodState]:
    """A letter an index: `o` old and ready, `b` old and not, `.` new and ready, `n` new and not, `_` no pod."""
    return [
        PodState(f"{letter}{index}", index, old=letter in "ob", ready=letter in "o.", uid=f"u{index}")
        for index, letter in enumerate(text)
        if letter != "_"
    ]


def selected(progress: PodCliqueUpdateProgress | None) -> str:
    if progress is None:
        return "-"
    found = progress.ready_pods_selected_to_update
    if progress.update_ended_at is not None:
        assert found is None
        return "end"
    return " ".join(map(str, found.indexes)) if found is not None else ""


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(
            [
                ("ooo", [0], "0"),
                ("_oo", [], "0"),
                ("noo", [], "0"),
                (".oo", [1], "1"),
                (".no", [], "1"),
                ("..o", [2], "2"),
                ("..n", [], "2"),
                ("...", [], "end"),
                ("...", [], "end"),
            ],
            id="one pod after the other",
        ),
        pytest.param(
            [("obo", [1, 0], "0"), ("_no", [], "0"), ("n.o", [], "0"), ("..o", [2], "2"), ("...", [], "end")],
            id="a broken pod goes at once; its replacement does not stand in for the one that is waited for",
        ),
        pytest.param([("bb", [0, 1], ""), ("nn", [], "end")], id="all broken: all at once, and nothing to wait for"),
        pytest.param(
            [
                ("oooo", [0, 1], "0 1", {"budget": Budget(2)}),
                ("nnoo", [], "0 1"),
                ("n.oo", [2], "0 2"),
                ("..no", [3], "2 3"),
                ("....", [], "end"),
            ],
            id="two at a time",
        ),
        pytest.param(
            [
                ("oooo", [0, 1], "0 1", {"budget": Budget(3, 2)}),
                ("_ooo", [1], "0 1"),
                ("n.oo", [2], "0 2"),
                ("..no", [3], "2 3"),
                ("....", [], "end"),
            ],
            id="three may be down, and two must be ready: never below the minimum",
        ),
        pytest.param(
            [
                ("ooo", [0], "0", {"budget": Budget(3, 3)}),
                ("noo", [], "0"),
                (".oo", [1], "1"),
                ("..o", [2], "2"),
                ("...", [], "end"),
            ],
            id="all are needed: one below the minimum, whatever is allowed",
        ),
        pytest.param(
            [("obb", [1, 2], "", {"budget": Budget(1, 2)}), ("o.n", [0], "0"), ("...", [], "end")],
            id="the minimum must be ready before a ready pod goes",
        ),
        pytest.param([("oo", [0], "0"), ("oo", [0], "0"), ("_o", [], "0")], id="deleted again until it is gone"),
        pytest.param(
            [("ooo", [0], "0", {"budget": Budget(1, 3)}), ("oo_", [], ""), ("oon", [], ""), ("oo.", [0], "0")],
            id="what was chosen stays while another pod is lost",
        ),
        pytest.param(
            [
                ("oo", [0], "0", {"budget": Budget(1, 2)}),
                ("no", [], "0"),
                ("ob", [1], "", {"target": NEWER}),
                ("on", [], ""),
                ("o.", [0], "0"),
                ("..", [], "end"),
            ],
            id="a pod that is back and outdated again goes only if it can be spared",
        ),
        pytest.param(
            [("oo", [0], "0"), ("no..", [], "0", {"wanted": 4}), (".o..", [1], "1"), ("....", [], "end")],
            id="pods added meanwhile are new and not taken",
        ),
        pytest.param(
            [("ooo", [0], "0"), ("_oo", [1], "1", {"wanted": 2}), ("_.o", [2], "2"), ("_..", [], "end")],
            id="an index that scaling took away is not waited for",
        ),
        pytest.param(
            [
                ("oo", [0], "0"),
                ("no", [], "0"),
                ("bo", [0], "0", {"target": NEWER}),
                ("no", [], "0"),
                (".o", [1], "1"),
                ("..", [], "end"),
            ],
            id="a change in the middle: the pod in the air is retaken, no other goes",
        ),
        pytest.param(
            [
                ("oo", [0], "0"),
                (".o", [1], "1"),
                ("on", [], "1", {"target": NEWER}),
                ("o.", [0], "0"),
                ("..", [], "end"),
            ],
            id="a change in the middle that only some pods already have",
        ),
        pytest.param(
            [
                ("oo", [0], "0"),
                ("no", [], "end", {"chosen": False}),
                (".o", [], "end"),
                (".o", [1], "1", {"chosen": True}),
                ("..", [], "end"),
            ],
            id="not its turn any more: closed, and taken up again with the turn",
        ),
        pytest.param(
            [("oo", [0], "0"), ("_o", [], "end", {"rolling": False}), ("no", [], "end")],
            id="switched to OnDelete: closed",
        ),
        pytest.param([("oo", [], "end", {"rolling": False})], id="under OnDelete over at once"),
        pytest.param([("oo", [], "-", {"chosen": False})], id="not its turn"),
        pytest.param(
            [("oo", [], "-", {"has_template": False}), ("oo", [0], "0", {"has_template": True})],
            id="before the clique has the new template there is nothing to replace a pod by",
        ),
        pytest.param([("oo", [], "-", {"is_member": True})], id="a member waits for its replica"),
        pytest.param([("..", [], "end")], id="pods are new already"),
        pytest.param(
            [
                ("oo", [], "-", {"chosen": False}),
                ("..o", [2], "2", {"chosen": True, "target": OLD}),
                ("..n", [], "2"),
                ("...", [], "end"),
            ],
            id="taken back before its turn: a pod that scaling made from it goes",
        ),
    ],
)
def test_whole_updates(rows: list[Any]) -> None:
    observed = CliqueUpdateFacts(target=NEW, realised=OLD, progress=None, pods=(), wanted=len(rows[0][0]))
    for number, (text, gone, flying, *rest) in enumerate(rows):
        observed = replace(observed, pods=pods(text), **(rest[0] if rest else {}))
        step = next_rollout_step(observed, NOW + timedelta(minutes=number))
        assert (sorted(step.replace), selected(step.progress)) == (sorted(f"u{i}" for i in gone), flying), (
            f"row {number}"
        )
        ended = flying == "end" and observed.rolling and observed.chosen
        observed = replace(observed, progress=step.progress, realised=observed.target if ended else observed.realised)


def test_the_oldest_goes_first() -> None:
    found = [PodState("young", 0, old=True, created=9, uid="y"), PodState("old", 1, old=True, created=3, uid="o")]
    step = next_rollout_step(CliqueUpdateFacts(NEW, OLD, None, found, wanted=2), NOW)
    assert step.replace == {"o"}
    assert step.progress is not None
    assert step.progress.ready_pods_selected_to_update is not None
    assert step.progress.ready_pods_selected_to_update.current == "old"


def test_who_was_replaced_is_kept_by_name() -> None:
    observed = CliqueUpdateFacts(NEW, OLD, None, pods("ooo"), wanted=3)
    for text in ("ooo", ".oo", "..o"):
        observed = replace(observed, pods=pods(text))
        observed = replace(observed, progress=next_rollout_step(observed, NOW).progress)
    assert observed.progress is not None
    taken = observed.progress.ready_pods_selected_to_update
    assert taken is not None
    assert (taken.current, taken.completed) == ("o2", ("o0", "o1"))


def left_by_ondelete(target: tuple[str, str]) -> PodCliqueUpdateProgress:
    return PodCliqueUpdateProgress(
        update_started_at=NOW,
        update_ended_at=NOW,
        pod_clique_set_generation_hash=target[0],
        pod_template_hash=target[1],
    )


def test_what_ondelete_left_on_a_member_does_not_hold_it_back() -> None:
    """An ended update for an older generation would keep the clique's hashes there for ever."""
    observed = CliqueUpdateFacts(NEW, OLD, left_by_ondelete(OLD), pods(".."), wanted=2, is_member=True)
    assert next_rollout_step(observed, NOW).progress is None


@pytest.mark.parametrize("rolling", [True, False])
def test_pods_are_not_counted_by_a_change_that_ondelete_announced_and_that_was_taken_back(rolling: bool) -> None:
    observed = CliqueUpdateFacts(OLD, OLD, left_by_ondelete(NEW), pods(".."), wanted=2, rolling=rolling)
    later = NOW + timedelta(minutes=1)
    step = next_rollout_step(observed, later)
    assert step.progress is not None
    assert (step.progress.pod_clique_set_generation_hash, step.progress.pod_template_hash) == OLD
    assert (step.progress.update_ended_at, step.replace) == (later, frozenset())
    assert next_rollout_step(replace(observed, progress=step.progress), later + timedelta(minutes=1)) == step


@given(
    facts=st.lists(st.text("obn._", min_size=4, max_size=4), min_size=1, max_size=8),
    budget=st.integers(1, 3),
    current_minimum=st.integers(1, 4),
    targets=st.lists(st.sampled_from([NEW, NEWER]), min_size=8, max_size=8),
)
def test_what_is_taken_can_be_spared(
    facts: list[str], budget: int, current_minimum: int, targets: list[tuple[str, str]]
) -> None:
    observed = CliqueUpdateFacts(NEW, OLD, None, (), wanted=4, budget=Budget(budget, current_minimum))
    for text, target in zip(facts, targets, strict=False):
        observed = replace(observed, pods=pods(text), target=target)
        step = next_rollout_step(observed, NOW)
        taken = [one for one in observed.pods if one.uid in step.replace and one.ready]
        assert len(_indexes(step.progress)) <= budget
        if taken:
            left = sum(one.ready and one.uid not in step.replace for one in observed.pods)
            is_only_one = len(_indexes(step.progress)) == 1 and left == current_minimum - 1
            assert left >= current_minimum or is_only_one, "below the minimum only by one pod, if no other is in flight"
        assert all(one.uid in step.replace for one in observed.pods if one.old and not one.ready)
        assert not any(one.uid in step.replace for one in observed.pods if not one.old)
        realised = target if selected(step.progress) == "end" else observed.realised
        observed = replace(observed, progress=step.progress, realised=realised)
        again = next_rollout_step(observed, NOW + timedelta(hours=1))
        assert (again.progress, again.replace) == (step.progress, step.replace), "the same facts again change nothing"


def _indexes(progress: PodCliqueUpdateProgress | None) -> tuple[int, ...]:
    found = progress.ready_pods_selected_to_update if progress is not None else None
    return found.indexes if found is not None else ()


# From objects: updates and restarts together


def demo(**status: Any) -> PodCliqueSet:
    manifest = pcs("d", clique("a", 2), clique("b"), groups=[group("g", "b", replicas=2)])
    return set_of(manifest, currentGenerationHash="gen", **status)


CHOSEN: Json = {"updateProgress": {"updateStartedAt": NOW.isoformat(), "currentlyUpdating": [{"replicaIndex": 0}]}}


def stamped(index: int, incarnation: int, **facts: Any) -> Any:
    found = pod("d-0-a", index, ready=True, **facts)
    found.metadata.annotations[key.INCARNATION] = str(incarnation)
    return found


def turn(observed: PodCliqueSet, found: PodClique, *seen: Any, **facts: Any) -> tuple[int, list[str]]:
    one = next_clique_step(clique_seen(observed, found, seen, **facts), NOW)
    return one.incarnation, sorted(one.replace | one.restart)


def test_pods_are_compared_with_the_template_of_now() -> None:
    observed = demo(**CHOSEN)
    own = template_hashes(observed)["a"]
    first = pod("d-0-a", 0, ready=True, template_hash=own)
    found = [first, pod("d-0-a", 1, template_hash="x"), pod("d-0-a", 2, deleting=True)]
    seen = clique_update_facts(clique_seen(observed, clique_of(observed, "d-0-a"), found))
    assert [(one.index, one.old, one.ready) for one in seen.pods] == [(0, False, True), (1, True, False)]
    assert seen.chosen


def test_a_restart_takes_all_earlier_pods_at_once() -> None:
    observed = demo(replicaRestarts=[{"replicaIndex": 0, "incarnation": 2}])
    found = clique_of(observed, "d-0-a")
    assert turn(observed, found, pod("d-0-a", 0), stamped(1, 1)) == (2, ["uid-d-0-a-0", "uid-d-0-a-1"])
    assert turn(observed, found, stamped(0, 2), stamped(1, 2, deleting=True)) == (2, [])


def test_an_owner_that_lost_its_status_restarts_no_pod() -> None:
    observed = demo()
    found = clique_of(observed, "d-0-a", incarnation=3)
    assert turn(observed, found, stamped(0, 3), stamped(1, 3)) == (3, [])


def test_nothing_moves_before_the_set_has_recorded_the_change() -> None:
    observed = demo(**CHOSEN)
    found = clique_of(observed, "d-0-a", currentPodCliqueSetGenerationHash="older", currentPodTemplateHash="older")
    assert turn(observed, found, pod("d-0-a", 0, template_hash="older"), recorded=False) == (0, [])
    assert turn(observed, found, pod("d-0-a", 0, template_hash="older")) == (0, ["uid-d-0-a-0"])


@pytest.mark.parametrize(
    ("template", "want"),
    [
        pytest.param("", (0, []), id="not before it has the new template: its pods would be old again"),
        pytest.param("own", (1, ["uid-d-0-g-1-b-0"]), id="then at once"),
    ],
)
def test_a_group_replica_that_an_update_took(template: str, want: tuple[int, list[str]]) -> None:
    observed = demo(**CHOSEN)
    own = template_hashes(observed)["b"]
    whole = group_of(
        observed, "d-0-g", replicaRestarts=[{"replicaIndex": 1, "incarnation": 1, "generationHash": "gen"}]
    )
    found = clique_of(observed, "d-0-g-1-b")
    found.metadata.labels[key.POD_TEMPLATE_HASH] = own if template else "before"

    one = next_clique_step(clique_seen(observed, found, [pod("d-0-g-1-b", 0, ready=True)], group=whole), NOW)

    assert (one.incarnation, sorted(one.restart)) == want


def test_a_choice_is_written_before_anyone_goes() -> None:
    observed = demo(**CHOSEN)
    found = clique_of(observed, "d-0-a", currentPodCliqueSetGenerationHash="older", currentPodTemplateHash="older")
    seen = [pod("d-0-a", index, ready=True, template_hash="older") for index in (0, 1)]
    one = next_clique_step(clique_seen(observed, found, seen), NOW)
    assert one.replace
    assert one.must_be_recorded(found.status)


UPDATED = pcs(
    "d",
    clique("a", 2, labels={"version": "two"}),
    clique("b", labels={"version": "two"}),
    groups=[group("g", "b", replicas=2)],
    replicas=2,
)
OPEN: Json = {"updateStartedAt": NOW.isoformat(), "currentlyUpdating": [{"replicaIndex": 0}]}
TAKEN = [{"replicaIndex": 1, "incarnation": 1, "generationHash": "gen"}]


@pytest.mark.parametrize(
    ("fqn", "facts", "want"),
    [
        pytest.param("d-0-a", {}, True, id="its replica was chosen"),
        pytest.param("d-1-a", {}, False, id="its replica was not chosen"),
        pytest.param("d-0-a", {"recorded": False}, False, id="not before the set has recorded the change"),
        pytest.param("d-1-a", {"strategy": {"type": "OnDelete"}}, True, id="OnDelete hands it out at once"),
        pytest.param("d-0-a", {"label": "now"}, False, id="it has the template"),
        pytest.param("d-1-a", {"pods": "now"}, True, id="all its pods are from the template of now"),
        pytest.param("d-0-g-1-b", {}, False, id="a member whose replica of the group was not taken"),
        pytest.param("d-0-g-1-b", {"restarts": TAKEN}, True, id="a member whose replica was taken"),
        pytest.param("d-0-g-0-b", {"restarts": TAKEN}, False, id="a member of another replica"),
        pytest.param("d-1-a", {"progress": None}, True, id="no update is open: somebody edited it"),
    ],
)
def test_when_a_clique_gets_the_template_of_now(fqn: str, facts: dict[str, Any], want: bool) -> None:
    manifest = {**UPDATED, "spec": {**UPDATED["spec"], "updateStrategy": facts.get("strategy")}}
    observed = set_of(manifest, currentGenerationHash="gen", updateProgress=facts.get("progress", OPEN))
    now_hash = template_hashes(observed)["b" if fqn.endswith("b") else "a"]
    pods_hash = now_hash if facts.get("pods") == "now" else "before"
    found = clique_of(observed, fqn, currentPodTemplateHash=pods_hash)
    found.metadata.labels[key.POD_TEMPLATE_HASH] = now_hash if facts.get("label") == "now" else "before"
    whole = group_of(observed, "d-0-g", replicaRestarts=facts.get("restarts", []))
    seen = clique_seen(
        observed,
        found,
        [pod(fqn, 0, ready=True, template_hash=pods_hash)],
        recorded=facts.get("recorded", True),
        group=whole,
    )
    assert is_due(seen) == want
