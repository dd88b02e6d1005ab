"""Argo CD's health and actions of our kinds, run as Argo CD runs them: on the object, in Lua."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.lua import Script
from tests.support.manifests import clique, group, pcs
from tests.support.standings import HALF, ROWS, Row

from grove.api.labels import RESTARTED_AT, ROLLOUT_PAUSED, ROLLOUT_UNDO
from grove.api.undo import PREVIOUS

Json = dict[str, Any]
DATA: Json = yaml.safe_load((Path(__file__).parents[3] / "deploy/argocd/argocd-cm.yaml").read_text())["data"]
ACTIONS: Json = yaml.safe_load(DATA["resource.customizations.actions.grove.io_PodCliqueSet"])
KINDS = "grove.io_PodCliqueSet", "grove.io_PodCliqueScalingGroup", "grove.io_PodClique", "scheduler.grove.io_PodGang"


def health(obj: Json) -> Json:
    group_ = obj.get("apiVersion", "grove.io/v1alpha1").partition("/")[0]
    key = f"resource.customizations.health.{group_}_{obj.get('kind', 'PodCliqueSet')}"
    found: Json = Script().run(DATA[key], obj=obj)
    return found


def offered(obj: Json) -> set[str]:
    found = Script().run(ACTIONS["discovery.lua"], obj=obj)
    return {name for name, one in found.items() if not one["disabled"]}


def acted(name: str, obj: Json) -> Json:
    """The object that Argo CD writes after the action."""
    (code,) = (one["action.lua"] for one in ACTIONS["definitions"] if one["name"] == name)
    found: Json = restored(Script().run(code, obj=copy.deepcopy(obj)), obj)
    return found


def restored(new: Any, old: Any) -> Any:
    """As `cleanReturnedObj` of Argo CD: an empty table has no type in Lua, so an empty map stays as it was."""
    if isinstance(new, dict) and isinstance(old, dict):
        return old if not new else {key: restored(value, old.get(key)) for key, value in new.items()}
    if isinstance(new, list) and isinstance(old, list):
        return [*map(restored, new, old)]
    return new


def test_every_kind_has_a_health_check() -> None:
    assert {f"resource.customizations.health.{kind}" for kind in KINDS} <= set(DATA)


@pytest.mark.parametrize("row", [pytest.param(one, id=one.id) for one in ROWS])
def test_health(row: Row) -> None:
    found = health(row.obj)
    assert found["status"] == row.health
    assert found["message"]


@pytest.mark.parametrize("obj", HALF)
def test_half_an_object_is_no_error_and_not_healthy(obj: Json) -> None:
    assert health(obj)["status"] == "Progressing"
    assert isinstance(offered(obj), set)
    for one in ACTIONS["definitions"]:
        assert isinstance(acted(one["name"], obj), dict)


def chat(**metadata: Any) -> Json:
    found = pcs("chat", clique("front"), clique("w", 2), groups=[group("g", "w", replicas=3)])
    found["metadata"].update(metadata)
    return found


def test_restart_marks_every_clique_and_nothing_else() -> None:
    before = chat()
    after = acted("restart", before)
    for one in after["spec"]["template"]["cliques"]:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", one["annotations"].pop(RESTARTED_AT))
        del one["annotations"]
    assert after == before


def test_pause_and_resume() -> None:
    assert offered(chat()) == {"restart", "pause", "undo"}
    paused = acted("pause", chat())
    assert paused["metadata"]["annotations"] == {ROLLOUT_PAUSED: "true"}
    assert offered(paused) == {"restart", "resume", "undo"}
    resumed = acted("resume", paused)
    assert ROLLOUT_PAUSED not in resumed["metadata"].get("annotations", {})
    resumed = acted("resume", chat(annotations={"team": "a", ROLLOUT_PAUSED: "true"}))
    assert resumed["metadata"]["annotations"] == {"team": "a"}


def test_undo_asks_the_operator_for_the_revision_before() -> None:
    before = chat(annotations={"team": "a"})
    after = acted("undo", before)
    assert after["metadata"].pop("annotations") == {"team": "a", ROLLOUT_UNDO: PREVIOUS}
    before["metadata"].pop("annotations")
    assert after == before


def test_promote_lets_an_update_go_on_where_a_partition_holds_it() -> None:
    held = chat(annotations={ROLLOUT_PAUSED: "true"})
    held["spec"]["updateStrategy"] = {"rollingUpdate": {"partition": 1, "maxUnavailable": 2}}
    held["spec"]["template"]["podCliqueScalingGroups"][0]["rollingUpdate"] = {"partition": 2}
    assert "promote" in offered(held)
    after = acted("promote", held)
    assert after["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 2}
    assert "promote" not in offered(after)
    assert "resume" not in offered(after)


def test_promote_removes_a_partition_that_stands_alone() -> None:
    """A map without entries would be restored by Argo CD, and the partition with it."""
    held = chat(annotations={ROLLOUT_PAUSED: "true"})
    held["spec"]["updateStrategy"] = {"rollingUpdate": {"partition": 1}}
    for part in (held["spec"]["template"]["cliques"][0], held["spec"]["template"]["podCliqueScalingGroups"][0]):
        part["rollingUpdate"] = {"partition": 2}
    before = chat()
    before["metadata"].pop("annotations", None)
    assert acted("promote", held) == before
