"""Pages say at their top who they are for, and the whole manifests that they show are admitted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from tests.support.reviews import binding, faults
from tests.support.sample_admission import ADMISSION, WELL_KNOWN

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.admission.rules.lookups import Known
from grove.api.meta import Json
from grove.local.binaries import DEFAULT_VERSION

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SHOWN = [ROOT / "README.md", ROOT / "docs" / "write-a-set.md", ROOT / "docs" / "tutorial.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_says_who_it_is_for_and_what_they_can_do_afterwards(page: Path) -> None:
    title, _, text = page.read_text().partition("\n\n")
    first = text.partition("\n\n")[0].strip("*")
    assert title.startswith("# ")
    assert re.match(r"For (people|platform engineers|administrators)\b", first)
    assert "Afterwards you " in first


def objects_on(page: Path) -> list[Json]:
    blocks = re.findall(r"^```yaml[^\n]*\n(apiVersion: .*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [yaml.safe_load(block) for block in blocks]


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_the_whole_manifest_of_a_page_is_admitted(page: Path) -> None:
    (manifest,) = [one for one in objects_on(page) if one["kind"] == "PodCliqueSet"]
    manifest["metadata"]["namespace"] = "default"
    levels = {domain: f"example.com/{domain}" for domain in WELL_KNOWN}
    known = Known(topologies={"fake-nodes": binding("fake-nodes", **levels)})
    assert faults(ADMISSION, with_additions(manifest, missing_defaults(manifest)), lookups=known) == []


def test_the_service_on_the_page_about_manifests_leads_to_its_router() -> None:
    service, manifest = objects_on(ROOT / "docs" / "write-a-set.md")
    (front,) = [
        clique
        for clique in manifest["spec"]["template"]["cliques"]
        if clique.get("labels", {}).items() >= service["spec"]["selector"].items()
    ]
    (container,) = front["spec"]["podSpec"]["containers"]
    assert [port["name"] for port in container["ports"]] == [port["targetPort"] for port in service["spec"]["ports"]]
    assert container["readinessProbe"]


def test_the_tutorial_names_the_folder_where_kubectl_is_built() -> None:
    assert f"$HOME/.cache/grove/kube/{DEFAULT_VERSION}" in (ROOT / "docs" / "tutorial.md").read_text()
