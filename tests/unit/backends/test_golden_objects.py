"""The objects of each scheduler for the same PodGangs, one by one, and that its definitions accept them.

The expectations stand in tests/data/backends/golden.yaml: scheduler, then row, then the objects in order (their spec,
and what of their metadata the scheduler reads). Without objects there is the reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.support import objects
from tests.support.backend_schemas import faults
from tests.support.manifests import clique, group, pcs
from tests.support.observed import set_of

from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.backends.base import Backend
from grove.backends.kai import KaiBackend, KaiFacts
from grove.backends.koord import KoordBackend, KoordOptions
from grove.backends.kube import KubeBackend, KubeOptions
from grove.backends.kube_api import Capability
from grove.backends.volcano import VolcanoBackend

GOLDEN = yaml.safe_load((Path(__file__).parents[2] / "data" / "backends" / "golden.yaml").read_text())
RACK, BLOCK = "topology.kubernetes.io/rack", "topology.kubernetes.io/block"
HOST = "kubernetes.io/hostname"
PATH_KAI = {"kai.scheduler/queue": "research"}


def gang_of_set(
    *groups: Json, name: str = "demo-0", annotations: Json | None = None, labels: Json | None = None, **spec: Any
) -> PodGang:
    return objects.gang(
        name,
        *groups,
        spec=spec,
        uid="gang-uid",
        labels={"app.kubernetes.io/part-of": "demo", "grove.io/podgang": name, **(labels or {})},
        annotations={"grove.io/topology-name": "topo", **(annotations or {})},
    )


def members(name: str, minimum: int, **fields: Any) -> Json:
    return {"name": f"demo-0-{name}", "minReplicas": minimum, "podReferences": [], **fields}


def pack(**levels: str) -> Json:
    return {"packConstraint": levels}


ROWS: dict[str, PodGang] = {
    "two cliques": gang_of_set(members("prefill", 2), members("decode", 4)),
    "one clique": gang_of_set(members("w", 3)),
    "a priority": gang_of_set(members("w", 1), members("v", 1), priorityClassName="inference"),
    "the gang in one block": gang_of_set(members("a", 1), members("b", 1), topologyConstraint=pack(required=BLOCK)),
    "the gang in one rack if possible": gang_of_set(
        members("a", 1), members("b", 1), topologyConstraint=pack(preferred=RACK)
    ),
    "a clique in one rack": gang_of_set(members("a", 1, topologyConstraint=pack(required=RACK)), members("b", 1)),
    "a replica of a group in one rack": gang_of_set(
        members("g-0-lead", 1),
        members("g-0-work", 3),
        members("router", 1),
        topologyConstraint=pack(required=BLOCK),
        topologyConstraintGroupConfigs=[
            {
                "name": "demo-0-g-0",
                "podGroupNames": ["demo-0-g-0-lead", "demo-0-g-0-work"],
                "topologyConstraint": pack(required=RACK),
            }
        ],
    ),
    "a clique that may have no pods": gang_of_set(members("a", 2), members("b", 0)),
    "the gang in one block, in one rack if possible": gang_of_set(
        members("a", 1), members("b", 1), topologyConstraint=pack(required=BLOCK, preferred=RACK)
    ),
    "three levels": gang_of_set(
        members("g-0-lead", 1, topologyConstraint=pack(required=HOST)),
        members("g-0-work", 3),
        topologyConstraint=pack(required=BLOCK),
        topologyConstraintGroupConfigs=[
            {
                "name": "demo-0-g-0",
                "podGroupNames": ["demo-0-g-0-lead", "demo-0-g-0-work"],
                "topologyConstraint": pack(required=RACK),
            }
        ],
    ),
    "a replica of a group without a level": gang_of_set(
        members("g-0-lead", 1), members("g-0-work", 3), members("router", 1)
    ),
    "a scaled gang": gang_of_set(members("g-1-lead", 1), members("g-1-work", 3), name="demo-0-g-0"),
    "more pods than the minimum": gang_of_set(members("w", 1, podReferences=[{"name": f"p{n}"} for n in range(3)])),
    "a reservation of an earlier gang": gang_of_set(members("w", 1), reuseReservationRef={"name": "demo-0"}),
    "preemptible by label": gang_of_set(members("w", 1), labels={"kai.scheduler/preemptibility": "preemptible"}),
    "a time to give up": gang_of_set(members("a", 1), annotations={"scheduling.koordinator.sh/gang-timeout": "90s"}),
}

BACKENDS: dict[str, tuple[str, Backend]] = {
    "kai": ("kai", KaiBackend("grove", KaiFacts(True, True, True))),
    "kai podgrouper": ("kai", KaiBackend("podgrouper", KaiFacts(True, True, True))),
    "koord": ("koord", KoordBackend(KoordOptions({RACK: "rackLayer", BLOCK: "blockLayer"}, True), installed=True)),
    "volcano": (
        "volcano",
        VolcanoBackend(
            {RACK: "rack", BLOCK: "block", HOST: "host"}, capable=True, known=frozenset({"rack", "block", "host"})
        ),
    ),
    "kube 1.35": ("kube-1.35", KubeBackend(KubeOptions(), Capability("v1alpha1"))),
    "kube 1.36": ("kube-1.36", KubeBackend(KubeOptions(), Capability("v1alpha2"))),
    "kube 1.36 with every gate": ("kube-1.36", KubeBackend(KubeOptions(), Capability("v1alpha2", True, True))),
    "kube 1.37": ("kube-1.37", KubeBackend(KubeOptions(), Capability("v1beta1", True, True, tree=True))),
}


def owner(row: str) -> PodCliqueSet:
    """A set that would have such a gang, for what backends read from it."""
    names = [re.sub(r"demo-0-(g-\d-)?", "", one.name) for one in ROWS[row].spec.podgroups]
    inner = {"pack": {"required": "rack"}}
    cliques = [
        clique(name, topology=inner if row == "a clique in one rack" and name == "a" else None) for name in names
    ]
    leads = "lead" in names and row not in ("a replica of a group without a level", "a scaled gang")
    copies = [group("g", "lead", "work", **({"topologyConstraint": inner} if leads else {}))] if "lead" in names else []
    queues = {"labels": PATH_KAI, "annotations": {"scheduling.grove.io/volcano-queue": "research"}}
    return set_of(pcs("demo", *cliques, groups=copies, namespace="ns", metadata=queues))


def recorded(name: str, row: str) -> PodGang:
    """The gang as it is in a cluster, with the backend's own annotations."""
    wanted = ROWS[row]
    annotations = {**wanted.metadata.annotations, **BACKENDS[name][1].gang_annotations(owner(row), None, [])}
    return msgspec.structs.replace(wanted, metadata=msgspec.structs.replace(wanted.metadata, annotations=annotations))


