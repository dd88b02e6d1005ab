"""Manifests that are none, or not today's: one line that says what is wrong, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from grove.cli.main import run
from grove.cli.reserve import reserve
from grove.cli.simulate import simulate
from grove.demo.scenario import load_manifests
from grove.plan.strict import unknown_fields

SET = "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {name: a}\n"
REFUSED = "error: PodCliqueSet a is refused"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: [", "error: FILE: not YAML: line 1, column 5: expected the node content", id="broken YAML"),
        pytest.param("\x01", "error: FILE: not YAML: ", id="no text"),
        pytest.param("spec: &a {b: *a}", "error: FILE: a value contains itself", id="an alias of a node around it"),
        pytest.param("[" * 2000, "error: FILE: a value contains itself, or is too deep", id="a value that is deep"),
        pytest.param("", "error: there is no PodCliqueSet in the files; they have: no object", id="nothing"),
        pytest.param("[1, 2]", "error: FILE: a document is no Kubernetes object: it has no kind", id="a list"),
        pytest.param("kind: PodCliqueSet", "error: FILE: a PodCliqueSet has no metadata.name", id="no metadata"),
        pytest.param("{kind: A, metadata: 5}", "error: FILE: a A has no metadata.name", id="metadata that is a number"),
        pytest.param(
            "{kind: Pod, metadata: {name: a}}",
            "error: there is no PodCliqueSet in the files; they have: Pod",
            id="another kind",
        ),
        pytest.param("{kind: List, items: []}", "error: there is no PodCliqueSet", id="an empty list"),
        pytest.param(
            "{apiVersion: grove.io/v1alpha1, kind: PodGangSet, metadata: {name: a}}",
            "error: FILE: PodGangSet a: the kind is called PodCliqueSet now; `kubectl grove convert` rewrites it",
            id="an older kind",
        ),
        pytest.param(
            "{apiVersion: grove.io/v1alpha1, kind: PodCliqueset, metadata: {name: a}}",
            "error: FILE: PodCliqueset a: the kind is spelled PodCliqueSet",
            id="a kind with a small letter",
        ),
        pytest.param(
            "{apiVersion: grove.io/v1, kind: PodCliqueSet, metadata: {name: a}}",
            "error: FILE: PodCliqueSet a: apiVersion must be grove.io/v1alpha1, not grove.io/v1",
            id="another version",
        ),
    ],
)
def test_what_is_no_manifest_is_one_line_and_exit_code_2(
    text: str, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(text)
    with pytest.raises(SystemExit) as end:
        run(simulate, ["-f", str(file)])
    assert end.value.code == 2
    said = capsys.readouterr()
    assert said.err.replace(str(file), "FILE").startswith(want)
    assert (said.err.count("\n"), said.out) == (1, "")


def test_a_file_to_reserve_for_that_is_no_manifest_is_one_line_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("a: [")
    with pytest.raises(SystemExit) as end:
        run(reserve, ["-f", str(file)])
    said = capsys.readouterr()
    assert (end.value.code, said.err.count("\n"), said.out) == (2, 1, "")
    assert said.err.startswith(f"error: {file}: not YAML: ")


@pytest.mark.parametrize(
    ("spec", "faults"),
    [
        pytest.param("spec: 7", ["spec: Invalid value"], id="a spec that is a number"),
        pytest.param("spec: {template: [1]}", ["spec.template: Invalid value"], id="a template that is a list"),
        pytest.param(
            "spec: {template: {cliques: 7}}", ["spec.template.cliques: Invalid value"], id="cliques that are a number"
        ),
        pytest.param(
            "spec: {template: {cliques: [3]}}",
            ["spec.template.cliques[0]: Invalid value"],
            id="a clique that is a number",
        ),
        pytest.param(
            "spec: {template: {cliques: []}}",
            ["spec.template.cliques: Required value: at least one clique"],
            id="no cliques",
        ),
        pytest.param(
            "spec: {template: {cliques: [{name: a, spec: {roleName: r, podSpec: {}}}, {spec: {roleName: r}}]}}",
            ["spec.template.cliques[1].name: Required value", "spec.template.cliques"],
            id="several faults",
        ),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "simulate beside a good one"])
def test_what_admission_refuses_is_reported_with_its_words_a_bullet_each(
    command: str, spec: str, faults: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, sample = tmp_path / "m.yaml", Path(__file__).parents[3] / "samples" / "small.yaml"
    file.write_text(SET + spec)
    beside = ["-f", str(sample), "--no-timeline"] if "beside" in command else []
    with pytest.raises(SystemExit) as end:
        run(simulate, [*beside, "-f", str(file)])
    said = capsys.readouterr()
    assert end.value.code == 2
    lines = (said.out[said.out.index("it ended early: ") :] if beside else said.err).splitlines()
    assert lines[0] == (REFUSED.replace("error: ", "it ended early: ") if beside else REFUSED)
    bullets = [line for line in lines[1:] if line.startswith("  - ")]
    assert len(bullets) >= len(faults)
    assert all(any(line.startswith(f"  - {fault}") for line in bullets) for fault in faults), bullets
    if not beside:
        assert (said.out, bullets) == ("", lines[1:])


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("spec: {replcas: 1}", ['unknown field "spec.replcas"; did you mean replicas?'], id="a typo"),
        pytest.param(
            "spec: {template: {cliques: [{name: a, spec: {roleName: a, repliccas: 2, podSpec: {containres: []}}}]}}",
            [
                'unknown field "spec.template.cliques[0].spec.repliccas"; did you mean replicas?',
                'unknown field "spec.template.cliques[0].spec.podSpec.containres"; did you mean containers?',
            ],
            id="typos inside, with their index",
        ),
        pytest.param("sepc: {}", ['unknown field "sepc"; did you mean spec?'], id="a typo at the top"),
    ],
)
def test_an_unknown_field_is_refused_as_a_strict_server_does(
    text: str, want: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(SET + text)
    with pytest.raises(SystemExit) as end:
        run(simulate, ["-f", str(file)])
    assert end.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert said == ["error: PodCliqueSet a would be refused", *(f"  - {one}" for one in want)]


@pytest.mark.parametrize("sample", sorted((Path(__file__).parents[3] / "samples").glob("*.yaml")), ids=lambda p: p.name)
def test_no_sample_has_an_unknown_field(sample: Path) -> None:
    sets = [one for one in load_manifests(sample) if one["kind"] == "PodCliqueSet"]
    assert [fault for one in sets for fault in unknown_fields(one)] == []
