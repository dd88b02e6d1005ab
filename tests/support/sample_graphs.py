"""The objects that the operator makes of recorded sets, and those it made of them before its packages were rebuilt.

The sets are the samples of that time, in `tests/data/recorded-sets`; the samples themselves may change.

`tests/data/sample-graphs.json` has them by sample and `Kind/name`, one object a line: metadata and spec, no status. Of
each clique the pod with index 0 stands in full, the others by name. `python -m tests.support.sample_graphs` adds
sets that are not in it yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.api.labels import POD_INDEX
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.backends import Backends, build_backends
from grove.config import load_configuration
from tests.support import golden
from tests.support.puregraph import PureGraph

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "data" / "sample-graphs.json"
SCHEDULERS = ("grove-scheduler", "default-scheduler", "kai-scheduler", "koord-scheduler", "volcano")
LEVELS = [{"domain": one, "key": f"example.com/{one}"} for one in ("zone", "block", "rack", "host")]
BINDING = msgspec.convert({"metadata": {"name": "fake-nodes"}, "spec": {"levels": LEVELS}}, ClusterTopologyBinding)
OTHER_PODS = "other pods"

Graph = dict[str, Json]


def sample_sets() -> Iterator[tuple[str, Json]]:
    """Every recorded PodCliqueSet by file and name."""
    for file in sorted((ROOT / "tests" / "data" / "recorded-sets").glob("*.yaml")):
        for one in yaml.safe_load_all(file.read_text()):
            if one and one.get("kind") == PodCliqueSet.RESOURCE.kind:
                yield f"{file.stem}/{one['metadata']['name']}", one


def graph_of(manifest: Json) -> Graph:
    """What a set becomes, decided to its end without a cluster, without statuses."""
    manifest["metadata"].setdefault("namespace", "default")
    full = with_additions(manifest, missing_defaults(manifest))
    backend = _backends().for_set(msgspec.convert(full, PodCliqueSet))
    world = PureGraph(full, backend, BINDING)
    world.settle()
    return shortened(golden.normalise(world.children()))


def shortened(graph: Graph) -> Graph:
    """Without statuses, and with one pod of each clique: the others differ in their index."""
    bare = {name: {field: value for field, value in one.items() if field != "status"} for name, one in graph.items()}
    others = [
        name for name, one in bare.items() if one["kind"] == "Pod" and one["metadata"]["labels"][POD_INDEX] != "0"
    ]
    return {name: one for name, one in bare.items() if name not in others} | {OTHER_PODS: {"names": sorted(others)}}


def recorded() -> dict[str, Graph]:
    held: dict[str, Graph] = json.loads(FILE.read_text())
    return held


def write(graphs: dict[str, Graph]) -> None:
    lines = []
    for sample, graph in sorted(graphs.items()):
        objects = ",\n".join(f"  {json.dumps(name)}: {_line(one)}" for name, one in sorted(graph.items()))
        lines.append(f" {json.dumps(sample)}: {{\n{objects}\n }}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _line(obj: Json) -> str:
    return json.dumps(obj, separators=(",", ":"), sort_keys=True)


def _backends() -> Backends:
    profiles = ", ".join(f"{{name: {one}}}" for one in SCHEDULERS)
    text = f"scheduler: {{defaultProfileName: {SCHEDULERS[0]}, profiles: [{profiles}]}}"
    return build_backends(load_configuration(text).scheduler)


if __name__ == "__main__":
    known = recorded()
    write({name: known.get(name) or graph_of(manifest) for name, manifest in sample_sets()})
