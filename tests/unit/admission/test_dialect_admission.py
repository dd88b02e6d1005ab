"""Objects of the dialects at admission: every fault at once, in their own spelling, also those of the set behind."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from tests.support.dialects import SEEDS, gang_set, koord_set, nested, pod_template, rule, seed, wish
from tests.support.reviews import binding, response, review_of, schedulers

from grove.admission.rules.lookups import Known
from grove.admission.rules.review import VALIDATE_DIALECT, Admission
from grove.api.meta import Json, Key
from grove.dialects import dynamo, koord
from grove.dialects.record import record_of, with_record

ADMISSION = Admission(
    topology_enabled=True,
    dialects=True,
    backends=schedulers("grove-scheduler", "default-scheduler", spreading=("grove-scheduler",)),
)
GROUPS = "spec.template.podCliqueScalingGroups"


def answer(new: Json, old: Json | None = None, stored: Json | None = None) -> Json:
    sets = {Key("default", stored["metadata"]["name"]): stored} if stored is not None else {}
    known = Known(sets=sets, topologies={"cluster": binding(rack="example.com/rack")})
    return response(ADMISSION, VALIDATE_DIALECT, review_of(new, old), known)


def faults(new: Json, old: Json | None = None, stored: Json | None = None) -> list[tuple[str, str]]:
    status = answer(new, old, stored).get("status") or {}
    return [(one["field"], one["message"]) for one in status.get("details", {}).get("causes", ())]


def stored_set(obj: Json) -> Json:
    """The set that was made from an object, as it is stored."""
    manifest = (dynamo if obj["kind"] == "PodGangSet" else koord).to_set(obj).manifest
    found: Json = deepcopy(with_record(manifest, record_of(manifest, {})))
    found["spec"]["template"] |= {
        "terminationDelay": "4h0m0s",
        "headlessServiceConfig": {"publishNotReadyAddresses": True},
    }
    found["spec"]["template"].setdefault("cliqueStartupType", "CliqueStartupTypeAnyOrder")
    for clique in found["spec"]["template"]["cliques"]:
        clique["spec"].setdefault("minAvailable", clique["spec"]["replicas"])
        clique["spec"]["podSpec"] |= {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30}
    return found


@pytest.mark.parametrize("file", sorted(SEEDS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_manifest_of_the_samples_is_admitted(file: Any) -> None:
    assert faults(seed(file.stem)) == []


@pytest.mark.parametrize(
    ("obj", "paths"),
    [
        pytest.param(
            gang_set(minAvailable=5, minMember=3, template={"spec": {"containers": [{"name": "A B", "image": "x"}]}}),
            ["spec.minMember", "spec.minAvailable", "spec.template.spec.containers[0].name"],
            id="own faults and those of the pod",
        ),
        pytest.param(
            koord_set(groups={"g": [nested("a", order=-1), nested("b", 2, minAvailable=3)]}, terminationDelay="soon"),
            [
                f"{GROUPS}[0].podCliques[0].startOrder",
                f"{GROUPS}[0].podCliques[1].minAvailable",
                "spec.template.terminationDelay",
            ],
            id="three floors of one object",
        ),
        pytest.param(
            koord_set(podCliques=[nested("a", template=pod_template(schedulerName="nobody"))]),
            ["spec.template.podCliques[0].template.spec.schedulerName"],
            id="a scheduler that is not there",
        ),
        pytest.param(
            koord_set(
                podCliques=[nested("a")], topologyConstraint={"topologyName": "none", "pack": {"required": "rack"}}
            ),
            ["spec.template.topologyConstraint.topologyName"],
            id="a topology that is not there",
        ),
        pytest.param(
            koord_set(podCliques=[nested("a")], annotations={"scheduling.koordinator.sh/gang-timeout": "x"}),
            [],
            id="an annotation that only another scheduler reads",
        ),
        pytest.param(gang_set("with.dots"), ["metadata.name"], id="a name that no Service can have"),
        pytest.param(
            koord_set(groups={"g": [nested("a b")]}),
            [f"{GROUPS}[0].podCliques[0].name"],
            id="a clique's name that no host can have",
        ),
        pytest.param(
            rule(preferredDuringSchedulingIgnoredDuringExecution=[wish("", 200)]),
            [
                "spec.topology.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey",
                "spec.topology.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
            ],
            id="a rule",
        ),
    ],
)
def test_every_fault_is_reported_at_once_where_the_author_wrote_it(obj: Json, paths: list[str]) -> None:
    assert sorted({path for path, _ in faults(obj)}) == sorted(paths)


def test_the_answer_speaks_of_the_object_and_its_group() -> None:
    status = answer(gang_set(minMember=1))["status"]
    assert status["message"].startswith('PodGangSet.grove.dynamo.ai "gang" is invalid: spec.minMember: Forbidden')
    assert status["details"]["group"] == "grove.dynamo.ai"


def test_what_was_chosen_for_the_author_is_a_warning_with_his_path() -> None:
    found = gang_set()
    found["spec"]["template"] = pod_template(restartPolicy="Never")
    warnings = answer(found)["warnings"]
    assert [one.partition(":")[0] for one in warnings] == [
        "spec.template.spec.schedulerName",
        "spec.minAvailable",
        "spec.template.spec.restartPolicy",
    ]


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        pytest.param(
            gang_set(replicas=4, minAvailable=4),
            gang_set(replicas=4, minAvailable=2),
            "spec.minAvailable",
            id="the floor of a gang",
        ),
        pytest.param(
            gang_set(replicas=4),
            gang_set(replicas=2),
            "spec.minAvailable",
            id="fewer pods than the floor that was meant",
        ),
        pytest.param(
            koord_set(groups={"g": [nested("a", order=0), nested("b", order=1)]}),
            koord_set(groups={"g": [nested("a", order=0), nested("b", order=0)]}),
            f"{GROUPS}.podCliques.startOrder",
            id="the start order",
        ),
        pytest.param(
            koord_set(groups={"g": [nested("a"), nested("b")]}),
            koord_set(groups={"g": [nested("a"), nested("c")]}),
            f"{GROUPS}[0].podCliques[1].name",
            id="a clique by another name",
        ),
        pytest.param(
            koord_set(groups={"g": [nested("a"), nested("b")]}),
            koord_set(groups={"g": [nested("a"), nested("c")]}),
            f"{GROUPS}[0].podCliques",
            id="the members of a group",
        ),
    ],
)
def test_what_a_running_set_cannot_take_is_refused_in_the_words_of_the_object(
    before: Json, after: Json, path: str
) -> None:
    found = faults(after, before, stored_set(before))
    assert path in [one for one, _ in found]


def test_what_a_running_set_can_take_is_admitted() -> None:
    before, after = gang_set(replicas=4), gang_set(replicas=6)
    after["spec"]["template"]["spec"]["containers"][0]["image"] = "new"
    assert faults(after, before, stored_set(before)) == []


def test_who_asks_for_a_new_set_may_change_everything() -> None:
    before, after = gang_set(replicas=4, minAvailable=4), gang_set(replicas=4, minAvailable=2)
    after["metadata"]["annotations"] = {"grove.dynamo.ai/recreate": "true"}
    assert faults(after, before, stored_set(before)) == []


def test_a_name_that_another_client_has_is_a_warning() -> None:
    theirs = stored_set(koord_set("gang", podCliques=[nested("a")]))
    found = answer(gang_set(), stored=theirs)
    assert found["allowed"]
    assert found["warnings"][0].startswith("metadata.name: PodCliqueSet gang exists")


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(gang_set(minMember=1), id="a field that nothing becomes of"),
        pytest.param(gang_set(replicas=2, minAvailable=4), id="a floor that the set behind cannot have"),
        pytest.param(rule() | {"spec": {"topology": "rack"}}, id="a rule that the schema refuses"),
    ],
)
def test_an_object_whose_spec_is_left_alone_takes_a_label(wrong: Json) -> None:
    labelled = deepcopy(wrong)
    labelled["metadata"]["labels"] = {"team": "search"}
    assert faults(wrong)
    assert faults(labelled, wrong) == []


def test_finalizers_and_objects_on_their_way_out_pass_whatever_they_say() -> None:
    wrong = gang_set(minMember=1)
    finalized = deepcopy(wrong)
    finalized["metadata"]["finalizers"] = ["x"]
    assert faults(finalized, wrong) == []
    going = gang_set(minMember=2)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert faults(going, wrong) == []


@pytest.mark.parametrize("spec", [None, 3, [], {"template": 3}, {"template": {"podCliqueScalingGroups": [None, 3]}}])
@pytest.mark.parametrize("kind", [gang_set, koord_set, rule])
def test_nonsense_is_refused_and_causes_no_error(kind: Any, spec: Any) -> None:
    obj = kind() | {"spec": spec}
    assert not answer(obj)["allowed"]


def spread_answer(topology_key: str, **more: Any) -> Json:
    spread = {"topologyKey": topology_key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **more}
    obj = gang_set(scheduling={"topologySpread": [spread]})
    review = review_of(obj, None)
    needs = ADMISSION.needs(VALIDATE_DIALECT, review)
    assert "ClusterTopologyBinding" in needs.lists, "the levels are looked up by their label key"
    known = Known(lists={"ClusterTopologyBinding": [binding(rack="example.com/rack")]})
    return response(ADMISSION, VALIDATE_DIALECT, review, known)


def test_a_spread_of_pods_is_admitted_if_a_topology_has_a_level_of_its_key() -> None:
    found = spread_answer("example.com/rack")
    assert found["allowed"], found


@pytest.mark.parametrize(
    ("key", "more", "path", "words"),
    [
        pytest.param("example.com/row", {}, "topologyKey", "not a level", id="an unknown level"),
        pytest.param("example.com/rack", {"maxSkew": 0}, "maxSkew", "greater than or equal to 1", id="no skew"),
        pytest.param("", {}, "topologyKey", "not a level", id="an empty key"),
    ],
)
def test_a_bad_spread_is_refused_with_the_path_in_the_object(key: str, more: Json, path: str, words: str) -> None:
    [cause] = spread_answer(key, **more)["status"]["details"]["causes"]
    assert cause["field"] == f"spec.scheduling.topologySpread[0].{path}"
    assert words in cause["message"]
