"""A dialect's status says what the set, its cliques, groups and gangs say, number by number, word by word."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dialects import koord_set, nested

from grove.api.dynamo import PodGangSetStatus
from grove.api.koordset import KoordPodCliqueSetStatus
from grove.api.meta import Condition, ObjectMeta, find_condition
from grove.api.podclique import PodClique, PodCliqueSpec, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSet, PodCliqueSetStatus
from grove.api.podgang import PodGang, PodGangStatus
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupSpec, PodCliqueScalingGroupStatus
from grove.dialects.status import gang_set_status, koord_set_status

NOW, LATER = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
PHASES = ["Pending", "Starting", "Running"]
COUNT = st.integers(0, 50)
INDEX = "grove.io/podcliqueset-replica-index"


@st.composite
def conditions(draw: st.DrawFn, *types: str) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            type=type_,
            status=draw(st.sampled_from(["True", "False", "Unknown"])),
            reason="Because",
            message=draw(st.sampled_from(["one", "two"])),
            last_transition_time=NOW,
        )
        for type_ in draw(st.lists(st.sampled_from(types), unique=True))
    )


@st.composite
def sets(draw: st.DrawFn) -> PodCliqueSet:
    said = draw(conditions("TopologyLevelsUnavailable", "UpdateStalled", "GangRestartsExhausted"))
    status = PodCliqueSetStatus(
        replicas=draw(COUNT),
        available_replicas=draw(COUNT),
        updated_replicas=draw(COUNT),
        hpa_pod_selector="a=b",
        current_generation_hash=draw(st.sampled_from(["x", "y"])),
        conditions=said,
    )
    return PodCliqueSet(metadata=ObjectMeta(name="s"), status=status)


@st.composite
def gangs(draw: st.DrawFn) -> list[PodGang]:
    return [
        PodGang(
            metadata=ObjectMeta(name=f"s-{index}"),
            status=PodGangStatus(
                phase=draw(st.sampled_from(PHASES)),
                conditions=draw(conditions("Scheduled", "Ready", "Initialized")),
                placement_score=draw(st.none() | st.floats(0, 1)),
            ),
        )
        for index in range(draw(st.integers(0, 3)))
    ]


@st.composite
def cliques(draw: st.DrawFn, *names: tuple[str, str, tuple[str, ...]]) -> list[PodClique]:
    return [
        PodClique(
            metadata=ObjectMeta(name=fqn, labels={INDEX: "0"}),
            spec=PodCliqueSpec(role_name=role, replicas=draw(COUNT), starts_after=after),
            status=PodCliqueStatus(
                replicas=draw(COUNT),
                ready_replicas=draw(COUNT),
                scheduled_replicas=draw(COUNT),
                updated_replicas=draw(COUNT),
                schedule_gated_replicas=draw(COUNT),
                hpa_pod_selector="c=d",
                conditions=draw(conditions("MinAvailableBreached")),
            ),
        )
        for fqn, role, after in names
    ]


@settings(max_examples=200)
@given(sets(), cliques(("s-0-gang", "gang", ())), gangs())
def test_a_gang_set_says_what_its_set_says(pcs: PodCliqueSet, members: list[PodClique], made: list[PodGang]) -> None:
    found = gang_set_status(PodGangSetStatus(), pcs, members, made, NOW)
    clique = members[0].status
    assert found.replicas == clique.replicas
    assert found.ready_replicas == clique.ready_replicas
    assert found.scheduled_replicas == clique.scheduled_replicas
    assert found.updated_replicas == clique.updated_replicas
    assert found.gated_replicas == clique.schedule_gated_replicas
    assert found.selector == clique.hpa_pod_selector
    assert [(one.name, one.phase, one.placement_score) for one in found.pod_gangs] == [
        (one.metadata.name, one.status.phase, one.status.placement_score) for one in made
    ]
    assert PHASES.index(found.phase) == min((PHASES.index(one.status.phase) for one in made), default=0)
    mirrored(found.conditions, pcs, made)
    breached = find_condition(clique.conditions, "MinAvailableBreached")
    assert find_condition(found.conditions, "MinAvailableBreached") == breached
    assert gang_set_status(found, pcs, members, made, LATER) == found


def mirrored(found: tuple[Condition, ...], pcs: PodCliqueSet, made: list[PodGang]) -> None:
    assert len({one.type for one in found}) == len(found)
    for one in pcs.status.conditions:
        assert find_condition(found, one.type) == one
    for type_ in ("Scheduled", "Ready"):
        every = [find_condition(gang.status.conditions, type_) for gang in made]
        holds = bool(every) and all(one is not None and one.status == "True" for one in every)
        told = find_condition(found, type_)
        assert told is not None
        assert told.status == ("True" if holds else "False")


OBJECT = koord_set("s", groups={"g": [nested("a", order=0), nested("b", order=1)]})
PARTS = (("s-0-g-0-a", "a", ()), ("s-0-g-0-b", "b", ("s-0-g-0-a",)))


@settings(max_examples=200)
@given(sets(), cliques(*PARTS), gangs(), COUNT)
def test_a_set_of_groups_says_what_its_set_says(
    pcs: PodCliqueSet, members: list[PodClique], made: list[PodGang], copies: int
) -> None:
    group = PodCliqueScalingGroup(
        metadata=ObjectMeta(name="s-0-g", labels={INDEX: "0"}),
        spec=PodCliqueScalingGroupSpec(replicas=copies),
        status=PodCliqueScalingGroupStatus(available_replicas=copies),
    )
    found = koord_set_status(KoordPodCliqueSetStatus(), OBJECT, pcs, members, [group], made, NOW)
    status = pcs.status
    assert (found.replicas, found.available_replicas, found.updated_replicas) == (
        status.replicas,
        status.available_replicas,
        status.updated_replicas,
    )
    assert (found.selector, found.current_generation_hash) == ("a=b", status.current_generation_hash)
    [told] = found.pod_clique_scaling_groups
    assert (told.name, told.index, told.replicas, told.available_replicas) == ("g", 0, copies, copies)
    first, second = found.pod_cliques
    assert [(one.ready, one.scheduled, one.gated) for one in found.pod_cliques] == [
        (one.status.ready_replicas, one.status.scheduled_replicas, one.status.schedule_gated_replicas)
        for one in members
    ]
    waits = all(one.status.ready_replicas < one.spec.replicas for one in members)
    assert (first.blocked_on, second.blocked_on) == ((), ("s-0-g-0-a",) if waits else ())
    blocked = find_condition(found.conditions, "StartupBlocked")
    assert blocked is not None
    assert blocked.status == ("True" if waits else "False")
    mirrored(found.conditions, pcs, made)
    assert koord_set_status(found, OBJECT, pcs, members, [group], made, LATER) == found


def test_the_first_gang_that_waits_says_why() -> None:
    why = Condition(
        type="Scheduled", status="False", reason="Unschedulable", message="no room", last_transition_time=NOW
    )
    good = Condition(type="Scheduled", status="True", reason="Placed", last_transition_time=NOW)
    made = [
        PodGang(metadata=ObjectMeta(name=f"s-{index}"), status=PodGangStatus(phase="Pending", conditions=(one,)))
        for index, one in enumerate((good, why))
    ]
    found = gang_set_status(PodGangSetStatus(), PodCliqueSet(), [], made, NOW)
    assert (found.reason, found.message) == ("Unschedulable", "no room")
    told = find_condition(found.conditions, "Scheduled")
    assert told is not None
    assert told.message == "1 of 2 gangs; s-1: no room"


def test_a_gang_with_a_phase_of_another_scheduler_counts_as_pending() -> None:
    """The API accepts any phase of a PodGang. The status of a set accepts five."""
    made = [
        PodGang(metadata=ObjectMeta(name=f"s-{phase}"), status=PodGangStatus(phase=phase))
        for phase in ("Running", "Lost", "")
    ]
    found = gang_set_status(PodGangSetStatus(), PodCliqueSet(), [], made, NOW)
    assert found.phase == "Pending"
    assert [gang.phase for gang in found.pod_gangs] == ["Running", "Pending", "Pending"]
