"""Every engine that fails says why: the kubelet puts the end of its log into the status of the pod."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
STORIES = ("agentic-pipeline", "deepseek-like", "disaggregated", "mpi")
FILES = [
    *(ROOT / "samples" / f"{name}.yaml" for name in STORIES),
    *sorted((ROOT / "samples/engines").glob("*/manifest.yaml")),
    *sorted((ROOT / "charts/inference/examples").glob("*.yaml")),
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_container_falls_back_to_its_log(file: Path) -> None:
    sets = [one for one in yaml.safe_load_all(file.read_text()) if one and one["kind"] == "PodCliqueSet"]
    cliques = [clique for one in sets for clique in one["spec"]["template"]["cliques"]]
    containers = [one for clique in cliques for one in clique["spec"]["podSpec"]["containers"]]
    assert containers
    assert {one.get("terminationMessagePolicy") for one in containers} == {"FallbackToLogsOnError"}
