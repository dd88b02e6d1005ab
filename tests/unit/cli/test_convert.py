"""Older spellings become today's, and nothing else changes."""

from __future__ import annotations

import pytest
import yaml
from click.testing import CliRunner

from grove.answers.answer import Unanswered
from grove.cli.convert import convert, converted_object
from grove.cli.main import run


def pcs(constraint: object, kind: str = "PodCliqueSet", version: str = "grove.io/v1alpha1") -> dict[str, object]:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "x"},
        "spec": {"replicas": 1, "template": {"topologyConstraint": constraint, "cliques": [{"name": "a", "spec": {}}]}},
    }


@pytest.mark.parametrize(
    ("given", "want", "notes"),
    [
        pytest.param(
            pcs({"topologyName": "t", "pack": {"required": "rack"}}),
            pcs({"topologyName": "t", "pack": {"required": "rack"}}),
            [],
            id="today's spelling stays",
        ),
        pytest.param(
            pcs({"topologyName": "t", "packDomain": "rack"}),
            pcs({"topologyName": "t", "pack": {"required": "rack"}}),
            ["spec.template.topologyConstraint.packDomain is pack.required now"],
            id="packDomain moves",
        ),
        pytest.param(
            pcs({"packDomain": "rack", "pack": {"preferred": "host"}}),
            pcs({"pack": {"preferred": "host", "required": "rack"}}),
            [
                "spec.template.topologyConstraint.packDomain is pack.required now",
                "spec.template.topologyConstraint names no topology: add topologyName, here or on the set",
            ],
            id="a preference is kept, a missing name is told",
        ),
        pytest.param(
            pcs({"topologyName": "t", "pack": {"required": "rack"}}, kind="PodGangSet"),
            pcs({"topologyName": "t", "pack": {"required": "rack"}}),
            ["kind PodGangSet is called PodCliqueSet now"],
            id="the kind's old name",
        ),
        pytest.param(
            {"apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "t"}, "spec": {}},
            {
                "apiVersion": "grove.io/v1alpha1",
                "kind": "ClusterTopologyBinding",
                "metadata": {"name": "t"},
                "spec": {},
            },
            ["kind ClusterTopology is called ClusterTopologyBinding now"],
            id="the topology's old name",
        ),
        pytest.param(
            {
                "apiVersion": "grove.io/v1alpha1",
                "kind": "PodGang",
                "metadata": {"name": "g"},
                "status": {},
                "spec": {
                    "PodGroups": [{"Name": "a", "MinReplicas": 2}],
                    "NetworkPackGroupConfigs": [],
                    "SpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}],
                },
            },
            {
                "apiVersion": "scheduler.grove.io/v1alpha1",
                "kind": "PodGang",
                "metadata": {"name": "g"},
                "spec": {
                    "podgroups": [{"name": "a", "minReplicas": 2}],
                    "topologyConstraintGroupConfigs": [],
                    "spreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}],
                },
            },
            [
                "apiVersion grove.io/v1alpha1 is scheduler.grove.io/v1alpha1 now",
                "spec.PodGroups is spec.podgroups now",
                "spec.NetworkPackGroupConfigs is spec.topologyConstraintGroupConfigs now",
                "spec.SpreadConstraints is spec.spreadConstraints now",
                "status is the operator's to write and was left out",
            ],
            id="a gang in its first words",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "PodGangSet", "spec": {"packDomain": "x"}},
            {"apiVersion": "v1", "kind": "PodGangSet", "spec": {"packDomain": "x"}},
            [],
            id="somebody else's kind",
        ),
    ],
)
def test_converted_object(given, want, notes):
    assert converted_object(given) == (want, notes)


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param(None, id="absent"),
        pytest.param(1, id="a number"),
        pytest.param("x", id="a word"),
        pytest.param([1, None], id="a list of no objects"),
    ],
)
def test_groups_that_are_none_stay_as_they_are(groups):
    """What is wrong with them is for the server to say; here the words are changed that are known."""
    gang = {"apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang", "spec": {"PodGroups": groups}}
    assert converted_object(gang)[0]["spec"] == {"podgroups": groups}


@pytest.mark.parametrize("pack", [1, "x", [1]])
def test_a_pack_that_is_no_object_is_refused_where_it_would_be_added_to(pack):
    with pytest.raises(Unanswered, match=r"spec\.template\.topologyConstraint\.pack is no object"):
        converted_object(pcs({"packDomain": "rack", "pack": pack}))
    assert converted_object(pcs({"pack": pack})) == (pcs({"pack": pack}), [])


@pytest.mark.parametrize("group", ["grove.dynamo.ai", "grove.ai"])
@pytest.mark.parametrize("metadata", [None, 1, "x", [1]])
def test_whatever_has_no_name_is_reported_without_one(group, metadata):
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    result = CliRunner().invoke(convert, ["-", "--to", group], input=text)
    assert (result.exit_code, yaml.safe_load(result.stdout)["metadata"]) == (0, metadata)


def test_two_answers_to_one_question_are_refused():
    with pytest.raises(Unanswered, match=r"packDomain and pack\.required contradict"):
        converted_object(pcs({"packDomain": "rack", "pack": {"required": "block"}}))


def test_a_file_is_printed_whole_and_notes_go_to_stderr():
    text = yaml.safe_dump_all([pcs({"topologyName": "t", "packDomain": "rack"}), {"apiVersion": "v1", "kind": "Pod"}])
    result = CliRunner().invoke(convert, ["-"], input=text)
    assert list(yaml.safe_load_all(result.stdout)) == [
        pcs({"topologyName": "t", "pack": {"required": "rack"}}),
        {"apiVersion": "v1", "kind": "Pod"},
    ]
    assert result.stderr == "PodCliqueSet x: spec.template.topologyConstraint.packDomain is pack.required now\n"


def test_what_is_no_yaml_is_one_line_and_exit_code_2(tmp_path, capsys):
    file = tmp_path / "broken.yaml"
    file.write_text("a: [")
    with pytest.raises(SystemExit) as stop:
        run(convert, [str(file)])
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {file}: not YAML: ")
