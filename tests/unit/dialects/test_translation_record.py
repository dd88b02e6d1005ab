"""A translation in a set that lives: ours is kept as said, what is said no more goes, what others wrote stays."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.dialects import gang_set, koord_set, koord_sets, nested

from grove.api.labels import TRANSLATION
from grove.api.meta import Json
from grove.api.patch import apply_merge_patch
from grove.dialects import dynamo, koord
from grove.dialects.record import Record, Scaling, merged_set, record_of, scale_changes, set_patch, with_record


def living(manifest: Json) -> Json:
    """A set as it is stored after its first translation, with what a server and an admission add."""
    record = record_of(manifest, {})
    live = deepcopy(with_record(manifest, record))
    live["metadata"] |= {"resourceVersion": "7", "uid": "u", "finalizers": ["grove.io/podcliqueset.grove.io"]}
    live["spec"]["template"]["terminationDelay"] = "4h0m0s"
    for clique in live["spec"]["template"]["cliques"]:
        clique["spec"].setdefault("minAvailable", clique["spec"]["replicas"])
        clique["spec"]["podSpec"]["restartPolicy"] = "Always"
    return live


def updated(live: Json, manifest: Json) -> Json:
    """The stored set after another translation."""
    last = Record.of(live["metadata"]["annotations"])
    assert last is not None
    patch = set_patch(live, merged_set(live, manifest, last, record_of(manifest, last.placement, last)))
    found: Json = apply_merge_patch(live, patch) if patch is not None else live
    return found


def clique_of(live: Json, index: int = 0) -> Json:
    found: Json = live["spec"]["template"]["cliques"][index]
    return found


def test_what_a_hand_or_an_admission_wrote_beside_ours_stays_through_changes() -> None:
    live = living(dynamo.to_set(gang_set(replicas=2)).manifest)
    clique_of(live)["topologyConstraint"] = {"pack": {"preferred": "rack"}}
    clique_of(live)["spec"]["podSpec"]["containers"].append({"name": "sidecar", "image": "x"})
    live["metadata"]["labels"]["hand"] = "made"

    changed = gang_set(replicas=2)
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "new"
    after = updated(live, dynamo.to_set(changed).manifest)

    assert clique_of(after)["topologyConstraint"] == {"pack": {"preferred": "rack"}}
    assert [one["image"] for one in clique_of(after)["spec"]["podSpec"]["containers"]] == ["new", "x"]
    assert clique_of(after)["spec"]["minAvailable"] == 2
    assert after["metadata"]["labels"]["hand"] == "made"


def test_what_we_said_and_say_no_more_is_taken_back() -> None:
    wished = gang_set(scheduling={"nodeSelector": {"a": "1"}, "priorityClassName": "high"}, labels={"app": "x"})
    wished["metadata"]["labels"] = {"team": "a"}
    live = living(dynamo.to_set(wished).manifest)
    after = updated(live, dynamo.to_set(gang_set()).manifest)
    assert "nodeSelector" not in clique_of(after)["spec"]["podSpec"]
    assert "labels" not in clique_of(after)
    assert "priorityClassName" not in after["spec"]["template"]
    assert after["metadata"]["labels"] == {"grove.io/translated-from": "grove.dynamo.ai"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(gang_set(replicas=4, minAvailable=2), gang_set(replicas=4), id="of a PodGangSet"),
        pytest.param(
            koord_set(podCliques=[nested("a", 4, minAvailable=2)]),
            koord_set(podCliques=[nested("a", 4)]),
            id="of a set of grove.ai",
        ),
    ],
)
def test_a_minimum_that_is_removed_stays_because_a_running_set_cannot_take_another(before: Json, after: Json) -> None:
    to_set = dynamo.to_set if before["kind"] == "PodGangSet" else koord.to_set
    live = living(to_set(before).manifest)
    found = updated(live, to_set(after).manifest)
    assert clique_of(found)["spec"]["minAvailable"] == 2
    assert updated(found, to_set(after).manifest) == found


def test_a_hand_edit_of_what_is_ours_is_put_right() -> None:
    manifest = dynamo.to_set(gang_set()).manifest
    live = living(manifest)
    clique_of(live)["spec"]["podSpec"]["containers"][0]["image"] = "by-hand"
    assert clique_of(updated(live, manifest)) == clique_of(living(manifest))


def test_a_direct_scaling_of_the_set_counts_until_the_object_has_another_number() -> None:
    manifest = koord.to_set(koord_set(podCliques=[nested("a")], replicas=2)).manifest
    live = living(manifest)
    live["spec"]["replicas"] = 5
    assert updated(live, manifest)["spec"]["replicas"] == 5
    assert (
        updated(live, koord.to_set(koord_set(podCliques=[nested("a")], replicas=3)).manifest)["spec"]["replicas"] == 3
    )


def test_changed_replicas_are_remembered_until_the_cliques_have_them() -> None:
    first = koord.to_set(koord_set(groups={"g": [nested("a", 1), nested("b", 1)]})).manifest
    second = koord.to_set(koord_set(groups={"g": [nested("a", 2), nested("b", 1)]})).manifest
    record = record_of(second, {}, record_of(first, {}))
    assert record.scaling == [Scaling("cliques", "a", 2)]
    assert record_of(second, {}, record).scaling == [Scaling("cliques", "a", 2)]
    told = replace(record, scaling=[Scaling("cliques", "a", 2, ("uid",))])
    assert record_of(second, {}, told).scaling == told.scaling, "who was scaled is not scaled again"
    assert Record.of({TRANSLATION: str(told)}) == told
    assert scale_changes(record_of(first, {}), first["spec"]) == []
    second["spec"]["template"]["podCliqueScalingGroups"][0]["replicas"] = 4
    assert record_of(second, {}, record_of(first, {})).scaling == [
        Scaling("cliques", "a", 2),
        Scaling("podCliqueScalingGroups", "g", 4),
    ]


def test_a_spoilt_record_is_no_record() -> None:
    assert Record.of({"grove.io/translation": "{"}) is None
    assert Record.of({"grove.io/translation": "[1]"}) is None
    assert Record.of({}) is None


@given(koord_sets())
def test_translating_twice_writes_nothing(obj: Json) -> None:
    manifest = koord.to_set(obj).manifest
    live = living(manifest)
    last = Record.of(live["metadata"]["annotations"])
    assert last is not None
    assert set_patch(live, merged_set(live, manifest, last, record_of(manifest, {}, last))) is None


@given(koord_sets(), koord_sets(), st.integers(0, 9))
def test_edits_at_either_end_come_together(first: Json, second: Json, scaled: int) -> None:
    """Whatever the set was before and whatever scaled it: the second round writes nothing, and ours is there."""
    second["metadata"]["name"] = first["metadata"]["name"]
    live = living(koord.to_set(first).manifest)
    live["spec"]["replicas"] = scaled
    live["metadata"]["labels"]["hand"] = "made"
    manifest = koord.to_set(second).manifest
    once = updated(live, manifest)
    settled = updated(once, manifest)
    assert settled == once
    assert once["metadata"]["labels"]["hand"] == "made"
    names = [one["name"] for one in manifest["spec"]["template"]["cliques"]]
    assert [one["name"] for one in once["spec"]["template"]["cliques"]] == names
    wanted = manifest["spec"]["replicas"]
    assert once["spec"]["replicas"] == (scaled if wanted == first["spec"]["replicas"] else wanted)
