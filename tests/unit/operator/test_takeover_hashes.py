"""What is remembered of a set that another operator made: which of its hashes stand for the templates as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.go_operator import left_behind

from grove.api import labels as key
from grove.api.hashes import generation_hash, is_own, set_generation_hash
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.podcliqueset.takeover import Takeover, takeover
from grove.operator.shared.children import awaits_takeover, template_hashes

SCALED = {"pca": "5699866cccf6d454dcb8", "pcb": "5d7547d4d948c9647d9f", "pcc": "f8fd4fc4cdffbd5bc74"}
PCD = {"pcd": "7d4dd5f98d44d875f49"}
GENERATION = "b8d5bbf6dc496c85785"

Change = Callable[[list[Json]], None]


def of(kind: str, objects: list[Json]) -> list[Json]:
    return [one for one in objects if one["kind"] == kind]


def read(objects: list[Json]) -> tuple[PodCliqueSet, list[PodClique], list[PodCliqueScalingGroup], list[PodGang]]:
    def all_of(kind: Any) -> list[Any]:
        return [msgspec.convert(one, kind, strict=False) for one in of(kind.RESOURCE.kind, objects)]

    return all_of(PodCliqueSet)[0], all_of(PodClique), all_of(PodCliqueScalingGroup), all_of(PodGang)


def nothing(objects: list[Json]) -> None:
    """As the other operator left it."""


def unseen(objects: list[Json]) -> None:
    """A client wrote the set, without changing a template."""
    objects[0]["metadata"]["generation"] += 1


def edited(objects: list[Json]) -> None:
    """A client changed the last template while no operator ran."""
    unseen(objects)
    objects[0]["spec"]["template"]["cliques"][3]["spec"]["podSpec"]["containers"][0]["image"] = "nginx:2"


def labelled(objects: list[Json]) -> None:
    unseen(objects)
    objects[0]["spec"]["template"]["cliques"][3]["labels"] = {"tier": "gold"}


def prioritised(objects: list[Json]) -> None:
    unseen(objects)
    objects[0]["spec"]["template"]["priorityClassName"] = "high"


def strange(objects: list[Json]) -> None:
    """A newer version of the other operator adds to every pod something we know nothing of."""
    for clique in of("PodClique", objects):
        clique["spec"]["podSpec"]["runtimeClassName"] = "added"


def without_status(objects: list[Json]) -> None:
    """An older version of the other operator, which wrote no hashes into the status of cliques."""
    strange(objects)
    for clique in of("PodClique", objects):
        for field in ("currentPodCliqueSetGenerationHash", "currentPodTemplateHash", "updateProgress"):
            clique["status"].pop(field, None)


def ambiguous(objects: list[Json]) -> None:
    without_status(objects)
    of("PodClique", objects)[1]["metadata"]["labels"][key.POD_TEMPLATE_HASH] = "7d4dd5f98d44d875f49"
    of("PodClique", objects)[0]["metadata"]["labels"][key.POD_TEMPLATE_HASH] = "5699866cccf6d454dcb9"
    other = msgspec.json.decode(msgspec.json.encode(of("PodClique", objects)[0]))
    other["metadata"]["name"] = "simple1-1-pca"
    other["metadata"]["labels"] |= {key.POD_TEMPLATE_HASH: "5699866cccf6d454dcb8", key.REPLICA_INDEX: "1"}
    objects.append(other)


def emptied(objects: list[Json]) -> None:
    objects[:] = objects[:1]


@pytest.mark.parametrize(
    ("left", "change", "continues", "used", "updated"),
    [
        pytest.param("scaled", nothing, True, SCALED | PCD, (), id="a settled set keeps everything"),
        pytest.param("scaled", unseen, True, SCALED | PCD, (), id="a write that changed no template changes nothing"),
        pytest.param("scaled", edited, False, SCALED, ("pcd",), id="a changed template is updated, the others stay"),
        pytest.param("scaled", labelled, False, SCALED, ("pcd",), id="a label of the template is part of it"),
        pytest.param(
            "scaled", prioritised, False, {}, ("pca", "pcb", "pcc", "pcd"), id="another priority changes every pod"
        ),
        pytest.param("scaled", strange, True, SCALED | PCD, (), id="what cannot be compared is believed to the status"),
        pytest.param(
            "scaled", without_status, True, SCALED | PCD, (), id="all cliques of a template agree on its name"
        ),
        pytest.param(
            "scaled",
            ambiguous,
            False,
            {n: h for n, h in (SCALED | PCD).items() if n != "pca"},
            ("pca",),
            id="two names for one template: it is updated",
        ),
        pytest.param("scaled", emptied, True, {}, (), id="a set without cliques has only its own name"),
        pytest.param(
            "in-update",
            nothing,
            True,
            SCALED | PCD | {"pca": "69c966d49b89b7b8789"},
            ("pca",),
            id="in the middle of an update the new template's name counts",
        ),
    ],
)
def test_takeover(left: str, change: Change, continues: bool, used: dict[str, str], updated: tuple[str, ...]) -> None:
    objects = left_behind(left)
    change(objects)
    pcs, cliques, groups, gangs = read(objects)
    assert awaits_takeover(pcs)
    found = takeover(pcs, cliques, groups, gangs)
    assert found.continues == continues
    assert found.updated == updated
    assert {one.clique_name: one.used_hash for one in found.adopted if one.clique_name} == used
    of_set = [one.used_hash for one in found.adopted if not one.clique_name]
    assert of_set == ([objects[0]["status"]["currentGenerationHash"]] if continues else [])


def adopt(pcs: PodCliqueSet, found: Takeover) -> PodCliqueSet:
    status = msgspec.structs.replace(pcs.status, adopted_hashes=found.adopted)
    return msgspec.structs.replace(pcs, status=status)


@given(
    st.sampled_from(["scaled", "in-update", "groups", "start-order"]),
    st.lists(st.sampled_from([unseen, edited, labelled, strange, without_status]), max_size=3),
)
def test_what_was_remembered_is_in_use_and_a_second_look_remembers_the_same(left: str, changes: list[Change]) -> None:
    objects = left_behind(left)
    for change in changes:
        change(objects)
    pcs, cliques, groups, gangs = read(objects)
    found = takeover(pcs, cliques, groups, gangs)

    after = adopt(pcs, found)

    assert takeover(after, cliques, groups, gangs) == found, "a crash after the write loses nothing"
    assert awaits_takeover(after) == (not found.continues)
    in_use, on_cliques = template_hashes(after), {one.metadata.labels[key.POD_TEMPLATE_HASH] for one in cliques}
    assert all(in_use[name] in on_cliques for name in found.kept)
    assert (set_generation_hash(after) == pcs.status.current_generation_hash) == found.continues


def test_a_template_that_changes_goes_by_our_own_hash_and_gets_its_name_back_with_its_content() -> None:
    pcs, cliques, groups, gangs = read(left_behind("scaled"))
    taken = adopt(pcs, takeover(pcs, cliques, groups, gangs))
    changed = msgspec.convert(msgspec.to_builtins(taken), PodCliqueSet, strict=False)
    changed.spec.template.cliques[0].spec.pod_spec["containers"][0]["image"] = "nginx:2"

    assert is_own(template_hashes(changed)["pca"])
    assert template_hashes(changed)["pcd"] == PCD["pcd"]
    assert set_generation_hash(changed) == generation_hash(changed.spec.template)

    changed.spec.template.cliques[0].spec.pod_spec["containers"][0]["image"] = "nginx:latest"
    assert template_hashes(changed) == SCALED | PCD
    assert set_generation_hash(changed) == GENERATION


def test_a_set_of_ours_awaits_nothing() -> None:
    pcs, *_ = read(left_behind("scaled"))
    fresh = msgspec.structs.replace(pcs.status, current_generation_hash="")
    ours = msgspec.structs.replace(pcs.status, current_generation_hash=generation_hash(pcs.spec.template))
    assert not awaits_takeover(msgspec.structs.replace(pcs, status=fresh))
    assert not awaits_takeover(msgspec.structs.replace(pcs, status=ours))
