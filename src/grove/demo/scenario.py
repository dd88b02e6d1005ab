"""What shall happen in a story, as a file says it: a cluster and a list of steps.

    cluster: {nodes: 64, gpus: 8}
    steps:
    - chapter: Scale out
      text: A group grows by whole instances.
    - apply: chat.yaml              # beside the file; or a PodCliqueSet written out
    - wait: chat                    # until it is all there
    - scale: {set: chat, group: prefill, replicas: 4}
    - failNode: {runs: chat-0-decode-0-decode-worker}
    - after: 10m

A file is read whole and refused with every fault it has, each with the number of its step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from grove.api import duration
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.dialects.moving.converting import spoken_in_grove_io


class BadScenario(ValueError):
    """The file cannot be played; the text has every fault."""


@dataclass(frozen=True, slots=True)
class Step:
    verb: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """`least` are the fewest nodes on which the story makes sense; 0 if any number does."""

    steps: tuple[Step, ...]
    nodes: int | None = None
    gpus: int = 8
    title: str = ""
    least: int = 0


def _name(key: str) -> Callable[[Any], dict[str, Any]]:
    """An argument that is one word; written out as a mapping it may have more."""

    def read(value: Any) -> dict[str, Any]:
        return {key: str(value)} if isinstance(value, str | int | float) else dict(value)

    return read


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping, not {value!r}")
    return dict(value)


def _seconds(value: Any) -> dict[str, Any]:
    return {"seconds": duration.parse(str(value)).total_seconds()}


@dataclass(frozen=True, slots=True)
class Verb:
    read: Callable[[Any], dict[str, Any]]
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


VERBS: dict[str, Verb] = {
    "chapter": Verb(_name("title"), ("title",), ("text",)),
    "apply": Verb(_name("file"), ("file",), ()),
    "wait": Verb(_name("set"), ("set",), ("patience",)),
    "scale": Verb(_mapping, ("set", "replicas"), ("group", "clique", "index")),
    "load": Verb(_mapping, ("set", "requestsPerSecond"), ("serviceTime", "batch")),
    "explain": Verb(_name("set"), ("set",)),
    "help": Verb(_name("set"), ("set",)),
    "failNode": Verb(_name("node"), (), ("node", "runs")),
    "restoreNode": Verb(_name("node"), (), ("node",)),
    "removeNode": Verb(_name("node"), (), ("node",)),
    "drain": Verb(_name("node"), (), ("node", "runs")),
    "cordon": Verb(_name("node"), ("node",)),
    "uncordon": Verb(_name("node"), ("node",)),
    "addNodes": Verb(_mapping, ("count",), ("gpus",)),
    "failPod": Verb(_name("of"), ("of",)),
    "update": Verb(_mapping, ("set", "image"), ("cliques",)),
    "patch": Verb(_mapping, ("set", "change"), ()),
    "delete": Verb(_name("set"), ("set",)),
    "quota": Verb(_mapping, ("name", "min", "max"), ("parent",)),
    "queues": Verb(_name("of"), (), ("of",)),
    "after": Verb(_seconds, ("seconds",)),
}


def load_scenario(path: Path) -> Scenario:
    """Reads a file; manifests it names are looked for beside it. Raises BadScenario, OSError."""
    try:
        tree = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadScenario(f"{path}: not YAML: {yaml_fault(error)}") from error
    return read_scenario(tree, lambda name: load_manifest(path.parent / name), str(path))


def load_manifest(path: Path) -> Json:
    manifests = [manifest for manifest in load_manifests(path) if manifest.get("kind") == "PodCliqueSet"]
    if len(manifests) != 1:
        raise ValueError(f"{path} must hold exactly one PodCliqueSet, it holds {len(manifests)}")
    return manifests[0]


def yaml_fault(error: Exception) -> str:
    """The fault of a YAML file and its line, in one line. The parser's own message has several lines."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if problem and mark is not None:
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    return " ".join(str(error).split())


OLDER = {"PodGangSet": "PodCliqueSet", "ClusterTopology": "ClusterTopologyBinding"}
"""Kinds that were renamed; `convert` translates them."""


