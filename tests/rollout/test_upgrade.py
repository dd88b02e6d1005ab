"""A new version of the operator takes over what an earlier one made, and touches no pod."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World, operating

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.api import hashes, labels
from grove.api.core import ControllerRevision, Pod
from grove.api.hashes import POD_DEFAULTS, Reading
from grove.api.meta import Json, Object
from grove.api.node import PriorityClass
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet


@pytest.mark.simulated  # what is compared is made in this process, and the same on any cluster
async def test_a_set_whose_cliques_name_a_priority_class_is_not_rolled_out_by_an_upgrade(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions left a clique's own priority class out of the hash; the pods are the same."""
    for value, name in enumerate(("low", "high")):
        await cluster.client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
    async with operating(cluster) as world:
        with monkeypatch.context() as patched:
            _read_templates_by(patched, Reading(own_priority=False))
            await world.apply(pcs("chat", clique("a", 2, priorityClassName="high"), clique("b"), replicas=2))
            await world.available("chat")
            await world.stop()
        before = await _pods(world)

        await world.start()
        await world.quiet()

        assert await _pods(world) == before
        status = (await world.get(PodCliqueSet, "chat")).status
        assert status.update_progress is None
        await _edited_later_it_is_rolled_out(world, before)


@pytest.mark.parametrize("kind", ["RollingRecreate", "Coherent"])
@pytest.mark.simulated
async def test_a_set_that_is_stored_without_later_defaults_keeps_its_pods(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The earlier version had no revisions, and admission never saw the set. Its first write fills the defaults in."""
    async with operating(cluster) as world:
        with monkeypatch.context() as patched:
            _read_templates_by(patched, Reading(absent=frozenset(POD_DEFAULTS)))
            config = group("g", "b", replicas=2, min_available=1)
            manifest = pcs("chat", clique("a", 2), clique("b"), groups=[config], strategy={"type": kind})
            await world.apply(_without_defaults(manifest))
            await world.available("chat")
            await world.ready(4)
            await world.stop()
        await _forget_revisions(world)
        before = await _pods(world)

        await world.start()
        await world.quiet()
        assert await _pods(world) == before
        await world.restart()
        await world.quiet()
        assert await _pods(world) == before

        await _fill_defaults(world)
        await world.quiet(for_s=20)
        assert await _pods(world) == before
        assert (await world.get(PodCliqueSet, "chat")).status.update_progress is None
        kept = (await world.client.list(ControllerRevision, world.namespace)).items
        assert len(kept) == 1, "undo would go back to the same template"

        await world.scale(PodCliqueSet, "chat", 2)
        await world.available("chat", 2)
        assert before < await _pods(world)


@pytest.mark.simulated
async def test_defaults_that_are_filled_in_while_no_operator_runs_keep_the_pods(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with operating(cluster) as world:
        with monkeypatch.context() as patched:
            _read_templates_by(patched, Reading(absent=frozenset(POD_DEFAULTS)))
            await world.apply(_without_defaults(pcs("chat", clique("a", 2), clique("b"))))
            await world.available("chat")
            await world.stop()
        await _forget_revisions(world)
        before = await _pods(world)

        await _fill_defaults(world)
        await world.start()
        await world.quiet(for_s=20)

        assert await _pods(world) == before
        assert (await world.get(PodCliqueSet, "chat")).status.update_progress is None


def _without_defaults(manifest: Json) -> Json:
    for template in manifest["spec"]["template"]["cliques"]:
        for name in POD_DEFAULTS:
            template["spec"]["podSpec"].pop(name)
    return manifest


def _read_templates_by(patched: pytest.MonkeyPatch, reading: Reading) -> None:
    """Hashes as an earlier version makes them."""
    subject = hashes._subject
    patched.setattr(hashes, "_subject", lambda clique, name, _reading: subject(clique, name, reading))


async def _forget_revisions(world: World) -> None:
    """Takes away what earlier versions did not write: the label of cliques and pods, and the revisions of parts."""
    label: Any = {"metadata": {"labels": {labels.REVISION: None}}}
    kinds: tuple[type[Object], ...] = (PodClique, Pod)
    for kind in kinds:
        for one in (await world.client.list(kind, world.namespace)).items:
            await world.client.patch(kind, one.metadata.name, label, world.namespace)
    await world.client.patch(
        PodCliqueSet, "chat", {"status": {"revisions": None}}, world.namespace, subresource="status"
    )


async def _fill_defaults(world: World) -> None:
    """What admission does to the next write of the set."""
    raw = await world.client.get(PodCliqueSet.RESOURCE, "chat", world.namespace)
    spec = with_additions(raw, missing_defaults(raw))["spec"]
    await world.client.patch(PodCliqueSet, "chat", {"spec": spec}, world.namespace)


async def _edited_later_it_is_rolled_out(world: World, before: set[str]) -> None:
    found = (await world.client.get(PodCliqueSet.RESOURCE, "chat", world.namespace))["spec"]["template"]
    found["cliques"][0]["spec"]["podSpec"]["priorityClassName"] = "low"
    await world.client.patch(PodCliqueSet, "chat", {"spec": {"template": found}}, world.namespace)

    async def updated() -> bool:
        progress = (await world.get(PodCliqueSet, "chat")).status.update_progress
        return progress is not None and progress.update_ended_at is not None

    await world.eventually(updated)
    assert len(await _pods(world) & before) == 2, "clique b has not changed"


async def _pods(world: World) -> set[str]:
    return {pod.metadata.uid for pod in await world.pods()}
