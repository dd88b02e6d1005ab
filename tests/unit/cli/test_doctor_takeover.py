"""`doctor --takeover`: what it says of sets that another operator made is what the operator then does."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.support.go_operator import left_behind, put

from grove.answers.doctor import takeover_answer
from grove.answers.findings import Finding
from grove.api.core import Lease, Namespace, Node
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.sim.cluster import SimCluster, own_crds
from grove.sim.loop import run

NOW = datetime(2026, 11, 16, tzinfo=UTC)
ACCESS = "; its unused ServiceAccount, Role, RoleBinding and token Secret are removed"


def said(left: str, change: Json | None = None, *, leads: bool = False) -> dict[str, Finding]:
    async def ask() -> list[Finding]:
        async with SimCluster() as cluster:
            client = cluster.client()
            await client.create(Node, {"metadata": {"name": "n"}})
            await client.create(Namespace, {"metadata": {"name": "app"}})
            objects = left_behind(left)
            await put(client, "app", objects, ["n"])
            if change is not None:
                await client.patch(PodCliqueSet, objects[0]["metadata"]["name"], change, "app")
            if leads:
                meta = {"name": "grove-operator-leader-election", "namespace": "app"}
                spec = {"holderIdentity": "other-0", "renewTime": "2026-11-16T00:00:00.000000Z"}
                await client.create(Lease, {"metadata": meta, "spec": {**spec, "leaseDurationSeconds": 15}})
            found: list[Finding] = (await takeover_answer(client, "", NOW)).data
            return found

    return {one.check: one for one in run(ask())}


@pytest.mark.parametrize(
    ("left", "change", "name", "state", "text"),
    [
        pytest.param(
            "scaled", None, "app/simple1", "ok", f"17 pods stay as they are{ACCESS}", id="a settled set stays"
        ),
        pytest.param(
            "start-order", None, "app/simple2", "ok", "9 pods stay as they are", id="a token that pods mount stays"
        ),
        pytest.param(
            "in-update",
            None,
            "app/simple1",
            "warning",
            "15 pods stay as they are; replaced one after another: 2 of pca (the update that is under way goes on)"
            f"{ACCESS}",
            id="an update goes on",
        ),
        pytest.param(
            "in-update",
            {"spec": {"updateStrategy": {"type": "OnDelete"}}},
            "app/simple1",
            "ok",
            f"15 pods stay as they are; outdated pods stay too (2 of pca): its strategy is OnDelete{ACCESS}",
            id="under OnDelete nothing is replaced",
        ),
        pytest.param(
            "in-update",
            {"metadata": {"annotations": {"grove.io/rollout-paused": "true"}}},
            "app/simple1",
            "ok",
            f"15 pods stay as they are; outdated pods stay too (2 of pca): its rollout is paused{ACCESS}",
            id="a paused rollout waits",
        ),
    ],
)
def test_a_forecast(left: str, change: Json | None, name: str, state: str, text: str) -> None:
    found = said(left, change)[name]
    assert (found.state, found.text) == (state, text)
    assert bool(found.fix) == (state == "warning")


def test_it_names_the_schedulers_that_have_to_stay_enabled() -> None:
    assert "default-scheduler places 1 set" in said("scaled")["scheduler"].text


def test_an_older_operator_with_fewer_kinds_is_no_hindrance() -> None:
    async def ask() -> list[Finding]:
        without = [one for one in own_crds() if "clustertopology" not in one["metadata"]["name"]]
        async with SimCluster(definitions=without) as cluster:
            client = cluster.client()
            await client.create(Node, {"metadata": {"name": "n"}})
            await client.create(Namespace, {"metadata": {"name": "app"}})
            await put(client, "app", left_behind("scaled"), ["n"])
            found: list[Finding] = (await takeover_answer(client, "", NOW)).data
            return found

    found = {one.check: one for one in run(ask())}
    assert (found["kinds"].state, found["app/simple1"].state) == ("warning", "ok")
    assert "clustertopologybindings.grove.io" in found["kinds"].text


def test_it_warns_of_an_operator_that_still_runs() -> None:
    assert said("scaled")["operator"].text == "no operator leads now"
    assert said("scaled", leads=True)["operator"].state == "warning"