def load_manifests(path: Path) -> list[Json]:
    """Every object of a YAML file (`-` is stdin), as `manifests_in` reads them."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not YAML: {yaml_fault(error)}") from error
    return manifests_in(text, str(path))


def manifests_in(text: str, name: str) -> list[Json]:
    """Every object of a YAML text, lists taken apart; ValueError for what is none. `name` stands before a fault.

    What is written in a dialect comes as the PodCliqueSets that would be kept for it.
    """
    try:
        documents = [as_json(document) for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise ValueError(f"{name}: not YAML: {yaml_fault(error)}") from error
    except RecursionError as error:
        raise ValueError(f"{name}: a value contains itself, or is too deep") from error
    objects: list[Json] = []
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "List" and isinstance(document.get("items"), list):
            objects += document["items"]
        else:
            objects.append(document)
    objects = spoken_in_grove_io(objects)
    for document in objects:
        if fault := _not_an_object(document):
            raise ValueError(f"{name}: {fault}")
    return objects


def no_set(manifests: Iterable[Json]) -> str:
    """The fault of files without a PodCliqueSet: the kinds that they have."""
    kinds = ", ".join(sorted({manifest["kind"] for manifest in manifests}))
    return f"there is no PodCliqueSet in the files; they have: {kinds or 'no object'}"


def _not_an_object(document: Any) -> str:
    if not isinstance(document, dict) or not isinstance(kind := document.get("kind"), str):
        return "a document is no Kubernetes object: it has no kind"
    meta = document.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        return f"a {kind} has no metadata.name"
    version = document.get("apiVersion", PodCliqueSet.RESOURCE.api_version)
    if kind != PodCliqueSet.RESOURCE.kind and kind.lower() == PodCliqueSet.RESOURCE.kind.lower():
        return f"{kind} {meta['name']}: the kind is spelled {PodCliqueSet.RESOURCE.kind}"
    if kind in OLDER:
        return f"{kind} {meta['name']}: the kind is called {OLDER[kind]} now; `kubectl grove convert` rewrites it"
    if kind == PodCliqueSet.RESOURCE.kind and version != PodCliqueSet.RESOURCE.api_version:
        return f"{kind} {meta['name']}: apiVersion must be {PodCliqueSet.RESOURCE.api_version}, not {version}"
    return ""


def as_json(value: Any) -> Any:
    """A YAML value as JSON: keys and dates become strings. `no` and `1` are labels too."""
    if isinstance(value, dict):
        return {_word(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _word(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def read_scenario(tree: Any, manifest: Callable[[str], Json], name: str = "scenario") -> Scenario:
    """A scenario from decoded YAML; `manifest` finds the objects that steps name."""
    if not isinstance(tree, dict) or not isinstance(tree.get("steps"), list):
        raise BadScenario(f"{name}: a scenario has a list `steps`, for example `- wait: chat`")
    faults = [f"unknown field {key}" for key in tree if key not in ("title", "cluster", "steps")]
    steps: list[Step] = []
    for number, raw in enumerate(tree["steps"], 1):
        try:
            steps.append(_step(raw, manifest))
        except (ValueError, OSError) as error:
            faults.append(f"step {number}: {error}")
    cluster = tree.get("cluster") or {}
    faults += list(_cluster_faults(cluster))
    if faults:
        raise BadScenario(f"{name}: " + "; ".join(faults))
    title, least = str(tree.get("title") or ""), cluster.get("least", 0)
    return Scenario(tuple(steps), cluster.get("nodes"), cluster.get("gpus", 8), title, least)


def _cluster_faults(cluster: Any) -> Iterator[str]:
    if not isinstance(cluster, dict):
        yield "cluster: must be a mapping"
        return
    for key, value in cluster.items():
        if key not in ("nodes", "gpus", "least"):
            yield f"cluster: unknown field {key}"
        elif not isinstance(value, int) or value < (1 if key == "nodes" else 0):
            yield f"cluster.{key}: must be a whole number above 0, not {value!r}"


def _step(raw: Any, manifest: Callable[[str], Json]) -> Step:
    if isinstance(raw, str):
        raw = {raw: {}}
    if not isinstance(raw, dict):
        raise ValueError(f"must be a mapping such as 'wait: chat', not {raw!r}")
    verbs = [key for key in raw if key in VERBS]
    if len(verbs) != 1:
        known = ", ".join(VERBS)
        raise ValueError(f"must have exactly one verb ({known}); it has {', '.join(map(str, raw)) or 'none'}")
    verb = VERBS[verbs[0]]
    if verbs[0] == "apply" and isinstance(raw["apply"], dict):
        return Step("apply", {"object": raw["apply"]})
    args = verb.read(raw[verbs[0]]) | {key: value for key, value in raw.items() if key != verbs[0]}
    for key in args:
        if key not in (*verb.needs, *verb.may):
            raise ValueError(f"{verbs[0]}: unknown field {key}")
    for key in verb.needs:
        if key not in args:
            raise ValueError(f"{verbs[0]}: needs {key}")
    if verbs[0] == "apply":
        args = {"object": manifest(args["file"])}
    return Step(verbs[0], args)
