"""What scaling does, said before it is done."""

from __future__ import annotations

import msgspec
import pytest
from click.testing import CliRunner

from grove.answers.scale import owner_lines
from grove.api.core import HorizontalPodAutoscaler
from grove.api.hpa import current_of
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.cli.main import run
from grove.cli.scale import scale
from grove.show.scaling import Existing, scaled

CLIQUES = [
    {"name": "front", "spec": {"replicas": 1}},
    {"name": "leader", "spec": {"replicas": 1}},
    {"name": "worker", "spec": {"replicas": 3}},
]
PCS = msgspec.convert(
    {
        "metadata": {"name": "chat"},
        "spec": {
            "replicas": 1,
            "template": {
                "cliques": CLIQUES,
                "podCliqueScalingGroups": [
                    {"name": "decode", "cliqueNames": ["leader", "worker"], "replicas": 3, "minAvailable": 1}
                ],
            },
        },
    },
    PodCliqueSet,
)
GROUP = msgspec.convert(
    {
        "metadata": {"name": "chat-0-decode"},
        "spec": {"replicas": 3, "minAvailable": 2, "cliqueNames": ["leader", "worker"]},
    },
    PodCliqueScalingGroup,
)
CLIQUE = msgspec.convert(
    {"metadata": {"name": "chat-0-front"}, "spec": {"roleName": "f", "replicas": 2, "minAvailable": 2}}, PodClique
)


@pytest.mark.parametrize(
    ("what", "to", "want"),
    [
        pytest.param(
            PCS,
            2,
            ["creates 3 gangs: chat-1, chat-1-decode-0, chat-1-decode-1", "13 pods more"],
            id="a set up: base gang and scaled gangs",
        ),
        pytest.param(
            PCS,
            0,
            [
                "deletes 3 gangs: chat-0, chat-0-decode-0, chat-0-decode-1",
                "13 pods fewer",
                "to 0: every pod of chat stops, and the set serves nothing until you scale it up",
            ],
            id="a set to zero",
        ),
        pytest.param(GROUP, 4, ["creates 1 gang: chat-0-decode-1", "4 pods more"], id="a group up"),
        pytest.param(GROUP, 2, ["deletes 1 gang: chat-0-decode-0", "4 pods fewer"], id="a group to its minimum"),
        pytest.param(
            GROUP,
            1,
            [
                "deletes 1 gang: chat-0-decode-0",
                "8 pods fewer",
                "below its minAvailable of 2 replicas: it runs with 1, and its gang needs only the pods that exist",
            ],
            id="a group below its minimum",
        ),
        pytest.param(
            CLIQUE,
            0,
            ["2 pods fewer", "to 0: every pod of chat-0-front stops, and the parts that need it stop working"],
            id="a clique to zero",
        ),
    ],
)
def test_what_scaling_does(what: PodCliqueSet | PodCliqueScalingGroup | PodClique, to: int, want: list[str]) -> None:
    assert list(scaled(what, to, PCS).sentences) == want


def test_a_negative_number_is_a_plain_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(scale, ["chat/prefill", "-1"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: replicas must be a whole number, 0 or more, not -1\n"


def test_scale_has_help() -> None:
    assert "whether new gangs fit now" in CliRunner().invoke(scale, ["--help"]).output


def test_only_gangs_that_exist_go() -> None:
    existing = Existing(("chat-0", "chat-0-decode-0"), {0: 9})
    assert list(scaled(PCS, 0, PCS, existing).sentences)[:2] == [
        "deletes 2 gangs: chat-0, chat-0-decode-0",
        "9 pods fewer",
    ]


def test_the_gangs_of_a_group_go_by_the_cost_of_their_pods_and_gaps_are_filled() -> None:
    group = msgspec.structs.replace(GROUP, spec=msgspec.structs.replace(GROUP.spec, replicas=5))
    costs = Existing((), {}, {"chat-0-decode": {3: -1}})
    assert scaled(group, 4, PCS, costs).gangs_go == ("chat-0-decode-1",)
    kept = msgspec.structs.replace(GROUP, status=msgspec.structs.replace(GROUP.status, replica_indexes=(0, 1, 4)))
    assert scaled(kept, 4, PCS).gangs_come == ("chat-0-decode-0",)


def test_the_replicas_of_a_set_go_by_the_cost_of_their_pods_and_gaps_are_filled() -> None:
    three = msgspec.structs.replace(PCS, spec=msgspec.structs.replace(PCS.spec, replicas=3))
    there = Existing(("chat-0", "chat-1", "chat-2"), {0: 4, 1: 4, 2: 4}, {"chat": {1: -1}})
    assert scaled(three, 2, three, there).gangs_go == ("chat-1",)
    kept = msgspec.structs.replace(PCS, status=msgspec.structs.replace(PCS.status, replica_indexes=(0, 2)))
    kept = msgspec.structs.replace(kept, spec=msgspec.structs.replace(PCS.spec, replicas=2))
    assert {gang.split("-")[1] for gang in scaled(kept, 3, kept).gangs_come} == {"1"}


def scaler(name: str, target: str, owner: str = "") -> HorizontalPodAutoscaler:
    owners = [{"kind": "ScaledObject", "name": owner, "apiVersion": "keda.sh/v1alpha1", "uid": "u"}] if owner else []
    ref = {"kind": "PodCliqueScalingGroup", "name": target}
    spec = {"scaleTargetRef": ref, "minReplicas": 2, "maxReplicas": 8}
    meta = {"name": name, "ownerReferences": owners}
    return msgspec.convert({"metadata": meta, "spec": spec}, HorizontalPodAutoscaler)


@pytest.mark.parametrize(
    ("owner", "to", "want"),
    [
        pytest.param(
            scaler("h", "chat-0-decode"),
            5,
            [
                "HorizontalPodAutoscaler h owns the replicas of chat-0-decode: it sets it again by its metrics, within "
                "2 to 8"
            ],
            id="an HPA",
        ),
        pytest.param(
            scaler("h", "chat-0-decode"),
            0,
            [
                "HorizontalPodAutoscaler h owns the replicas of chat-0-decode: it stops acting on it until it has "
                "replicas again"
            ],
            id="an HPA at 0",
        ),
        pytest.param(
            scaler("keda-hpa-x", "chat-0-decode", "x"),
            0,
            ["KEDA ScaledObject x owns the replicas of chat-0-decode: it sets it again by its metrics, within 2 to 8"],
            id="KEDA",
        ),
        pytest.param(scaler("h", "chat-0-prefill"), 5, [], id="an HPA of another group"),
    ],
)
def test_who_owns_the_number_is_named(owner: HorizontalPodAutoscaler, to: int, want: list[str]) -> None:
    assert owner_lines([owner], [GROUP], to) == want


@pytest.mark.parametrize(("raw", "want"), [("42223m", "42.2"), ("500m", "0.5"), ("4000m", "4"), ("12", "12")])
def test_a_metric_is_shown_as_people_read_it(raw: str, want: str) -> None:
    target = {"type": "AverageValue", "averageValue": "4"}
    wanted = {"type": "Pods", "pods": {"metric": {"name": "q"}, "target": target}}
    assert current_of(wanted, {"type": "Pods", "pods": {"current": {"averageValue": raw}}}) == want
