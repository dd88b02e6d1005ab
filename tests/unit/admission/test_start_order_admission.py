"""Start conditions that admission refuses, and start orders that it warns about."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import changed, faults

from grove.admission.rules.review import Admission
from grove.admission.rules.startorder import start_order_notes
from grove.admission.rules.view import SetView
from grove.api.meta import Json
from grove.api.podcliqueset import EXPLICIT, IN_ORDER

T = "spec.template"
PROBE = {"httpGet": {"path": "/health", "port": 8000}}
NUM_PODS = "$(GROVE_PCSG_TEMPLATE_NUM_PODS)"


def leader(*args: str, probe: Json | None = PROBE) -> Json:
    container: Json = {"name": "main", "image": "vllm", "args": list(args)}
    if probe:
        container["readinessProbe"] = probe
    return clique("leader", containers=[container])


def engine(first: Json, condition: str = "", grouped: bool = True, **template: Any) -> Json:
    groups = [group("engine", "leader", "worker")] if grouped else []
    worker = clique("worker", starts_after=["leader"], start_condition=condition)
    return pcs("web", first, worker, groups=groups, startup=EXPLICIT, **template)


@pytest.mark.parametrize(
    ("obj", "word"),
    [
        pytest.param(engine(leader("--nnodes", "2")), "nnodes", id="a leader that runs over several nodes"),
        pytest.param(engine(leader(f"--world={NUM_PODS}")), "GROVE_PCSG_TEMPLATE_NUM_PODS", id="counts its group"),
        pytest.param(engine(leader("--rpc=$(GROVE_PCSG_NAME)-0-worker-0:50052")), "worker", id="names its workers"),
        pytest.param(
            engine(leader("--workers=$(GROVE_PCSG_NAME)-$(GROVE_PCSG_INDEX)-worker")),
            "worker",
            id="names its workers, and its program adds the index",
        ),
        pytest.param(engine(leader("--no-worker", "--is-worker=no")), None, id="an option with the name of a clique"),
        pytest.param(
            pcs(
                "web",
                leader("--nnodes", "2"),
                clique("worker"),
                groups=[group("engine", "leader", "worker")],
                startup=IN_ORDER,
            ),
            "nnodes",
            id="in order",
        ),
        pytest.param(engine(leader("--nnodes", "2"), "Started"), None, id="worker waits for Started"),
        pytest.param(engine(leader("--nnodes", "2"), startsAfterCondition="Created"), None, id="the set says Created"),
        pytest.param(
            engine(leader("--nnodes", "2"), "Ready", startsAfterCondition="Created"),
            "nnodes",
            id="the clique overrules the set",
        ),
        pytest.param(engine(leader("--nnodes", "2", probe=None)), None, id="a leader that is ready at once"),
        pytest.param(engine(leader("--port", "80")), None, id="a leader that needs no other pod"),
        pytest.param(engine(leader("--nnodes", "2"), grouped=False), None, id="no scaling group"),
    ],
)
def test_two_cliques_that_may_wait_for_each_other_are_warned_about(obj: Json, word: str | None) -> None:
    found = list(start_order_notes(SetView(obj)))
    assert len(found) == (word is not None)
    if word is not None:
        path = f"{T}.cliques[1].spec.startsAfterCondition: "
        assert found[0].startswith(f"{path}worker starts when leader is Ready, but leader uses {word} ")
        assert found[0].endswith("set startsAfterCondition to Started")


def test_a_condition_that_nothing_reads_is_warned_about() -> None:
    obj = pcs("web", clique("a", start_condition="Started"), clique("b"), startsAfterCondition="Created")
    assert list(start_order_notes(SetView(obj))) == [
        f"{T}.startsAfterCondition: not used, because no clique starts after another",
        f"{T}.cliques[0].spec.startsAfterCondition: not used, because a starts after no other clique",
    ]


@pytest.mark.parametrize("startup", ["", "CliqueStartupTypeAnyOrder", IN_ORDER])
def test_starts_after_without_the_explicit_order_is_warned_about(startup: str) -> None:
    obj = pcs("web", clique("a"), clique("b", starts_after=["a"], start_condition="Started"), startup=startup)
    assert f"{T}.cliques[1].spec.startsAfter: not used, because cliqueStartupType is not {EXPLICIT}" in list(
        start_order_notes(SetView(obj))
    )


def test_starts_after_with_the_explicit_order_is_used() -> None:
    assert list(start_order_notes(SetView(engine(leader())))) == []


def test_a_value_that_does_not_exist_is_refused() -> None:
    (fault, other) = faults(Admission(), engine(leader(), "Soon", startsAfterCondition="later"))
    assert f'{T}.cliques[1].spec.startsAfterCondition: Unsupported value: "Soon"' in fault
    assert f'{T}.startsAfterCondition: Unsupported value: "later"' in other


def test_the_condition_may_change_on_a_set_that_runs() -> None:
    stored = engine(leader())
    edited = changed(stored, (f"{T}.cliques.1.spec.startsAfterCondition", "Started"))
    assert faults(Admission(), edited, stored) == []
