"""`kubectl explain` answers for every field of ours, and editors get a schema of the same text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.crds.definitions import DEFINITIONS
from tools.crds.editors import LINE, editor_schema
from tools.crds.schema import kind_schema

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]
KUBERNETES = {"podSpec", "templateSpec", "metadata"}
"""Schemas of Kubernetes itself, which stay without descriptions here."""
SAMPLES = [
    path
    for pattern in ("*.yaml", "engines/*/manifest.yaml")
    for path in sorted((ROOT / "samples").glob(pattern))
    if "kind: PodCliqueSet" in path.read_text()
]


def undescribed(schema: Json, path: str = "") -> Iterator[str]:
    for name, one in schema.get("properties", {}).items():
        if name in KUBERNETES:
            continue
        if not one.get("description"):
            yield f"{path}.{name}"
        yield from undescribed(one, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from undescribed(schema[inner], f"{path}[]")


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda one: one.kind.__name__)
def test_every_field_has_a_description(definition: Any) -> None:
    assert list(undescribed(kind_schema(definition.kind, definition.rules))) == []


def unknown(value: Any, schema: Json, path: str = "") -> Iterator[str]:
    """Fields that an editor marks as wrong."""
    if isinstance(value, list):
        for one in value:
            yield from unknown(one, schema.get("items", {}), f"{path}[]")
    elif isinstance(value, dict):
        fields, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, one in value.items():
            if name in fields:
                yield from unknown(one, fields[name], f"{path}.{name}")
            elif others is False:
                yield f"{path}.{name}"


def schema_of(kind: str) -> Json:
    whole = json.loads((ROOT / "schemas/grove.json").read_text())
    (found,) = (one["then"] for one in whole["allOf"] if one["if"]["properties"]["kind"]["const"] == kind)
    result: Json = found
    return result


def test_the_schema_for_editors_is_up_to_date() -> None:
    assert (ROOT / "schemas/grove.json").read_text() == editor_schema(), "run make crds"


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.relative_to(ROOT / "samples")))
def test_a_sample_switches_the_schema_on_and_fits_it(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith(LINE)
    assert (path.parent / first.removeprefix(LINE)).resolve() == ROOT / "schemas/grove.json"
    for one in yaml.safe_load_all(path.read_text()):
        if one["kind"] == "PodCliqueSet":
            assert list(unknown(one, schema_of("PodCliqueSet"))) == []


def test_a_field_with_a_typing_error_is_marked() -> None:
    spec = {"template": {"cliques": [{"name": "w", "spec": {"minAvailabel": 1, "podSpec": {"contaners": []}}}]}}
    assert list(unknown({"metadata": {"labels": {"a": "b"}}, "spec": spec}, schema_of("PodCliqueSet"))) == [
        ".spec.template.cliques[].spec.minAvailabel",
        ".spec.template.cliques[].spec.podSpec.contaners",
    ]
