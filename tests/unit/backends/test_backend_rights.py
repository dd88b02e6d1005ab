"""What the operator must be allowed for each scheduler, that the chart gives it, and that it is enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.backend_rights import RULES, rules_for
from tests.support.backend_schemas import definitions

from grove.api.meta import Json
from grove.backends import BUILDERS, KNOWN
from grove.backends.base import TopologyBackend

ROOT = Path(__file__).parents[3]
RACK_KEY = "topology.kubernetes.io/rack"


def test_rights_are_those_of_the_enabled_profiles() -> None:
    groups = [rule["apiGroups"][0] for rule in rules_for(["volcano", "grove-scheduler"])]
    assert groups == [
        "scheduling.sigs.k8s.io",
        "scheduling.koordinator.sh",
        "scheduling.volcano.sh",
        "scheduling.volcano.sh",
        "topology.volcano.sh",
        "",
        "apiextensions.k8s.io",
    ]


def granted(document: Json) -> set[tuple[str, str, str]]:
    """Group, resource and verb of everything a role gives."""
    return {
        (group_, resource, verb)
        for rule in document["rules"]
        for group_ in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(
    ("file", "profiles"),
    [
        pytest.param(ROOT / "charts/install.yaml", ["default-scheduler", "grove-scheduler"], id="as installed"),
        pytest.param(ROOT / "tests/unit/charts/every-option.rendered.yaml", sorted(RULES), id="every profile"),
    ],
)
def test_the_chart_gives_what_its_profiles_need_and_nothing_of_the_others(file: Path, profiles: list[str]) -> None:
    roles = [one for one in yaml.safe_load_all(file.read_text()) if one and one["kind"] == "ClusterRole"]
    (given,) = (granted(one) for one in roles if one["metadata"]["name"] == "grove:system:grove-operator")
    needed = granted({"rules": rules_for(profiles)})
    assert needed <= given
    foreign = {one[:2] for one in granted({"rules": rules_for(RULES)}) - needed if one[0] != "apiextensions.k8s.io"}
    assert not foreign & {one[:2] for one in given}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_call_that_a_backend_has_made_for_it_is_in_its_rules(name: str) -> None:
    options: dict[str, Json] = {
        "koord-scheduler": {"topologyLayers": {RACK_KEY: "rackLayer"}},
        "volcano": {"tiers": {RACK_KEY: "rack"}},
    }
    backend: Any = BUILDERS[name](options.get(name, {}), "p")
    backend.learn(OFFERED.get(name, {}))
    allowed = granted({"rules": rules_for([name])})
    calls = {(one.resource, verb) for one in backend.questions for verb in ASKED[one.ask]}
    calls |= {(one.resource, verb) for one in backend.awaited for verb in ("list", "watch")}
    calls |= {(one, verb) for one in backend.gang_resources for verb in CHANGED}
    if isinstance(backend, TopologyBackend) and backend.topology_resource is not None:
        never = "patch" if backend.topology_frozen else "delete"
        calls |= {(backend.topology_resource, verb) for verb in CHANGED if verb != never}
    assert {(one.group, one.plural, verb) for one, verb in calls} <= allowed
    assert name in ("grove-scheduler",) or backend.gang_resources, "told nothing, so nothing was proven"


ASKED = {"served": (), "get": ("get",), "list": ("list",), "dry_run": ("create",)}
CHANGED = ("get", "list", "watch", "create", "patch", "delete")
OFFERED: dict[str, Json] = {
    "default-scheduler": {
        "v1beta1 workloads": True,
        "v1beta1": True,
        "tree": True,
        "v1beta1 pod": {"spec": {"schedulingGroup": {}}},
    },
    "kai-scheduler": {"served": True},
    "koord-scheduler": {"podgroups": True},
    "volcano": {
        "crd": next(one for one in definitions("volcano") if one["spec"]["names"]["kind"] == "PodGroup"),
        "hypernodes": True,
        "config": {"data": {"volcano-scheduler.conf": "tiers: []"}},
    },
}