def told(name: str, row: str) -> Any:
    """What the backend says, reduced to what the scheduler reads."""
    telling = BACKENDS[name][1].gang_objects(recorded(name, row), owner(row), [])
    if not telling.objects:
        return f"{telling.reason}: {telling.message}"
    return [_shown(one) for one in telling.objects]


def _shown(obj: Json) -> Json:
    meta = obj["metadata"]
    read = {k: v for k, v in (meta.get("annotations") or {}).items() if k.startswith("gang.scheduling")}
    labels = {k: v for k, v in meta["labels"].items() if k == "kai.scheduler/preemptibility"}
    metadata = {**({"annotations": read} if read else {}), **({"labels": labels} if labels else {})}
    return {"kind": obj["kind"], "name": meta["name"], "spec": obj["spec"], **metadata}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", BACKENDS)
def test_objects_are_as_recorded_and_the_scheduler_takes_them(name: str, row: str) -> None:
    found = told(name, row)
    assert found == GOLDEN[name][row]
    if isinstance(found, list):
        schema, backend = BACKENDS[name]
        for one in found:
            version = next(res.api_version for res in backend.gang_resources if res.kind == one["kind"])
            assert faults(schema, {"apiVersion": version, **one}) == []


CAPABILITIES = {
    "all or nothing": "two cliques",
    "a minimum for each clique": "two cliques",
    "replicas of scaling groups": "a replica of a group without a level",
    "a minimum of none": "a clique that may have no pods",
    "base and scaled gangs": "a scaled gang",
    "required topology": "the gang in one block",
    "preferred topology": "the gang in one rack if possible",
    "required and preferred topology": "the gang in one block, in one rack if possible",
    "topology of a clique": "a clique in one rack",
    "topology of a scaling group": "a replica of a group in one rack",
    "three levels": "three levels",
    "priority": "a priority",
    "queues, and the timer for stale gangs": "one clique",
    "preemptibility": "preemptible by label",
    "surplus": "more pods than the minimum",
    "reservations": "a reservation of an earlier gang",
    "time-outs": "a time to give up",
}
"""Each capability of PodGangs by which docs/backends.md compares schedulers, and the gang that shows it."""


def test_there_is_a_gang_for_every_capability_and_an_answer_to_it_from_every_scheduler() -> None:
    assert set(CAPABILITIES.values()) == set(ROWS)
    assert {name: set(rows) for name, rows in GOLDEN.items()} == {name: set(ROWS) for name in BACKENDS}


def test_what_is_said_in_part_says_which_part_is_not() -> None:
    row = "the gang in one block, in one rack if possible"
    said = {name: BACKENDS[name][1].gang_objects(recorded(name, row), owner(row), []) for name in BACKENDS}
    assert {name: one.message for name, one in said.items() if one.reason == "ToldInPart"} == {
        "volcano": f"ignored: preferred {RACK} of the gang",
        "kube 1.36 with every gate": f"ignored: preferred {RACK} of the gang",
        "kube 1.37": f"ignored: preferred {RACK} of the gang",
    }
