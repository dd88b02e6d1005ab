"""Whole updates as a set sees them: each row is what was observed next, and what the status is to say then."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.support.manifests import clique, group, pcs
from tests.support.observed import NOW, clique_of, group_of, set_of, set_seen

from grove.api import conditions as words
from grove.api.meta import Json, find_condition
from grove.api.podcliqueset import (
    PodCliqueSet,
    PodCliqueSetStatus,
    PodCliqueSetUpdateProgress,
    ReplicaUpdate,
    max_unavailable,
)
from grove.api.status import ReplicaRestart
from grove.operator.podcliqueset.rollout import (
    ReplicaState,
    SetUpdateFacts,
    is_step_over,
    next_replicas,
    next_rollout_step,
    set_update_facts,
    with_progress_time,
)
from grove.operator.podcliqueset.status import ObservedSet
from grove.operator.shared.children import template_hashes
from grove.operator.shared.rollout import concerned_replicas, is_chosen

OLD, NEW, NEWER = "hash-a", "hash-b", "hash-c"


def facts_of(observed: ObservedSet) -> SetUpdateFacts:
    return set_update_facts(observed, observed.replicas(observed.generation_hash))


def stepped(observed: ObservedSet) -> PodCliqueSet:
    return next_replicas(observed, observed.replicas(observed.generation_hash), NOW)


def states(text: str) -> list[ReplicaState]:
    """Replicas by a letter each: `o` old, `.` done, `x` old and in breach, `p` old and `P` new with nothing of it
    scheduled."""
    return [
        ReplicaState(
            index,
            done=letter == ".",
            scheduled_pods=0 if letter in "pP" else 1,
            in_breach=letter == "x",
            is_new=letter in ".P",
        )
        for index, letter in enumerate(text)
    ]


def chosen(progress: PodCliqueSetUpdateProgress | None) -> str:
    """`-` no update, `0 2` the replicas chosen, `end` over."""
    if progress is None:
        return "-"
    if progress.update_ended_at is not None:
        assert progress.currently_updating == ()
        return "end"
    return " ".join(str(one.replica_index) for one in progress.currently_updating)


Row = tuple[str, str] | tuple[str, str, dict[str, Any]]
"""Replicas observed, what is chosen then, and what else changed before this row."""


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([("...", "-", {"wanted": OLD})], id="nothing changed"),
        pytest.param(
            [("ooo", "0"), ("ooo", "0"), (".oo", "1"), ("..o", "2"), ("...", "end"), ("...", "end")],
            id="one replica after the other, by index",
        ),
        pytest.param(
            [("oxop", "3 1 0"), ("oxo.", "1 0"), (".xo.", "1 2"), (".x..", "1"), ("....", "end")],
            id="what does not run and what does not work is chosen at once, and one that works",
        ),
        pytest.param(
            [("op", "1 0"), (".p", "1"), (".P", "end"), (".P", "end")],
            id="a replica that never fits has the new templates and is not waited for",
        ),
        pytest.param([("oP", "0"), (".P", "end")], id="a replica that is new and never fits is not chosen"),
        pytest.param(
            [("oxo", "", {"paused": True}), ("oxo", "1 0", {"paused": False})],
            id="a paused update chooses nothing, broken or not",
        ),
        pytest.param(
            [("oooo", "0 1", {"max_unavailable": 2}), (".ooo", "1 2"), (".o.o", "1 3"), ("....", "end")],
            id="two at a time, the next as soon as one is done",
        ),
        pytest.param([("oo", "0"), (".o", "1"), (".", "end")], id="the replica being updated is scaled away"),
        pytest.param([("ooo", "0"), ("oo", "0"), ("..", "end")], id="a replica that waits is scaled away"),
        pytest.param([("oo", "0"), ("oo.", "0"), (".o.", "1"), ("...", "end")], id="a replica is added, new already"),
        pytest.param(
            [("oo", "0"), ("ooo", "0"), (".oo", "1"), ("..o", "2"), ("...", "end")],
            id="a replica is added and not whole yet: it is waited for",
        ),
        pytest.param(
            [("oo", "0"), (".o", "1"), ("oo", "1", {"wanted": NEWER}), ("o.", "0"), ("..", "end")],
            id="a change in the middle begins with the replica that is open",
        ),
        pytest.param(
            [("oo", "0"), (".o", "1"), (".o", "1", {"wanted": OLD}), ("..", "end")],
            id="a change is taken back in the middle",
        ),
        pytest.param(
            [("oo", "0"), ("oo", "end", {"rolling": False}), ("oo", "end")],
            id="an update that is switched to OnDelete is closed",
        ),
        pytest.param([("oo", "end", {"rolling": False}), ("o.", "end")], id="under OnDelete it is over at once"),
        pytest.param(
            [("oo", "end", {"rolling": False}), ("oo", "end", {"rolling": True}), ("oo", "0", {"wanted": NEWER})],
            id="back to RollingRecreate waits for the next change",
        ),
        pytest.param([("", "end")], id="a set without replicas"),
    ],
)
def test_whole_updates(rows: list[Row]) -> None:
    observed = SetUpdateFacts(recorded=OLD, wanted=NEW, progress=None, replicas=())
    for number, (text, want, *rest) in enumerate(rows):
        observed = replace(observed, replicas=states(text), **(rest[0] if rest else {}))
        progress = next_rollout_step(observed, NOW + timedelta(minutes=number))
        assert chosen(progress) == want, f"row {number}"
        observed = replace(observed, recorded=observed.wanted, progress=progress)


def test_a_new_set_records_its_hash_and_updates_nothing() -> None:
    status = stepped(set_seen(set_of(demo()), generation_hash=NEW)).status
    assert (status.current_generation_hash, status.update_progress) == (NEW, None)


def test_start_and_end_are_dated() -> None:
    progress = next_rollout_step(SetUpdateFacts(OLD, NEW, None, states("o")), NOW)
    assert progress is not None
    assert progress.update_started_at == NOW
    assert progress.currently_updating == (ReplicaUpdate(replica_index=0, update_started_at=NOW),)
    later = NOW + timedelta(seconds=5)
    done = next_rollout_step(SetUpdateFacts(NEW, NEW, progress, states(".")), later)
    assert done is not None
    assert (done.update_started_at, done.update_ended_at) == (NOW, later)


@given(
    text=st.lists(st.text("o.px", min_size=1, max_size=5), min_size=1, max_size=8),
    budget=st.integers(1, 3),
    hashes=st.lists(st.sampled_from([OLD, NEW, NEWER]), min_size=8, max_size=8),
)
def test_never_more_than_allowed_and_always_an_end(text: list[str], budget: int, hashes: list[str]) -> None:
    observed = SetUpdateFacts(OLD, NEW, None, (), max_unavailable=budget)
    for one, wanted in zip(text, hashes, strict=False):
        observed = replace(observed, replicas=states(one), wanted=wanted)
        progress = next_rollout_step(observed, NOW)
        if progress is not None:
            taken = [entry.replica_index for entry in progress.currently_updating]
            assert len(set(taken)) == len(taken)
            assert sum(entry.was_available is not False for entry in progress.currently_updating) <= budget
            assert all(not observed.replicas[index].done for index in taken)
        observed = replace(observed, recorded=observed.wanted, progress=progress)
        again = next_rollout_step(observed, NOW + timedelta(hours=1))
        assert again == progress, "the same facts again change nothing"
    for _round in range(len(observed.replicas)):
        current = observed.progress.currently_updating if observed.progress is not None else ()
        done = {entry.replica_index for entry in current}
        observed = replace(observed, replicas=[replace(r, done=r.done or r.index in done) for r in observed.replicas])
        observed = replace(observed, progress=next_rollout_step(observed, NOW))
    assert chosen(observed.progress) in ("end", "-")


# From objects


HASH = "g"


def demo(**fields: Any) -> Json:
    return pcs("d", clique("a"), clique("b"), clique("c", 2), groups=[group("g", "b", "c", replicas=2)], **fields)


def parts(  # type: ignore[type-arg]
    current: str = HASH, ready: int = 1, available: int = 2, replica: int = 0, pods: int = 1, **more: Any
) -> tuple[list, list]:
    observed = set_of(demo(replicas=2))
    own = template_hashes(observed)["a"]
    facts: Json = {
        "currentPodTemplateHash": own,
        "currentPodCliqueSetGenerationHash": current,
        "observedGeneration": 1,
        "readyReplicas": ready,
        "updatedReplicas": 1,
        "scheduledReplicas": 1,
    }
    one = clique_of(observed, f"d-{replica}-a", **{**facts, **more})
    one = structs.replace(one, status=structs.replace(one.status, replicas=pods))
    other = group_of(
        observed,
        f"d-{replica}-g",
        currentPodCliqueSetGenerationHash=current,
        availableReplicas=available,
        scheduledReplicas=2,
    )
    return [one], [other]


@pytest.mark.parametrize(
    ("facts", "done"),
    [
        pytest.param({}, True, id="everything is new and whole"),
        pytest.param({"current": "old"}, False, id="not new yet"),
        pytest.param({"ready": 0}, False, id="new, but a clique is not ready"),
        pytest.param({"available": 0}, False, id="new, but a group lacks its minimum"),
        pytest.param({"pods": 2}, False, id="new, but for a pod that is left of a change that was taken back"),
        pytest.param({"observedGeneration": 0}, False, id="a clique speaks of what it was told before"),
    ],
)
def test_a_replica_is_done(facts: dict[str, Any], done: bool) -> None:
    observed = set_of(demo(), currentGenerationHash=HASH)
    found = facts_of(set_seen(observed, *parts(**facts), generation_hash=HASH))
    assert [state.done for state in found.replicas] == [done]


@pytest.mark.parametrize(
    ("chosen_", "over"),
    [
        pytest.param((0,), True, id="the one that was chosen is done"),
        pytest.param((1,), False, id="the one that was chosen is not there yet"),
        pytest.param((0, 1), False, id="one of two is still open: they are chosen anew together"),
        pytest.param((), False, id="nobody was chosen, as while an update is paused"),
    ],
)
def test_a_step_is_over_when_all_that_were_chosen_are_done(chosen_: tuple[int, ...], over: bool) -> None:
    entries = [{"replicaIndex": index} for index in chosen_]
    observed = set_of(
        demo(replicas=2),
        currentGenerationHash=HASH,
        updateProgress={"updateStartedAt": "2026-01-01T00:00:00Z", "currentlyUpdating": entries},
    )
    cliques, groups = ({one.metadata.name: one for one in found} for found in parts())
    assert is_step_over(observed, cliques.get, groups.get, HASH, template_hashes(observed)) is over


def test_scheduled_pods_count_groups_by_their_minimum() -> None:
    observed = set_of(demo(), currentGenerationHash=HASH)
    found = facts_of(set_seen(observed, *parts(), generation_hash=HASH))
    assert found.replicas[0].scheduled_pods == 1 + 2 * (1 + 2)


def test_a_replica_without_its_parts_is_not_done() -> None:
    observed = set_of(demo(), currentGenerationHash=HASH)
    cliques, groups = parts()
    for have in ((cliques, []), ([], groups)):
        assert not facts_of(set_seen(observed, *have, generation_hash=HASH)).replicas[0].done


def test_a_set_at_rest_is_not_touched() -> None:
    observed = set_of(demo(), currentGenerationHash=HASH)
    assert stepped(set_seen(observed, *parts(), generation_hash=HASH)).status == observed.status


def test_a_change_is_recorded_and_a_replica_chosen_in_one_step() -> None:
    observed = set_of(demo(replicas=2), currentGenerationHash="before")
    turned = stepped(set_seen(observed, *parts(), generation_hash=HASH))
    assert turned.status.current_generation_hash == HASH
    assert not is_chosen(turned, 0), "replica 0 is done"
    assert is_chosen(turned, 1)


@pytest.mark.parametrize(
    ("strategy", "want"),
    [
        pytest.param(None, 1, id="nothing said"),
        pytest.param({"type": "RollingRecreate"}, 1, id="no number said"),
        pytest.param({"rollingRecreate": {"maxUnavailable": 3}}, 3, id="three"),
        pytest.param({"rollingRecreate": {"maxUnavailable": 0}}, 1, id="none would never end"),
    ],
)
def test_max_unavailable(strategy: Json | None, want: int) -> None:
    assert max_unavailable(set_of(demo(strategy=strategy))) == want


# The deadline


def test_a_deadline_passes_when_nothing_moves_and_starts_again_when_something_does() -> None:
    strategy = {"type": "RollingRecreate", "progressDeadline": "60s"}
    started = {"updateStartedAt": NOW.isoformat(), "currentlyUpdating": [{"replicaIndex": 0}]}
    observed = set_of(demo(strategy=strategy), currentGenerationHash=HASH, updateProgress=started)
    cliques, groups = parts()

    status, left_s = with_progress_time(observed.status, set_seen(observed, cliques, groups), NOW)
    assert left_s == 60.0
    status, left_s = with_progress_time(status, set_seen(observed, cliques, groups), NOW + timedelta(seconds=59))
    assert (left_s, find_condition(status.conditions, words.UPDATE_STALLED)) == (1.0, None)
    status, left_s = with_progress_time(status, set_seen(observed, cliques, groups), NOW + timedelta(seconds=60))
    stalled = find_condition(status.conditions, words.UPDATE_STALLED)
    assert left_s is None
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "ProgressDeadlineExceeded")

    moved = [clique_of(observed, "d-0-a", updatedReplicas=2)]
    status, left_s = with_progress_time(status, set_seen(observed, moved, groups), NOW + timedelta(seconds=90))
    assert (left_s, find_condition(status.conditions, words.UPDATE_STALLED)) == (60.0, None)


def test_without_a_deadline_nothing_is_kept() -> None:
    observed = set_of(demo(), currentGenerationHash=HASH, updateProgress={"updateStartedAt": NOW.isoformat()})
    assert with_progress_time(observed.status, set_seen(observed, *parts()), NOW) == (observed.status, None)


def status(*chosen_: int, hash_: str = OLD, ended: bool = False, restarts: tuple[int, ...] = (), done: int = 0) -> Any:
    updating = tuple(ReplicaUpdate(replica_index=index) for index in chosen_)
    progress = PodCliqueSetUpdateProgress(
        update_started_at=NOW,
        update_ended_at=NOW if ended else None,
        currently_updating=updating,
        updated_pod_cliques_count=done,
    )
    again = tuple(ReplicaRestart(replica_index=index, incarnation=1) for index in restarts)
    return PodCliqueSetStatus(current_generation_hash=hash_, update_progress=progress, replica_restarts=again)


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param(status(1), status(1, done=5), set(), id="only numbers changed"),
        pytest.param(status(1), status(2), {1, 2}, id="the turn goes on: the one before and the one after"),
        pytest.param(status(1), status(1, 2), {2}, id="one more at a time"),
        pytest.param(status(1), status(1, restarts=(3,)), {3}, id="a replica is restarted"),
        pytest.param(status(1, hash_=OLD), status(1, hash_=NEW), None, id="another change concerns everybody"),
        pytest.param(status(1), status(ended=True), None, id="so does the end of an update"),
        pytest.param(PodCliqueSetStatus(), status(0), None, id="and its beginning"),
    ],
)
def test_which_replicas_a_step_of_the_set_concerns(
    before: PodCliqueSetStatus, after: PodCliqueSetStatus, want: set[int] | None
) -> None:
    observed = set_of(demo())
    old, new = (structs.replace(observed, status=one) for one in (before, after))
    assert concerned_replicas(old, new) == want


def test_which_replicas_a_change_of_the_request_concerns() -> None:
    def asking(replicas: int, at_once: int) -> PodCliqueSet:
        strategy = {"type": "RollingRecreate", "rollingRecreate": {"maxUnavailable": at_once}}
        return structs.replace(set_of(demo(strategy=strategy, replicas=replicas)), status=status(1))

    assert concerned_replicas(asking(2, 1), asking(4, 1)) == {2, 3}, "replicas that come, or come back"
    assert concerned_replicas(asking(4, 1), asking(2, 1)) == set(), "those that go are nobody's concern any more"
    assert concerned_replicas(asking(2, 1), asking(2, 2)) is None, "how many may be down at a time"
