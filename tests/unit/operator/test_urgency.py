"""Which status changes are written at once, and which may wait for more of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec import structs

from grove.api.meta import Condition
from grove.api.podclique import PodCliqueSpec, PodCliqueStatus, PodCliqueUpdateProgress
from grove.api.podcliqueset import PodCliqueSetStatus, PodCliqueSetUpdateProgress, PodGangStatusEntry, ReplicaUpdate
from grove.api.podgang import PodGangStatus
from grove.api.scalinggroup import (
    PodCliqueScalingGroupSpec,
    PodCliqueScalingGroupStatus,
    PodCliqueScalingGroupUpdateProgress,
    ReplicasSelectedToUpdate,
)
from grove.api.status import LastError
from grove.operator.shared.status_batching import clique_news, gang_news, group_news, set_news

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OPEN, ENDED = PodCliqueUpdateProgress(update_started_at=NOW), PodCliqueUpdateProgress(update_ended_at=NOW)
FOUR = PodCliqueSpec(replicas=4, min_available=2)


def said(type_: str, status: str) -> tuple[Condition, ...]:
    return (Condition(type=type_, status=status),)


def pods(replicas: int = 4, scheduled: int = 0, ready: int = 0, **more: object) -> PodCliqueStatus:
    return PodCliqueStatus(
        replicas=replicas,
        scheduled_replicas=scheduled,
        ready_replicas=ready,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        pytest.param(PodCliqueStatus(), pods(), False, id="pods were made"),
        pytest.param(pods(), pods(scheduled=3), False, id="some have nodes"),
        pytest.param(pods(scheduled=4), pods(scheduled=4, ready=1), False, id="one of four is ready"),
        pytest.param(pods(scheduled=4, ready=1), pods(scheduled=4, ready=2), True, id="the minimum is ready"),
        pytest.param(pods(scheduled=4, ready=2), pods(scheduled=4, ready=3), False, id="one more than the minimum"),
        pytest.param(pods(scheduled=4, ready=3), pods(scheduled=4, ready=4), True, id="all are ready"),
        pytest.param(pods(scheduled=4, ready=4), pods(scheduled=4, ready=3), False, id="one less, still enough"),
        pytest.param(pods(scheduled=4, ready=2), pods(scheduled=4, ready=1), True, id="below the minimum"),
        pytest.param(
            pods(), pods(last_errors=(LastError(code="E", description="d"),)), True, id="something went wrong"
        ),
        pytest.param(
            pods(), pods(conditions=said("MinAvailableBreached", "True")), False, id="a new clique is in breach"
        ),
        pytest.param(
            pods(conditions=said("MinAvailableBreached", "False")),
            pods(conditions=said("MinAvailableBreached", "True")),
            True,
            id="a whole clique breaks",
        ),
        pytest.param(
            pods(scheduled=4, ready=2, update_progress=OPEN),
            pods(scheduled=4, ready=1, update_progress=OPEN),
            False,
            id="below the minimum by an update",
        ),
        pytest.param(
            pods(scheduled=4, ready=1, update_progress=OPEN),
            pods(scheduled=4, ready=2, update_progress=OPEN),
            True,
            id="back at the minimum: the update goes on",
        ),
        pytest.param(pods(ready=2), pods(ready=2, update_progress=OPEN), True, id="an update begins"),
        pytest.param(
            pods(ready=2, update_progress=ENDED), pods(ready=1, update_progress=ENDED), True, id="an update is over"
        ),
        pytest.param(
            pods(scheduled=4, ready=4, observed_generation=1),
            pods(scheduled=4, ready=4, observed_generation=2),
            False,
            id="whole, as before",
        ),
        pytest.param(
            pods(scheduled=4, ready=4),
            pods(scheduled=4, ready=4, incarnation=1),
            True,
            id="whole again after a restart that nobody saw it go down for",
        ),
        pytest.param(
            pods(scheduled=4, ready=4),
            pods(scheduled=4, ready=3, incarnation=1),
            False,
            id="restarted and not whole yet",
        ),
        pytest.param(
            pods(scheduled=4, ready=4, current_pod_template_hash="old"),
            pods(scheduled=4, ready=4, current_pod_template_hash="new"),
            True,
            id="whole, and now from the new template",
        ),
        pytest.param(
            pods(scheduled=4, ready=4, current_pod_clique_set_generation_hash="old"),
            pods(scheduled=4, ready=4, current_pod_clique_set_generation_hash="new"),
            False,
            id="whole, and the change is about others",
        ),
        pytest.param(pods(), pods(conditions=said("BelowMinAvailable", "True")), True, id="below its minimum"),
        pytest.param(pods(conditions=said("BelowMinAvailable", "True")), pods(), True, id="at its minimum again"),
    ],
)
def test_clique_news(before: PodCliqueStatus, after: PodCliqueStatus, news: bool) -> None:
    assert clique_news(FOUR, before, after) is news


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        pytest.param(0, 1, False, id="one of three, two are needed"),
        pytest.param(1, 2, True, id="the minimum"),
        pytest.param(2, 3, True, id="all"),
        pytest.param(3, 2, False, id="one lost, enough left"),
        pytest.param(2, 1, True, id="below the minimum"),
    ],
)
def test_group_news(before: int, after: int, news: bool) -> None:
    spec = PodCliqueScalingGroupSpec(replicas=3, min_available=2)
    old, new = (PodCliqueScalingGroupStatus(available_replicas=count) for count in (before, after))
    assert group_news(spec, old, new) is news


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        pytest.param(0, 3, False, id="on the way"),
        pytest.param(3, 5, True, id="all"),
        pytest.param(5, 4, True, id="one lost"),
    ],
)
def test_set_news(before: int, after: int, news: bool) -> None:
    old, new = (PodCliqueSetStatus(available_replicas=count) for count in (before, after))
    assert set_news(5, old, new) is news


@pytest.mark.parametrize(
    ("change", "news"),
    [
        pytest.param(
            {"pod_gang_statuses": (PodGangStatusEntry(name="a-0", phase="Starting"),)}, False, id="a gang starts anew"
        ),
        pytest.param({"updated_replicas": 3}, False, id="one more is up to date"),
        pytest.param(
            {"update_progress": PodCliqueSetUpdateProgress(updated_pod_cliques_count=1)}, False, id="an update counts"
        ),
        pytest.param(
            {"update_progress": PodCliqueSetUpdateProgress(currently_updating=(ReplicaUpdate(replica_index=1),))},
            True,
            id="a replica was chosen",
        ),
        pytest.param({"update_progress": PodCliqueSetUpdateProgress(update_ended_at=NOW)}, True, id="an update ended"),
        pytest.param({"observed_generation": 8}, True, id="a change was seen"),
    ],
)
def test_what_is_news_of_a_set_all_of_whose_replicas_are_available(change: dict[str, object], news: bool) -> None:
    before = PodCliqueSetStatus(
        observed_generation=7, available_replicas=5, update_progress=PodCliqueSetUpdateProgress()
    )
    assert set_news(5, before, structs.replace(before, **change)) is news


@pytest.mark.parametrize(
    ("change", "news"),
    [
        pytest.param({"updated_replicas": 2}, False, id="one more is up to date"),
        pytest.param(
            {"update_progress": PodCliqueScalingGroupUpdateProgress(updated_pod_cliques_count=1)},
            False,
            id="an update counts",
        ),
        pytest.param(
            {
                "update_progress": PodCliqueScalingGroupUpdateProgress(
                    ready_replica_indices_selected_to_update=ReplicasSelectedToUpdate(current=1)
                )
            },
            True,
            id="a replica was taken",
        ),
        pytest.param({"observed_generation": 8}, True, id="a change was seen"),
    ],
)
def test_what_is_news_of_a_group_all_of_whose_replicas_are_available(change: dict[str, object], news: bool) -> None:
    before = PodCliqueScalingGroupStatus(
        observed_generation=7, available_replicas=3, update_progress=PodCliqueScalingGroupUpdateProgress()
    )
    spec = PodCliqueScalingGroupSpec(replicas=3, min_available=2)
    assert group_news(spec, before, structs.replace(before, **change)) is news


@pytest.mark.parametrize(
    ("change", "news"),
    [
        pytest.param({}, False, id="it waits for its turn"),
        pytest.param({"observed_generation": 8}, True, id="scaled meanwhile: it is of two templates now"),
    ],
)
def test_what_is_news_of_a_group_when_an_update_begins(change: dict[str, object], news: bool) -> None:
    before = PodCliqueScalingGroupStatus(observed_generation=7, current_pod_clique_set_generation_hash="was")
    after = structs.replace(before, current_pod_clique_set_generation_hash="", **change)
    assert group_news(PodCliqueScalingGroupSpec(replicas=3, min_available=2), before, after) is news


def test_a_replica_that_an_update_takes_down_is_no_news() -> None:
    progress = PodCliqueSetUpdateProgress(update_started_at=NOW)
    old, new = (PodCliqueSetStatus(available_replicas=count, update_progress=progress) for count in (5, 4))
    assert not set_news(5, old, new)


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        pytest.param(PodGangStatus(), PodGangStatus(phase="Pending"), False, id="a phase at the start"),
        pytest.param(
            PodGangStatus(phase="Pending"),
            PodGangStatus(phase="Pending", conditions=said("Initialized", "True")),
            True,
            id="complete: a scheduler waits for that",
        ),
        pytest.param(PodGangStatus(phase="Pending"), PodGangStatus(phase="Starting"), False, id="placed"),
        pytest.param(PodGangStatus(phase="Starting"), PodGangStatus(phase="Running"), True, id="running"),
        pytest.param(PodGangStatus(phase="Running"), PodGangStatus(phase="Pending"), True, id="not running any more"),
    ],
)
def test_gang_news(before: PodGangStatus, after: PodGangStatus, news: bool) -> None:
    assert gang_news(before, after) is news


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        pytest.param((), said("Initialized", "True"), False, id="complete: the scheduler will say so"),
        pytest.param((), said("Initialized", "False"), True, id="incomplete: its scheduler must not begin"),
        pytest.param(said("Initialized", "False"), said("Initialized", "True"), True, id="complete at last"),
    ],
)
def test_gang_news_where_the_scheduler_reports(
    before: tuple[Condition, ...], after: tuple[Condition, ...], news: bool
) -> None:
    old, new = PodGangStatus(conditions=before), PodGangStatus(conditions=after)
    assert gang_news(old, new, scheduler_reports=True) is news
