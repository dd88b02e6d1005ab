"""What is installed stays far below the limits of those who carry it: Helm's release, kubectl's annotation, etcd."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
GROVE, INFERENCE = ROOT / "charts/grove", ROOT / "charts/inference"
RENDERED = {
    "defaults": ROOT / "charts/install.yaml",
    "dialects": ROOT / "charts/grove-scheduler.yaml",
    "every option": Path(__file__).with_name("every-option.rendered.yaml"),
}
SECRET_LIMIT = 1_048_576
"""Bytes of data that the API server takes in one Secret: Helm keeps a release in one, packed, chart and all."""
ANNOTATION_LIMIT = 262_144
"""Bytes of all annotations together: `kubectl apply` keeps the whole object in one."""


def release_bytes(chart: Path, manifest: str) -> int:
    """About what a release takes: the chart's files and the manifest as JSON, packed, in base64, and that once more."""
    files = [
        {"name": str(file.relative_to(chart)), "data": base64.b64encode(file.read_bytes()).decode()}
        for file in sorted(chart.rglob("*"))
        if file.is_file()
    ]
    packed = gzip.compress(json.dumps({"chart": {"files": files}, "manifest": manifest}).encode(), mtime=0)
    return len(base64.b64encode(base64.b64encode(packed)))


@pytest.mark.parametrize("options", RENDERED)
def test_a_release_of_helm_is_a_tenth_of_what_a_secret_holds(options: str) -> None:
    assert release_bytes(GROVE, RENDERED[options].read_text()) < SECRET_LIMIT / 10


def test_a_release_of_a_workload_is_too() -> None:
    largest = max((file.read_text() for file in INFERENCE.parent.rglob("inference/**/*.yaml")), key=len)
    assert release_bytes(INFERENCE, largest) < SECRET_LIMIT / 10


def test_crds_are_in_no_release() -> None:
    """They are a megabyte of YAML; the operator's init container installs them, as its image has them."""
    assert not (GROVE / "crds").exists()
    assert not [file for file in GROVE.rglob("*") if file.is_file() and b"openAPIV3Schema" in file.read_bytes()]


def test_every_crd_can_be_applied_by_any_kubectl() -> None:
    every = [one for one in yaml.load_all((ROOT / "charts/grove-crds.yaml").read_text(), yaml.CSafeLoader) if one]
    assert len(every) == 8
    sizes = {one["metadata"]["name"]: len(json.dumps(one, separators=(",", ":"))) for one in every}
    assert {name: size for name, size in sizes.items() if size > 0.75 * ANNOTATION_LIMIT} == {}
