"""The command line takes the name of a dialect's object wherever it takes that of a set."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.dialect_worlds import apply, said
from tests.support.dialects import SEEDS, gang_set, koord_set, nested
from tests.support.manifests import clique, pcs
from tests.support.operating import World

from grove.answers.answer import Unanswered, object_name
from grove.answers.dialects import scaled_target
from grove.answers.explain import explain_answer
from grove.answers.rollout import pause_answer, restart_answer, undo_answer
from grove.answers.scale import scale_answer, scaleref_answer, targets
from grove.answers.tree import status_answer, tree_answer
from grove.api.dynamo import PodGangSet
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.demo.scenario import load_manifests

pytestmark = pytest.mark.simulated

LONG = "a-name-of-fifty-characters-that-is-far-too-long-xy"
CUT = "a-name-of-fifty-characters-that-is-f-91af"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def test_tree_status_and_explain_show_the_set_that_is_kept_for_an_object(world: World) -> None:
    await apply(world, gang_set(LONG, 2))
    await said(world, PodGangSet, LONG, "Ready", "True")
    tree = await tree_answer(world.client, world.namespace, LONG)
    assert tree.data["name"] == CUT
    assert tree.data["ready"] == 2
    status = await status_answer(world.client, world.namespace, LONG, NOW)
    assert [one.name for one in status.data] == [CUT]
    explained = await explain_answer(world.client, world.namespace, f"podgangset/{LONG}")
    assert [one.gang for one in explained.data["gangs"]] == [f"{CUT}-0"]


async def test_an_object_without_a_set_says_why(world: World) -> None:
    await apply(world, koord_set("wrong", groups={"g": [nested("a", order=-1)]}))

    async def told() -> str:
        try:
            await tree_answer(world.client, world.namespace, "wrong")
        except Unanswered as error:
            return error.message if "startOrder" in error.message else ""
        return ""

    assert "PodCliqueSet wrong has no PodCliqueSet: spec.template" in await world.eventually(told)


async def test_a_name_no_one_has_is_reported_as_before(world: World) -> None:
    await world.apply(pcs("there", clique("w")))
    asked = {
        "tree": lambda: tree_answer(world.client, world.namespace, "nobody"),
        "scale": lambda: scale_answer(world.client, world.namespace, "nobody", 3),
        "scaleref": lambda: scaleref_answer(world.client, world.namespace, "nobody/part"),
        "rollout undo": lambda: undo_answer(world.client, world.namespace, "nobody"),
    }
    for ask in asked.values():
        with pytest.raises(Unanswered, match=r"there is no PodCliqueSet nobody in namespace .*there"):
            await ask()


async def test_a_template_that_belongs_to_another_object_is_not_undone_or_restarted(world: World) -> None:
    await apply(world, gang_set(LONG, 2))
    await said(world, PodGangSet, LONG, "Ready", "True")
    where = rf"{CUT} is kept for {LONG} of grove.dynamo.ai: change the template there"
    with pytest.raises(Unanswered, match=where):
        await undo_answer(world.client, world.namespace, LONG)
    with pytest.raises(Unanswered, match=where):
        await restart_answer(world.client, world.namespace, LONG, NOW)
    paused = await pause_answer(world.client, world.namespace, LONG, paused=True)
    assert paused.data == {"name": CUT, "paused": True}


async def test_scaling_a_gang_set_means_its_pods(world: World) -> None:
    await apply(world, gang_set(LONG, 2))
    await said(world, PodGangSet, LONG, "Ready", "True")
    await apply(world, koord_set("many", podCliques=[nested("a")]))
    await world.available("many")
    for name in (CUT, LONG, f"podgangset/{LONG}", f"{LONG}/gang"):
        _, meant = await targets(world.client, world.namespace, name, None)
        assert [(type(one), one.metadata.name) for one in meant] == [(PodClique, f"{CUT}-0-gang")]
    scaled = await scale_answer(world.client, world.namespace, LONG, 3)
    assert [(one.name, one.before, one.after) for one in scaled.data["changes"]] == [(f"{CUT}-0-gang", 2, 3)]
    ref = await scaleref_answer(world.client, world.namespace, LONG)
    assert ref.data["scaleTargetRef"]["name"] == f"{CUT}-0-gang"
    sets = (await world.client.list(PodCliqueSet.RESOURCE, world.namespace)).items
    assert scaled_target(LONG, sets) == f"{CUT}/gang"
    assert scaled_target("many", sets) == "many"
    assert scaled_target("many/a", sets) == "many/a"
    assert scaled_target("other", sets) == "other"


@pytest.mark.parametrize(
    "text", ["podgangset/x", "dynamopodgangsets.grove.dynamo.ai/x", "koordpodcliqueset/x", "pcs/x"]
)
def test_kinds_that_are_kept_as_a_set_may_stand_before_the_name(text: str) -> None:
    assert object_name(text) == "x"


def test_plan_and_simulate_read_the_dialects(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text("---\n".join(one.read_text() for one in sorted(SEEDS.glob("*.yaml"))))
    found = load_manifests(file)
    assert sorted(one["metadata"]["name"] for one in found) == [
        "dynamo-multinode-serving",
        "llama-inference",
        "llm-inference-gang",
        "mpi-inference",
    ]
    assert {one["apiVersion"] for one in found} == {"grove.io/v1alpha1"}
    file.write_text((SEEDS / "mpi.yaml").read_text().replace("startOrder: 1", "startOrder: -1"))
    with pytest.raises(ValueError, match="startOrder"):
        load_manifests(file)
