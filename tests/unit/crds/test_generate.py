"""The committed files are what the generator makes, and small enough to live with."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
import yaml
from tools.crds.definitions import DEFINITIONS, DIALECTS
from tools.crds.generate import crd, rendered
from tools.crds.schema import embedded

from grove import crds

FILES = rendered()


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_committed_file_is_up_to_date(name: str) -> None:
    assert files("grove.crds").joinpath(name).read_text() == FILES[name], "run make crds"


def test_there_is_no_other_file() -> None:
    here = files("grove.crds")
    folders = {"": here, f"{crds.DIALECTS_FOLDER}/": here.joinpath(crds.DIALECTS_FOLDER)}
    there = sorted(
        f"{prefix}{f.name}"
        for prefix, folder in folders.items()
        for f in folder.iterdir()
        if f.name.endswith((".yaml", ".json"))
    )
    assert there == sorted(FILES)


@pytest.mark.parametrize("dialects", [False, True])
def test_the_text_for_people_holds_the_same_documents(dialects: bool) -> None:
    text = crds.load_text(dialects=dialects)
    assert list(yaml.load_all(text, Loader=yaml.CSafeLoader)) == crds.load(dialects=dialects)


def test_no_name_of_a_dialect_is_one_that_people_type_for_grove_io() -> None:
    ours = {name for one in crds.load() for name in _names(one)}
    dialects = crds.load(dialects=True)[len(crds.load()) :]
    assert len(dialects) == 3
    assert not ours & {name for one in dialects for name in _names(one)}


def _names(crd: dict[str, Any]) -> list[str]:
    names = crd["spec"]["names"]
    return [names["plural"], names["singular"], *names.get("shortNames", ())]


def test_every_load_is_a_fresh_copy() -> None:
    crds.load()[0]["spec"].clear()
    assert crds.load()[0]["spec"]


KUBERNETES = (
    "template.spec",
    "Affinity",
    "tolerations",
    "topologySpread",
    "selector",
    "DuringSchedulingIgnoredDuringExecution",
)
"""Fields of the dialects that hold schemas of Kubernetes."""


def described(schema: dict[str, Any], path: str = "") -> list[str]:
    """Paths that lack a description, down to where Kubernetes' own schemas begin."""
    missing = []
    for name, inner in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        if "description" not in inner and here != ".metadata":
            missing.append(here)
        if name not in ("podSpec", "metrics", "templateSpec") and not here.endswith(KUBERNETES):
            missing += described(inner.get("items", inner), here)
    return missing


@pytest.mark.parametrize("definition", [*DEFINITIONS, *DIALECTS], ids=lambda d: d.kind.__name__)
def test_kubectl_explain_says_something_about_every_field_of_ours(definition: Any) -> None:
    document = crd(definition)
    assert described(document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]) == []


@pytest.mark.parametrize(
    ("field", "want"),
    [
        pytest.param("workloadRef", {"name", "podGroup", "podGroupReplicaKey"}, id="of Kubernetes 1.35"),
        pytest.param("schedulingGroup", {"podGroupName"}, id="of Kubernetes 1.36"),
    ],
)
def test_a_pod_spec_may_name_its_gang_in_either_way(field: str, want: set[str]) -> None:
    assert set(embedded("podSpec")["properties"][field]["properties"]) == want
    assert embedded("podSpec")["required"] == ["containers"]
