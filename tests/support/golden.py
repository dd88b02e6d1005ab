"""Golden graphs: every object a reference operator made of a set, and how to compare another graph with it.

`tests/data/golden/NAME.json` holds `set` (metadata, spec after admission, status) and `children`, both normalised.
`normalise` brings objects read from any cluster (simulated, real, or only planned) into the same form: no uids, times,
versions or random names, nothing that an API server fills in by itself, and conditions by their type. `differences`
lists what is not equal and not in `ALLOWED`, where each deliberate difference stands once with its reason.

    golden = load("simple1")
    assert differences(normalise(objects), golden.children) == []
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]

DATA = Path(__file__).parents[1] / "data" / "golden"
NAMES = tuple(sorted(path.stem for path in DATA.glob("*.json")))


REVISION_LABEL, REVISION_VARIABLE = "grove.io/revision", "GROVE_REVISION"


class Golden(NamedTuple):
    name: str
    set: Json
    """The PodCliqueSet as admission left it, ready to be created; its status is what it came to."""
    children: dict[str, Json]
    """Everything made of it, by `Kind/name`."""


class Allowed(NamedTuple):
    """A deliberate difference: paths of a kind that match `path` are not compared, because of `reason`."""

    kind: str
    path: str
    reason: str


ALLOWED = (
    Allowed("PodClique", r"status\.updateProgress\b", "a clique that was never updated has no update progress"),
    Allowed(
        "PodClique",
        r"status\.(conditions\.WasScheduled|incarnation)\b",
        "remembered for gang termination, not guessed from times",
    ),
    Allowed(
        "PodCliqueScalingGroup",
        r"status\.(conditions\.WasHealthy|incarnation)\b",
        "remembered for gang termination, not guessed from times",
    ),
    Allowed("PodGang", r"status\.phase\b", "goes on to Starting and Running; the reference stops at Pending"),
    Allowed("PodGang", r"status\.conditions\.Scheduled\b", "filled in; the reference leaves it to others"),
    Allowed("*", r"status\.conditions\.(Ready|Reconciling|Stalled)\b", "for tools that wait; the reference has none"),
    Allowed("PodGang", r"status\.placementScore\b", "written by a scheduler that measures it"),
    Allowed("PodCliqueSet", r"status\.podGangStatuses\b", "one entry a gang; the reference leaves it empty"),
    Allowed("*", r"status\.lastOperation\b", "an optional addition: what the operator did last"),
    Allowed("Pod", r"metadata\.labels\.grove\.io/clique-name\b", "an addition: scale selectors need it"),
    Allowed("PodCliqueSet", r"status\.hpaPodSelector\b", "one pod a unit, so that autoscalers count units"),
    Allowed("PodCliqueScalingGroup", r"status\.selector\b", "one pod a unit, so that autoscalers count units"),
    Allowed("Pod", r"spec\.initContainers\[\d+\]\.image", "the start-order container has an image of its own"),
    Allowed(
        "Pod",
        r"spec\.initContainers\[\d+\]\.(resources|securityContext)\b",
        "with them it changes no QoS class and passes quotas and the restricted Pod Security Standard",
    ),
)


START_ORDER_ONLY = ("ServiceAccount", "Role", "RoleBinding", "Secret")
"""Made for sets with a start order only; the reference makes them for every set."""


def load(name: str) -> Golden:
    held = json.loads((DATA / f"{name}.json").read_text())
    children = held["children"]
    if not any(one["spec"].get("startsAfter") for one in children.values() if one["kind"] == "PodClique"):
        children = {name: one for name, one in children.items() if one["kind"] not in START_ORDER_ONLY}
    return Golden(name, held["set"], children)


def normalise(objects: Iterable[Json]) -> dict[str, Json]:
    """The objects by `Kind/name` without what two equal clusters may differ in; the objects given are not changed.

    A pod is named by its hostname and `~` instead of its random end, also where a PodGang refers to it.
    """
    found = [copy.deepcopy(obj) for obj in objects]
    renamed = {
        obj["metadata"]["name"]: f"{obj['spec']['hostname']}~"
        for obj in found
        if obj["kind"] == "Pod" and obj["spec"].get("hostname")
    }
    return {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in (_normal(obj, renamed) for obj in found)}


def differences(ours: dict[str, Json], golden: dict[str, Json], *, statuses: bool = True) -> list[str]:
    """What differs, one line each, without what is allowed; `statuses=False` compares only what was asked for."""
    lines = [f"{name}: missing" for name in sorted(golden.keys() - ours.keys())]
    lines += [f"{name}: not in the golden graph" for name in sorted(ours.keys() - golden.keys())]
    for name in sorted(ours.keys() & golden.keys()):
        kind = name.partition("/")[0]
        for path, mine, theirs in _differing(ours[name], golden[name], ""):
            if (statuses or not path.startswith("status")) and not _is_allowed(kind, path):
                lines.append(f"{name}: {path}: {mine!r} instead of {theirs!r}")
    return lines


def _is_allowed(kind: str, path: str) -> bool:
    return any(one.kind in (kind, "*") and re.match(one.path, path) for one in ALLOWED)


_VOLATILE_METADATA = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
_VOLATILE_STATUS = {"lastUpdateTime", "lastTransitionTime", "message", "updateStartedAt", "updateEndedAt"}
_EMPTY_IS_ABSENT = {
    "annotations",
    "labels",
    "volumes",
    "volumeMounts",
    "resources",
    "securityContext",
    "tolerations",
    "env",
    "conditions",
    "lastErrors",
    "status",
    "podReferences",
    "metrics",
    "schedulingGates",
}
_FILLED_IN: dict[str, Any] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "defaultMode": 420,
    "sessionAffinity": "None",
    "internalTrafficPolicy": "Cluster",
}
_POD_FILLED_IN = ("nodeName", "priority", "serviceAccount")
_NODE_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_NODE_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname")
_HASHES = {
    "grove.io/pod-template-hash",
    "currentGenerationHash",
    "currentPodTemplateHash",
    "currentPodCliqueSetGenerationHash",
    "podCliqueSetGenerationHash",
    "podTemplateHash",
}


def _normal(obj: Json, renamed: dict[str, str]) -> Json:
    metadata = obj["metadata"]
    for field in _VOLATILE_METADATA:
        metadata.pop(field, None)
    for owner in metadata.get("ownerReferences") or ():
        owner.pop("uid", None)
    for field in [key for key in metadata.get("annotations") or () if key.startswith("kubectl.kubernetes.io/")]:
        del metadata["annotations"][field]
    # An addition, and it says which update last changed a part: sets with the same templates may differ in it.
    metadata.get("labels", {}).pop(REVISION_LABEL, None)
    kind = obj["kind"]
    if kind == "Pod":
        _normalise_pod(obj, renamed)
    elif kind == "PodGang":
        for group in obj["spec"]["podgroups"]:
            for ref in group.get("podReferences") or ():
                ref["name"] = renamed.get(ref["name"], ref["name"])
            group["podReferences"] = sorted(group.get("podReferences") or (), key=lambda ref: str(ref["name"]))
    elif kind == "Secret":
        obj.pop("data", None)
        # The token controller writes the account's uid beside its name.
        metadata.get("annotations", {}).pop("kubernetes.io/service-account.uid", None)
        metadata.get("labels", {}).pop("kubernetes.io/legacy-token-last-used", None)
    elif kind == "ServiceAccount":
        obj.pop("secrets", None)
    elif kind == "Service":
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            obj["spec"].pop(field, None)
        if obj["spec"].get("type") == "ClusterIP":
            del obj["spec"]["type"]
        obj.pop("status", None)
    elif kind == "HorizontalPodAutoscaler":
        obj.pop("status", None)
    cleaned: Json = _cleaned(obj)
    return cleaned


def _normalise_pod(pod: Json, renamed: dict[str, str]) -> None:
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["name"] = renamed.get(metadata["name"], metadata["name"])
    pod.pop("status", None)
    for label in _NODE_LABELS:
        metadata.get("labels", {}).pop(label, None)
    for field in _POD_FILLED_IN:
        spec.pop(field, None)
    if spec.get("serviceAccountName") == "default":
        del spec["serviceAccountName"]
    token = [volume["name"] for volume in spec.get("volumes") or () if volume["name"].startswith("kube-api-access-")]
    spec["volumes"] = [volume for volume in spec.get("volumes") or () if volume["name"] not in token]
    spec["tolerations"] = [one for one in spec.get("tolerations") or () if one.get("key") not in _NODE_TOLERATIONS]
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        container.pop("imagePullPolicy", None)
        if "env" in container:
            container["env"] = [one for one in container["env"] if one["name"] != REVISION_VARIABLE]
        container["volumeMounts"] = [one for one in container.get("volumeMounts") or () if one["name"] not in token]


def _cleaned(value: Any, field: str = "") -> Any:
    if isinstance(value, dict):
        kept = {}
        for key, one in value.items():
            cleaned = _cleaned(one, key)
            if key in _VOLATILE_STATUS or (key in _EMPTY_IS_ABSENT and not cleaned) or _FILLED_IN.get(key) == one:
                continue
            if field == "fieldRef" and key == "apiVersion":
                continue
            kept[key] = "<hash>" if key in _HASHES and cleaned else cleaned
        return kept
    if isinstance(value, list):
        if field == "conditions":
            return {one["type"]: _cleaned({k: v for k, v in one.items() if k != "type"}) for one in value}
        return [_cleaned(one, field) for one in value]
    return value


_ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "nothing"})()


def _differing(ours: Any, golden: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(golden, dict):
        for key in [*golden, *(key for key in ours if key not in golden)]:
            here = f"{path}.{key}" if path else key
            yield from _differing(ours.get(key, _ABSENT), golden.get(key, _ABSENT), here)
    elif isinstance(ours, list) and isinstance(golden, list) and len(ours) == len(golden):
        for index, (mine, theirs) in enumerate(zip(ours, golden, strict=True)):
            yield from _differing(mine, theirs, f"{path}[{index}]")
    elif ours != golden:
        yield path, ours, golden
