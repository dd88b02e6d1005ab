"""Gang termination as decisions: who is charged, when it is due, what suppresses it, how often it may happen."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import clique, group, pcs
from tests.support.observed import NOW, clique_of, group_of, group_seen, set_of

from grove.api import conditions as words
from grove.api import labels as key
from grove.api.meta import Condition, Json, find_condition
from grove.api.podclique import PodClique, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupStatus
from grove.api.termination import termination_delay
from grove.operator.scalinggroup.status import group_status
from grove.operator.shared.rollout import find_restart
from grove.operator.shared.termination import (
    Restart,
    Terminations,
    group_replicas_to_restart,
    max_gang_restarts,
    set_replicas_to_restart,
    with_clique_memory,
    with_group_memory,
    with_group_restarts,
    with_set_restarts,
)

DELAY_S = 10


def at(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat()


def said(type_: str, status: str, since_s: float) -> Json:
    return {"type": type_, "status": status, "reason": "R", "message": "m", "lastTransitionTime": at(since_s)}


def breached(since_s: float, whole_s: float | None = -100, type_: str = words.WAS_SCHEDULED) -> list[Json]:
    """Conditions of a part in breach; `whole_s` is when it was first whole, None if it never was."""
    memory = [said(type_, "True", whole_s)] if whole_s is not None else []
    return [said(words.MIN_AVAILABLE_BREACHED, "True", since_s), *memory]


FINE = [said(words.MIN_AVAILABLE_BREACHED, "False", -100), said(words.WAS_SCHEDULED, "True", -100)]
FINE_GROUP = [said(words.MIN_AVAILABLE_BREACHED, "False", -100), said(words.WAS_HEALTHY, "True", -100)]
UNKNOWN = [said(words.MIN_AVAILABLE_BREACHED, "Unknown", -100), said(words.WAS_SCHEDULED, "True", -100)]


def demo(replicas: int = 1, limit: str = "", **status: Any) -> PodCliqueSet:
    """One standalone clique beside a group of three replicas that needs one."""
    annotations = {key.MAX_GANG_RESTARTS: limit} if limit else {}
    manifest = pcs(
        "d",
        clique("a"),
        clique("b"),
        clique("c"),
        replicas=replicas,
        termination_delay=f"{DELAY_S}s",
        groups=[group("g", "b", "c", replicas=3)],
        metadata={"annotations": annotations},
    )
    return set_of(manifest, **status)


def members(observed: PodCliqueSet, **conditions: list[Json]) -> list[PodClique]:
    """Members of the group, by `replica_clique`: `_0_b` is clique b of replica 0; those not named are fine."""
    return [
        clique_of(observed, f"d-0-g-{replica}-{name}", conditions=conditions.get(f"_{replica}_{name}", FINE))
        for replica in range(3)
        for name in ("b", "c")
    ]


# One replica of a group


@pytest.mark.parametrize(
    ("conditions", "now_", "wait_s"),
    [
        pytest.param({}, [], None, id="nothing is in breach"),
        pytest.param({"_1_b": breached(-9)}, [], 1.0, id="a second is left"),
        pytest.param({"_1_b": breached(-9.5)}, [], 0.5, id="the wait is exact"),
        pytest.param({"_1_b": breached(-10)}, [1], None, id="due to the moment"),
        pytest.param({"_1_b": breached(-500)}, [1], None, id="long due"),
        pytest.param({"_1_b": breached(-4), "_1_c": breached(-10)}, [1], None, id="the first clique to be due decides"),
        pytest.param({"_0_b": breached(-10), "_2_c": breached(-12)}, [0, 2], None, id="each replica for itself"),
        pytest.param({"_0_b": breached(-10), "_2_c": breached(-3)}, [0], 7.0, id="one goes, the next one waits"),
        pytest.param({"_1_b": breached(-500, whole_s=None)}, [], None, id="what never was whole is not restarted"),
        pytest.param({"_1_b": breached(-500, whole_s=-3)}, [], 7.0, id="the time counts from when it became whole"),
        pytest.param({"_1_b": UNKNOWN}, [], None, id="not judged during an update"),
    ],
)
def test_group_replicas(conditions: dict[str, list[Json]], now_: list[int], wait_s: float | None) -> None:
    observed = demo()
    verdict = group_replicas_to_restart(
        observed, group_of(observed, "d-0-g", conditions=FINE_GROUP), members(observed, **conditions), NOW
    )
    assert ([one.index for one in verdict.now], verdict.wait_s) == (now_, wait_s)


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param(breached(-1, type_=words.WAS_HEALTHY), id="the group is below its minimum: the set decides"),
        pytest.param([said(words.MIN_AVAILABLE_BREACHED, "Unknown", -1)], id="the group is being updated"),
        pytest.param([], id="the group has said nothing yet"),
    ],
)
def test_no_group_replica_goes_alone_while(conditions: list[Json]) -> None:
    observed = demo()
    found = members(observed, _1_b=breached(-500))
    assert (
        group_replicas_to_restart(observed, group_of(observed, "d-0-g", conditions=conditions), found, NOW)
        == Terminations()
    )


@pytest.mark.parametrize(
    ("completed", "now_"),
    [
        pytest.param([], [2], id="one that the update is replacing is left alone"),
        pytest.param([1], [1, 2], id="one that was back, and broke later, is not"),
    ],
)
def test_group_replicas_in_a_pause(completed: list[int], now_: list[int]) -> None:
    observed = demo()
    progress = {
        "updateStartedAt": NOW.isoformat(),
        "podCliqueSetGenerationHash": "g",
        "readyReplicaIndicesSelectedToUpdate": {"current": 1, "completed": completed},
    }
    paused = group_of(observed, "d-0-g", conditions=FINE_GROUP, updateProgress=progress)
    found = members(observed, _1_b=breached(-500), _2_b=breached(-500))
    verdict = group_replicas_to_restart(observed, paused, found, NOW)
    assert [one.index for one in verdict.now] == now_


def test_a_group_replica_that_is_still_being_restarted_is_not_restarted_again() -> None:
    observed = demo()
    restarts = [{"replicaIndex": 1, "incarnation": 1}]
    whole = group_of(observed, "d-0-g", conditions=FINE_GROUP, replicaRestarts=restarts)
    found = members(observed, _1_b=breached(-500))  # its status is still about incarnation 0
    assert group_replicas_to_restart(observed, whole, found, NOW) == Terminations()


def test_group_replicas_beyond_the_replicas_are_on_their_way_out() -> None:
    observed = demo()
    whole = group_of(observed, "d-0-g", 2, conditions=FINE_GROUP)
    assert group_replicas_to_restart(observed, whole, members(observed, _2_b=breached(-500)), NOW) == Terminations()


@pytest.mark.parametrize(("incarnation", "want"), [(0, ("True", 0)), (1, ("False", 3))])
def test_a_group_whose_replica_is_restarted_is_not_whole_by_what_its_cliques_said_before(
    incarnation: int, want: tuple[str, int]
) -> None:
    observed = demo(replicaRestarts=[{"replicaIndex": 0, "incarnation": 1}], currentGenerationHash="g")
    scheduled = [*FINE, said(words.POD_CLIQUE_SCHEDULED, "True", -100)]
    found = [
        clique_of(observed, f"d-0-g-{replica}-{name}", conditions=scheduled, readyReplicas=1, incarnation=incarnation)
        for replica in range(3)
        for name in ("b", "c")
    ]
    status = group_status(group_seen(observed, group_of(observed, "d-0-g"), found), NOW)
    breach = find_condition(status.conditions, words.MIN_AVAILABLE_BREACHED)
    assert breach is not None
    assert (breach.status, status.available_replicas) == want


# One replica of a set


def parts(
    observed: PodCliqueSet, replica: int, a: list[Json], g: list[Json]
) -> tuple[PodClique, PodCliqueScalingGroup]:
    return (
        clique_of(observed, f"d-{replica}-a", conditions=a),
        group_of(observed, f"d-{replica}-g", conditions=g),
    )


IN_PROGRESS = [*breached(-500, type_=words.WAS_HEALTHY), said(words.GANG_TERMINATION_IN_PROGRESS, "True", -5)]


@pytest.mark.parametrize(
    ("a", "g", "now_", "wait_s"),
    [
        pytest.param(FINE, FINE_GROUP, [], None, id="nothing is in breach"),
        pytest.param(breached(-10), FINE_GROUP, ["d-0-a"], None, id="a standalone clique is due"),
        pytest.param(breached(-2), FINE_GROUP, [], 8.0, id="a standalone clique has time left"),
        pytest.param(FINE, breached(-10, type_=words.WAS_HEALTHY), ["d-0-g"], None, id="a group is due"),
        pytest.param(
            breached(-3),
            breached(-10, type_=words.WAS_HEALTHY),
            ["d-0-a, d-0-g"],
            None,
            id="the first part to be due decides, all are named",
        ),
        pytest.param(FINE, breached(-500, None, words.WAS_HEALTHY), [], None, id="a group that never was whole"),
        pytest.param(FINE, IN_PROGRESS, [], None, id="once for each breach"),
        pytest.param(UNKNOWN, FINE_GROUP, [], None, id="not judged during an update"),
    ],
)
def test_replicas(a: list[Json], g: list[Json], now_: list[str], wait_s: float | None) -> None:
    observed = demo()
    one_clique, one_group = parts(observed, 0, a, g)
    verdict = set_replicas_to_restart(observed, observed.indexes, [one_clique], [one_group], NOW)
    assert ([one.blame for one in verdict.now], verdict.wait_s) == (now_, wait_s)


def test_a_replica_without_one_of_its_cliques_is_being_built() -> None:
    observed = demo()
    _, one_group = parts(observed, 0, FINE, breached(-500, type_=words.WAS_HEALTHY))
    assert set_replicas_to_restart(observed, observed.indexes, [], [one_group], NOW) == Terminations()


def test_replicas_are_judged_one_by_one() -> None:
    observed = demo(replicas=2)
    pairs = [parts(observed, 0, FINE, FINE_GROUP), parts(observed, 1, breached(-11), FINE_GROUP)]
    verdict = set_replicas_to_restart(observed, observed.indexes, [c for c, _ in pairs], [g for _, g in pairs], NOW)
    assert verdict == Terminations(now=(Restart(1, 1, "d-1-a"),))


# How often


def restarted(count: int, ago_s: float) -> dict[str, Any]:
    entry = {"replicaIndex": 0, "incarnation": 0, "gangRestarts": count, "lastGangRestartTime": at(-ago_s)}
    return {"replicaRestarts": [entry]}


@pytest.mark.parametrize(
    ("limit", "status", "conditions", "want"),
    [
        pytest.param("", restarted(99, 1), breached(-10), (100, [], None), id="as often as it takes, unless told"),
        pytest.param("2", {}, breached(-10), (1, [], None), id="the first comes without a pause"),
        pytest.param("2", restarted(1, 60), breached(-10), (2, [], None), id="the last one allowed"),
        pytest.param("2", restarted(2, 60), breached(-10), (None, [0], None), id="no more than that"),
        pytest.param("0", {}, breached(-10), (None, [0], None), id="never"),
        pytest.param("9", restarted(1, 6), breached(-10), (None, [], 4.0), id="10 s after the first restart"),
        pytest.param("9", restarted(3, 30), breached(-10), (None, [], 10.0), id="40 s after the third"),
        pytest.param("9", restarted(8, 299), breached(-10), (None, [], 1.0), id="never more than 5 min"),
        pytest.param(
            "2",
            restarted(2, 1000),
            [*breached(-10, whole_s=-900), said(words.WAS_READY, "True", -610)],
            (1, [], None),
            id="ten good minutes and the count starts over",
        ),
        pytest.param(
            "2",
            restarted(2, 1000),
            [*breached(-10, whole_s=-900), said(words.WAS_READY, "True", -609)],
            (None, [0], None),
            id="but not before",
        ),
        pytest.param(
            "2",
            restarted(2, 4000),
            breached(-10, whole_s=-3600),
            (None, [0], None),
            id="an hour of loading is no good minute",
        ),
    ],
)
def test_restarts_are_bounded(
    limit: str, status: dict[str, Any], conditions: list[Json], want: tuple[int | None, list[int], float | None]
) -> None:
    observed = demo(limit=limit, **status)
    one_clique, one_group = parts(observed, 0, conditions, FINE_GROUP)
    verdict = set_replicas_to_restart(observed, observed.indexes, [one_clique], [one_group], NOW)
    count = verdict.now[0].count if verdict.now else None
    assert (count, list(verdict.exhausted), verdict.wait_s) == want


@pytest.mark.parametrize("text", ["-1", "many", "1.5", "²", pytest.param("9" * 5000, id="longer than any number")])
def test_a_limit_that_cannot_be_read_is_none(text: str) -> None:
    assert max_gang_restarts(demo(limit=text)) is None


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), (None, 14400.0), ("soon", 14400.0)])
def test_delay(text: str | None, seconds: float) -> None:
    manifest = pcs("d", clique("a"))
    manifest["spec"]["template"]["terminationDelay"] = text
    assert termination_delay(set_of(manifest)).total_seconds() == seconds


# What is written


def test_a_restarted_replica_is_ahead_of_everything_in_it() -> None:
    """Its replicas may have been restarted more often than it was: they must see a higher number all the same."""
    observed = demo(replicaRestarts=[{"replicaIndex": 0, "incarnation": 2}], gangRestarts=2)
    one_clique, one_group = parts(observed, 0, breached(-10), FINE_GROUP)
    one_group = group_of(observed, "d-0-g", replicaRestarts=[{"replicaIndex": 1, "incarnation": 7}])
    verdict = Terminations(now=(Restart(0, 3, "d-0-a"),))

    status = with_set_restarts(observed, [one_clique], [one_group], verdict, NOW)

    assert find_restart(status.replica_restarts, 0).incarnation == 8
    assert status.gang_restarts == 3
    assert find_restart(status.replica_restarts, 0).last_gang_restart_time == NOW


def test_a_restart_by_a_set_that_was_made_again_is_ahead_of_its_groups() -> None:
    observed = demo()
    one_group = group_of(observed, "d-0-g", incarnation=4)
    status = with_set_restarts(observed, [], [one_group], Terminations(now=(Restart(0, 1, "d-0-g"),)), NOW)
    assert find_restart(status.replica_restarts, 0).incarnation == 5


def test_a_restarted_group_replica_leaves_the_others_alone() -> None:
    observed = demo(replicaRestarts=[{"replicaIndex": 0, "incarnation": 4}])
    one_group = group_of(observed, "d-0-g", replicaRestarts=[{"replicaIndex": 1, "incarnation": 2}], gangRestarts=1)

    status = with_group_restarts(observed, one_group, 0, Terminations(now=(Restart(2, 1, "x"),)), NOW)

    assert [(one.replica_index, one.incarnation) for one in status.replica_restarts] == [(1, 2), (2, 5)]
    assert status.gang_restarts == 2


def test_that_no_restart_is_left_is_said_and_taken_back() -> None:
    observed = demo(limit="3")
    one_group = group_of(observed, "d-0-g")
    status = with_group_restarts(observed, one_group, 0, Terminations(exhausted=(1,)), NOW)
    found = find_condition(status.conditions, words.GANG_RESTARTS_EXHAUSTED)
    assert found is not None
    assert found.message == "replica 1 stays in breach after 3 restarts, all that grove.io/max-gang-restarts allows"

    again = group_of(observed, "d-0-g", conditions=[said(words.GANG_RESTARTS_EXHAUSTED, "True", -1)])
    assert with_group_restarts(observed, again, 0, Terminations(), NOW).conditions == ()


# What is remembered


def told(type_: str, status: str, seconds: float = 0) -> Condition:
    moment = NOW + timedelta(seconds=seconds)
    return Condition(type=type_, status=status, reason="R", message="", last_transition_time=moment)


def remembered(conditions: tuple[Condition, ...], type_: str) -> datetime | None:
    found = find_condition(conditions, type_)
    return found.last_transition_time if found is not None else None


CLIQUE, GROUP = clique_of(demo(), "d-0-a"), group_of(demo(), "d-0-g")


def test_a_clique_remembers_that_it_was_scheduled_until_it_is_restarted() -> None:
    scheduled = told(words.POD_CLIQUE_SCHEDULED, "True")
    fresh = with_clique_memory(CLIQUE, PodCliqueStatus(conditions=(scheduled,)), 0, NOW)
    assert remembered(fresh.conditions, words.WAS_SCHEDULED) == NOW

    lost = PodCliqueStatus(conditions=(told(words.POD_CLIQUE_SCHEDULED, "False"), *fresh.conditions[1:]))
    later = NOW + timedelta(hours=1)
    assert remembered(with_clique_memory(CLIQUE, lost, 0, later).conditions, words.WAS_SCHEDULED) == NOW
    assert remembered(with_clique_memory(CLIQUE, lost, 1, later).conditions, words.WAS_SCHEDULED) is None
    assert with_clique_memory(CLIQUE, lost, 1, later).incarnation == 1


def test_a_clique_that_was_never_scheduled_has_no_memory() -> None:
    status = PodCliqueStatus(conditions=(told(words.POD_CLIQUE_SCHEDULED, "False"),))
    assert remembered(with_clique_memory(CLIQUE, status, 0, NOW).conditions, words.WAS_SCHEDULED) is None


def test_a_group_says_that_its_replica_is_restarted_until_it_is_whole_again() -> None:
    whole = told(words.MIN_AVAILABLE_BREACHED, "False")
    first = with_group_memory(GROUP, PodCliqueScalingGroupStatus(conditions=(whole,)), 0, NOW)
    assert remembered(first.conditions, words.WAS_HEALTHY) == NOW

    hit = with_group_memory(GROUP, first, 1, NOW)
    assert find_condition(hit.conditions, words.WAS_HEALTHY) is None
    assert remembered(hit.conditions, words.GANG_TERMINATION_IN_PROGRESS) == NOW

    back = with_group_memory(GROUP, hit, 1, NOW + timedelta(seconds=9))
    assert find_condition(back.conditions, words.GANG_TERMINATION_IN_PROGRESS) is None
    assert remembered(back.conditions, words.WAS_HEALTHY) == NOW + timedelta(seconds=9)


@pytest.mark.parametrize(
    ("breach", "scheduled", "want"),
    [
        pytest.param("True", 2, True, id="its pods cannot start, and were in breach from the first moment"),
        pytest.param("True", 1, False, id="it did not fit"),
        pytest.param("Unknown", 2, False, id="nothing is judged during an update"),
    ],
)
def test_a_group_whose_minimum_has_nodes_counts_as_whole_once(breach: str, scheduled: int, want: bool) -> None:
    restarted = told(words.GANG_TERMINATION_IN_PROGRESS, "True")
    conditions = (told(words.MIN_AVAILABLE_BREACHED, breach), restarted)
    status = PodCliqueScalingGroupStatus(conditions=conditions, scheduled_replicas=scheduled)
    group = msgspec.structs.replace(GROUP, spec=msgspec.structs.replace(GROUP.spec, replicas=2, min_available=2))
    after = with_group_memory(group, status, 0, NOW)
    assert (remembered(after.conditions, words.WAS_HEALTHY) == NOW) is want
    assert (find_condition(after.conditions, words.GANG_TERMINATION_IN_PROGRESS) is None) is want


@pytest.mark.parametrize(
    ("before_s", "ready", "incarnation", "is_limited", "want_s"),
    [
        pytest.param(None, 3, 0, True, 0, id="from when the minimum is ready"),
        pytest.param(None, 2, 0, True, None, id="not while it starts"),
        pytest.param(-300, 3, 0, True, -300, id="as long as it stays ready"),
        pytest.param(-599, 2, 0, True, None, id="a short time of readiness is forgotten"),
        pytest.param(-600, 2, 0, True, -600, id="ten minutes are remembered"),
        pytest.param(-900, 2, 1, True, None, id="until the next restart"),
        pytest.param(None, 3, 0, False, None, id="only where restarts are limited"),
        pytest.param(-300, 3, 0, False, None, id="and no longer than that"),
    ],
)
def test_a_clique_remembers_since_when_its_minimum_is_ready(
    before_s: float | None, ready: int, incarnation: int, is_limited: bool, want_s: float | None
) -> None:
    memory = [said(words.WAS_READY, "True", before_s)] if before_s is not None else []
    seen = clique_of(demo(), "d-0-a", 3, conditions=memory, readyReplicas=ready)
    seen = msgspec.structs.replace(seen, spec=msgspec.structs.replace(seen.spec, min_available=3))
    after = with_clique_memory(seen, seen.status, incarnation, NOW, is_limited=is_limited)
    want = None if want_s is None else NOW + timedelta(seconds=want_s)
    assert remembered(after.conditions, words.WAS_READY) == want


def below(message: str) -> list[Json]:
    return [{**said(words.BELOW_MINIMUM, "True", -50), "message": message}] if message else []


@pytest.mark.parametrize(
    ("replicas", "before", "after", "is_whole", "want"),
    [
        pytest.param(4, "", "", False, -100, id="of the minimum it has it is remembered"),
        pytest.param(0, "", "", True, None, id="nothing of one that is asked for nothing: that is always there"),
        pytest.param(2, "2 of 3", "2 of 3", False, -100, id="also of the smaller one it runs with"),
        pytest.param(3, "2 of 3", "", False, None, id="not when it is to have its whole minimum again"),
        pytest.param(2, "1 of 3", "2 of 3", False, None, id="nor when it is to have more of it"),
        pytest.param(3, "2 of 3", "", True, 0, id="it has that already: remembered from now on"),
        pytest.param(2, "", "2 of 3", False, -100, id="what was whole with more was whole with less"),
    ],
)
def test_what_is_remembered_is_about_the_minimum_that_is_asked_for(
    replicas: int, before: str, after: str, is_whole: bool, want: float | None
) -> None:
    when = None if want is None else NOW + timedelta(seconds=want)
    observed = demo()
    memory = [said(words.WAS_SCHEDULED, "True", -100), said(words.WAS_HEALTHY, "True", -100)]
    facts = [said(words.POD_CLIQUE_SCHEDULED, str(is_whole), -1)]
    seen = clique_of(observed, "d-0-a", replicas, conditions=[*memory, *facts, *below(before)])
    now_ = clique_of(observed, "d-0-a", replicas, conditions=[*memory, *facts, *below(after)]).status
    assert remembered(with_clique_memory(seen, now_, 0, NOW).conditions, words.WAS_SCHEDULED) == when

    facts = [said(words.MIN_AVAILABLE_BREACHED, str(not is_whole), -1)]
    found = group_of(observed, "d-0-g", replicas, conditions=[*memory, *facts, *below(before)])
    then = group_of(observed, "d-0-g", replicas, conditions=[*memory, *facts, *below(after)]).status
    assert remembered(with_group_memory(found, then, 0, NOW).conditions, words.WAS_HEALTHY) == when


@given(
    since=st.lists(st.tuples(st.integers(0, 30), st.one_of(st.none(), st.integers(0, 30))), min_size=6, max_size=6),
    later=st.integers(1, 60),
)
def test_nothing_is_forgotten_and_nothing_comes_early(since: list[tuple[int, int | None]], later: int) -> None:
    """The end of a wait is a restart, and a restarted replica was in breach for the whole delay."""
    observed = demo()
    keys = [f"_{replica}_{name}" for replica in range(3) for name in ("b", "c")]
    facts = {k: breached(-b, whole_s=None if w is None else -w) for k, (b, w) in zip(keys, since, strict=True)}
    whole, found = group_of(observed, "d-0-g", conditions=FINE_GROUP), members(observed, **facts)

    now_ = group_replicas_to_restart(observed, whole, found, NOW)
    for one in now_.now:
        mine = since[2 * one.index : 2 * one.index + 2]
        assert any(w is not None and min(b, w) >= DELAY_S for b, w in mine)
    if now_.wait_s is not None:
        then = group_replicas_to_restart(observed, whole, found, NOW + timedelta(seconds=now_.wait_s))
        assert len(then.now) > len(now_.now)
    else:
        after = group_replicas_to_restart(observed, whole, found, NOW + timedelta(seconds=later))
        assert [one.index for one in after.now] == [one.index for one in now_.now]
