"""What the API server does to pods and to nothing else: defaults, immutability, gates, priority, quota, binding.

Everything here is a function of the pod and of the `StoredObjects` that it refers to; the server decides when to call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grove.api.faults import forbidden, invalid, required
from grove.api.meta import Json
from grove.sim import refusals
from grove.sim.kinds import POD, PRIORITY_CLASS, SERVICE_ACCOUNT, Kind, StoredObjects
from grove.sim.quota import charge

_GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
_UNREACHABLE_S = 300
_TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_MUTABLE_SPEC = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds")
_MUTABLE_ONLY = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def fill_pod(pod: Json, stored: StoredObjects) -> None:
    """Makes a submitted pod what the server stores: defaults, account, priority, first status. Refuses what it must."""
    spec, meta = pod.setdefault("spec", {}), pod["metadata"]
    _check_spec(pod)
    _fill_account(pod, stored)
    _fill_priority(pod, stored)
    for key, value in _SPEC_DEFAULTS.items():
        spec.setdefault(key, value)
    spec.setdefault("securityContext", {})
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        _fill_container(container)
    _add_tolerations(spec)
    if not spec.get("schedulingGates"):
        spec.pop("schedulingGates", None)
    pod["status"] = {"phase": "Pending", "qosClass": _qos(spec)}
    if spec.get("schedulingGates"):
        condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": _GATED_MESSAGE}
        pod["status"]["conditions"] = [
            {**condition, "lastProbeTime": None, "lastTransitionTime": meta["creationTimestamp"]}
        ]
    charge(pod, stored)


_SPEC_DEFAULTS: Json = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}


def _check_spec(pod: Json) -> None:
    spec, name = pod["spec"], pod["metadata"]["name"]
    if not spec.get("containers"):
        raise refusals.invalid(POD, name, [required("spec.containers")])
    faults = []
    for field in ("initContainers", "containers"):
        for at, container in enumerate(spec.get(field) or ()):
            if not container.get("name"):
                faults.append(required(f"spec.{field}[{at}].name"))
            if not container.get("image"):
                faults.append(required(f"spec.{field}[{at}].image"))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        why = "cannot be set until all schedulingGates have been cleared"
        faults.append(forbidden("spec.nodeName", why))
    if faults:
        raise refusals.invalid(POD, name, faults)


def _fill_account(pod: Json, stored: StoredObjects) -> None:
    spec, meta = pod["spec"], pod["metadata"]
    account = spec.setdefault("serviceAccountName", spec.get("serviceAccount") or "default")
    spec["serviceAccount"] = account
    if stored.find(SERVICE_ACCOUNT, account, meta["namespace"]) is None:
        where = f"{meta['namespace']}/{account}"
        why = f'error looking up service account {where}: serviceaccount "{account}" not found'
        raise refusals.forbidden(POD, meta["name"], why)


def _fill_priority(pod: Json, stored: StoredObjects) -> None:
    spec, name = pod["spec"], pod["spec"].get("priorityClassName")
    priority_class: Json | None
    if name:
        priority_class = stored.find(PRIORITY_CLASS, name)
        if priority_class is None:
            why = f"no PriorityClass with name {name} was found"
            raise refusals.forbidden(POD, pod["metadata"]["name"], why)
    else:
        priority_class = next((c for c in stored.all(PRIORITY_CLASS) if c.get("globalDefault")), None)
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
    value = priority_class["value"] if priority_class else 0
    if spec.get("priority") not in (None, value):
        why = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec"
        raise refusals.forbidden(POD, pod["metadata"]["name"], why)
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", (priority_class or {}).get("preemptionPolicy") or "PreemptLowerPriority")


def _fill_container(container: Json) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        tag = container["image"].rpartition("/")[2].partition(":")[2]
        is_latest = "@" not in container["image"] and tag in ("", "latest")
        container["imagePullPolicy"] = "Always" if is_latest else "IfNotPresent"
    resources = container.setdefault("resources", {})
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")


def _add_tolerations(spec: Json) -> None:
    """A pod outlives a node's outage by five minutes unless it says otherwise."""
    tolerations = list(spec.get("tolerations") or ())
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(t.get("key", key) == key and t.get("effect", "NoExecute") == "NoExecute" for t in tolerations):
            forgiving = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _UNREACHABLE_S}
            tolerations.append(forgiving)
    spec["tolerations"] = tolerations


