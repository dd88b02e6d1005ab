"""Which gangs ask for the same, where their pods look at other pods; and which moves of pods can help them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.scheduler.kit import HOST, ZONE, gang, group, node, pod, shape, snap

from grove.api.core import LabelSelector
from grove.api.selector import of
from grove.scheduler.model.facts import PodFacts, PodScope, PodTerm, Spread
from grove.scheduler.model.gang import Gang
from grove.scheduler.policy.alike import ask_of
from grove.scheduler.policy.cluster_changes import PodMove, can_help


def scope(app: str, **more: Any) -> PodScope:
    return PodScope(of(LabelSelector(match_labels={"app": app})), frozenset({"default"}), **more)


def term(key: str, app: str) -> PodTerm:
    return PodTerm(key, scope(app))


A, B = {"app": "a"}, {"app": "b"}
APART_A = {"anti_affinity": (term(HOST, "a"),)}
RUNNING = pod("runs", on="n", labels=B, anti_affinity=(term(HOST, "c"),))


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        pytest.param(
            gang(group("w", 2, labels={**A, "gang": "1"}, **APART_A)),
            gang(group("v", 2, labels={**A, "gang": "2"}, **APART_A)),
            True,
            id="labels that no term selects do not matter",
        ),
        pytest.param(
            gang(group("w", 2, labels=A, **APART_A)),
            gang(group("w", 2, labels=B, **APART_A)),
            False,
            id="its own term selects the pods of the first gang only",
        ),
        pytest.param(
            gang(group("w", 1, labels=A, **APART_A)),
            gang(group("w", 1, labels=A, anti_affinity=(term(ZONE, "a"),))),
            False,
            id="apart in hosts is not apart in zones",
        ),
        pytest.param(
            gang(group("w", 1, labels=A, affinity=(term(ZONE, "a"),))),
            gang(group("w", 1, labels=A, affinity=(term(ZONE, "b"),))),
            False,
            id="near other pods",
        ),
        pytest.param(
            gang(group("w", 1, labels=A, spread=(Spread(ZONE, 1, scope("a")),))),
            gang(group("w", 1, labels=A, spread=(Spread(ZONE, 2, scope("a")),))),
            False,
            id="another skew",
        ),
        pytest.param(
            gang(group("w", 1, labels={"app": "c"})),
            gang(group("w", 1, labels=A)),
            False,
            id="a running pod keeps one of them away",
        ),
    ],
)
def test_gangs_ask_for_the_same_if_the_same_terms_select_their_pods(first: Gang, second: Gang, same: bool) -> None:
    snapshot = snap([node("n")], [RUNNING])
    asks = ask_of(snapshot, first), ask_of(snapshot, second)
    assert None not in asks
    assert (asks[0] == asks[1]) is same


NEAR = shape(affinity=(term(ZONE, "a"),))
EVEN = shape(spread=(Spread(ZONE, 1, scope("a", with_terminating=False)),))
APART_IN_HOSTS = shape(anti_affinity=(term(HOST, "a"),))
APART_IN_ZONES = shape(anti_affinity=(term(ZONE, "a"),))


@pytest.mark.parametrize(
    ("before", "after", "helped"),
    [
        pytest.param(None, pod("p", on="n", labels=A), "near even", id="it comes"),
        pytest.param(pod("p", on="n", labels=A), None, "near even zones", id="it leaves"),
        pytest.param(None, pod("p", on="n", labels=B), "", id="another pod comes"),
        pytest.param(pod("p", on="n", labels=B), None, "", id="another pod leaves"),
        pytest.param(
            pod("p", on="n", labels=A), pod("p", on="n", labels=B), "near even hosts zones", id="it loses the label"
        ),
        pytest.param(pod("p", on="n", labels=B), pod("p", on="n", labels=A), "near even", id="it gets the label"),
        pytest.param(
            pod("p", on="n", labels=A), pod("p", on="n", labels=A, terminating=True), "even", id="it terminates"
        ),
        pytest.param(
            pod("p", on="n", labels=A), pod("p", on="m", labels=A), "near even zones", id="it is on another node"
        ),
    ],
)
def test_a_move_helps_pods_whose_terms_select_it(before: PodFacts | None, after: PodFacts | None, helped: str) -> None:
    matches = snap([node("n"), node("m")]).counts.matches
    shapes = {"near": NEAR, "even": EVEN, "hosts": APART_IN_HOSTS, "zones": APART_IN_ZONES}
    found = [name for name, one in shapes.items() if can_help(one, PodMove(before, after), matches)]
    assert found == helped.split()
