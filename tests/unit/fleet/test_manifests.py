"""The objects that a fleet file becomes."""

from __future__ import annotations

import msgspec
import pytest

from grove.api.podcliqueset import PodCliqueSet
from grove.fleet.file import Load, Part, Serving, Team, Time
from grove.fleet.manifests import batch_set, serving_set


@pytest.mark.parametrize(
    ("delay", "written"),
    [
        pytest.param(Time("10m"), "600s", id="of the team"),
        pytest.param(Time("2d"), "172800s", id="in days, which a set cannot say"),
        pytest.param(None, None, id="the default of Grove"),
    ],
)
def test_every_set_of_a_team_has_its_termination_delay(delay, written):
    team = Team("research", termination_delay=delay)
    serving = Serving("chat", "research", [Part("decode", 8.0)], Load(10.0))
    for body in (
        batch_set("job", team, pods=2, gpus=8, priority=None, pack=""),
        serving_set(serving, team),
    ):
        assert msgspec.convert(body, PodCliqueSet).spec.template.termination_delay == written


def test_pods_of_batch_work_end_by_themselves_and_pods_of_a_service_do_not():
    """The scheduler holds nodes first where pods end by themselves."""
    serving = Serving("chat", "research", [Part("decode", 8.0)], Load(10.0))
    batch = batch_set("job", Team("research"), pods=2, gpus=8, priority=None, pack="")
    found = [
        [clique["spec"]["podSpec"].get("restartPolicy") for clique in body["spec"]["template"]["cliques"]]
        for body in (batch, serving_set(serving, Team("research")))
    ]
    assert found == [["OnFailure"], [None]]