def _qos(spec: Json) -> str:
    containers = [c.get("resources") or {} for c in (*(spec.get("initContainers") or ()), *spec["containers"])]
    counted = ("cpu", "memory")
    asked = [{k: v for k, v in (r.get("requests") or {}).items() if k in counted} for r in containers]
    limits = [{k: v for k, v in (r.get("limits") or {}).items() if k in counted} for r in containers]
    if not any(asked) and not any(limits):
        return "BestEffort"
    full = all(len(limit) == len(counted) and limit == ask for limit, ask in zip(limits, asked, strict=True))
    return "Guaranteed" if full else "Burstable"


def check_pod(new: Json, old: Json) -> None:
    """Refuses an update of the spec beyond the few fields that may change; gates may only go."""
    before, after = old["spec"], new["spec"]
    if before is after or before == after:
        return
    if not after.get("schedulingGates"):
        after.pop("schedulingGates", None)
    _add_tolerations(after)
    name, faults = old["metadata"]["name"], []
    had = [gate["name"] for gate in before.get("schedulingGates") or ()]
    for gate in after.get("schedulingGates") or ():
        if gate["name"] not in had:
            why = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            faults.append(forbidden("spec.schedulingGates", why))
    if _fixed_part(after, gated=bool(had)) != _fixed_part(before, gated=bool(had)):
        faults.append(forbidden("spec", _MUTABLE_ONLY))
    elif had and not _only_adds(before.get("nodeSelector") or {}, after.get("nodeSelector") or {}):
        why = "only additions are allowed (no mutations or deletions)"
        faults.append(invalid("spec.nodeSelector", after.get("nodeSelector"), why))
    if any(toleration not in (after.get("tolerations") or ()) for toleration in before.get("tolerations") or ()):
        why = "existing toleration can not be modified except its tolerationSeconds"
        faults.append(forbidden("spec.tolerations", why))
    if faults:
        raise refusals.invalid(POD, name, faults)


def _fixed_part(spec: Json, *, gated: bool) -> Json:
    # While gated, a pod's node selector may still be narrowed; images may change at any time.
    free = (*_MUTABLE_SPEC, "nodeSelector", "affinity") if gated else _MUTABLE_SPEC
    fixed = {key: value for key, value in spec.items() if key not in free}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in c.items() if k != "image"} for c in fixed[field]]
    return fixed


def _only_adds(before: dict[str, str], after: dict[str, str]) -> bool:
    return all(after.get(key) == value for key, value in before.items())


POD_KIND = Kind(
    POD,
    has_status=True,
    has_generation=True,
    fields=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    fill=fill_pod,
    check=check_pod,
)


def bound_pod(pod: Json, node: str, node_labels: Mapping[str, str], *, uid: str, now: str) -> Json:
    """The pod as bound to the node, or the Conflict that says why it cannot be. The node need not exist.

    The pod learns its zone and region from the node's labels. Its generation stays: a binding is not a wish.
    """
    meta, spec, name = pod["metadata"], pod["spec"], pod["metadata"]["name"]
    if uid and uid != meta["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
        raise refusals.conflict(POD, name, why)
    if meta.get("deletionTimestamp"):
        raise refusals.conflict(POD, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise refusals.conflict(POD, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise refusals.conflict(POD, name, f"pod {name} has non-empty .spec.schedulingGates")
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    conditions = with_condition(pod["status"].get("conditions") or [], scheduled)
    learnt = {key: node_labels[key] for key in _TOPOLOGY_LABELS if key in node_labels}
    if learnt:
        meta = {**meta, "labels": {**(meta.get("labels") or {}), **learnt}}
    status = {**pod["status"], "conditions": conditions}
    return {**pod, "metadata": meta, "spec": {**spec, "nodeName": node}, "status": status}


def with_condition(conditions: list[Json], condition: Json) -> list[Json]:
    """The list with the condition of that type replaced where it stands, or added at the end."""
    replaced = [condition if c["type"] == condition["type"] else c for c in conditions]
    return replaced if condition in replaced else [*replaced, condition]


def is_ready(pod: Json) -> bool:
    conditions: list[Any] = pod["status"].get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def grace_period_s(pod: Json, asked_s: int | None) -> int:
    """How long the pod may take to stop: nothing has to stop when it was never bound or is over."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked_s is not None:
        return max(0, asked_s)
    return int(pod["spec"].get("terminationGracePeriodSeconds") or 0)
