"""Where budgets and partitions of updates may be written: one row a rule, with the literal path and message."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import faults, schedulers

from grove.admission.rules.review import Admission
from grove.api.meta import Json

ADMISSION = Admission(backends=schedulers("default-scheduler"))
T = "spec.template"


def demo(strategy: Json, alone: Json | None = None, member: Json | None = None, of_group: Json | None = None) -> Json:
    """A standalone clique with minAvailable 2, and a group with minAvailable 3."""
    found = pcs(
        "d",
        clique("a", 4, min_available=2),
        clique("m"),
        groups=[group("g", "m", replicas=6, min_available=3)],
        strategy=strategy,
    )
    for part, own in zip(found["spec"]["template"]["cliques"], (alone, member), strict=True):
        part |= {"rollingUpdate": own} if own is not None else {}
    found["spec"]["template"]["podCliqueScalingGroups"][0] |= {"rollingUpdate": of_group} if of_group else {}
    return found


def by_revision(found: Json) -> Json:
    found["spec"]["template"]["headlessServiceConfig"] = {"publishNotReadyAddresses": True, "perRevision": True}
    return found


COHERENT, ROLLING = {"type": "Coherent"}, {"type": "RollingRecreate"}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(demo(COHERENT), [], id="coherent alone"),
        pytest.param(demo(COHERENT, {"maxUnavailable": 2}, None, {"maxUnavailable": 3}), [], id="the minimum"),
        pytest.param(demo(ROLLING, {"maxUnavailable": 1}), [], id="without coherence it may be less"),
        pytest.param(demo({**COHERENT, "rollingUpdate": {"partition": 1}}), [], id="a partition of the set"),
        pytest.param(demo({**ROLLING, "inPlace": "IfPossible"}), [], id="pods that are updated in place"),
        pytest.param(by_revision(demo(COHERENT)), [], id="Services of revisions"),
        pytest.param(demo(ROLLING, None, None, {"partition": 2}), [], id="a partition of a group"),
        pytest.param(demo(ROLLING, {"maxSurge": 1}, None, {"maxSurge": 2}), [], id="a surge of parts"),
        pytest.param(demo(COHERENT, {"maxSurge": 1}, None, {"maxSurge": 2}), [], id="a surge of coherent parts"),
        pytest.param(
            demo(COHERENT, {"maxUnavailable": 1}),
            [
                f"{T}.cliques[0].rollingUpdate.maxUnavailable: Invalid value: 1: "
                "must be at least minAvailable (2) under Coherent"
            ],
            id="less than the minimum of a clique",
        ),
        pytest.param(
            demo(COHERENT, None, None, {"maxUnavailable": 2}),
            [
                f"{T}.podCliqueScalingGroups[0].rollingUpdate.maxUnavailable: Invalid value: 2: "
                "must be at least minAvailable (3) under Coherent"
            ],
            id="less than the minimum of a group",
        ),
        pytest.param(
            demo(ROLLING, None, {"maxUnavailable": 1}),
            [
                f"{T}.cliques[1].rollingUpdate: Forbidden: clique m is in scaling group g: "
                "set rollingUpdate on the group"
            ],
            id="a member of a group",
        ),
        pytest.param(
            demo(ROLLING, {"partition": 1}),
            [
                f"{T}.cliques[0].rollingUpdate.partition: Forbidden: "
                "a partition counts replicas of the set or of a scaling group"
            ],
            id="a partition of pods",
        ),
        pytest.param(
            demo({**ROLLING, "rollingUpdate": {"maxSurge": 1}}),
            [
                "spec.updateStrategy.rollingUpdate.maxSurge: Forbidden: "
                "set it on a standalone clique or on a scaling group"
            ],
            id="a surge of the set",
        ),
    ],
)
def test_rules(obj: Json, want: list[str]) -> None:
    assert faults(ADMISSION, obj) == want
