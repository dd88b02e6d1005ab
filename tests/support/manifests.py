"""PodCliqueSets for behaviour tests, as the API server would hold them after admission: defaults are filled in.

demo = pcs("demo", clique("router", 2, min_available=1), replicas=2)
demo = pcs("demo", clique("lead"), clique("work", 2), groups=[group("grp", "lead", "work", replicas=3)])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grove.api.meta import Json

IMAGE = "registry.k8s.io/pause:3.10"


def pod_spec(**fields: Any) -> Json:
    """One container that asks for a tenth of a core; `fields` are added to the spec."""
    container = {"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": "100m"}}}
    return {"containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, **fields}


def clique(
    name: str,
    replicas: int = 1,
    *,
    min_available: int | None = None,
    starts_after: Sequence[str] = (),
    start_condition: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    scale: Json | None = None,
    topology: Json | None = None,
    sharing: Sequence[Json] = (),
    **spec: Any,
) -> Json:
    """A clique template; `min_available` is `replicas` unless said otherwise, `spec` goes into the pod spec."""
    wanted: Json = {
        "roleName": name,
        "replicas": replicas,
        "minAvailable": replicas if min_available is None else min_available,
        "podSpec": pod_spec(**spec),
    }
    if starts_after:
        wanted["startsAfter"] = list(starts_after)
    if start_condition:
        wanted["startsAfterCondition"] = start_condition
    if scale:
        wanted["autoScalingConfig"] = scale
    template: Json = {"name": name, "spec": wanted}
    if labels:
        template["labels"] = labels
    if annotations:
        template["annotations"] = annotations
    if topology:
        template["topologyConstraint"] = topology
    if sharing:
        template["resourceSharing"] = list(sharing)
    return template


def gpu_clique(name: str, replicas: int, gpus: int, **template: Any) -> Json:
    """A clique template whose pods request GPUs, as a user writes it: admission fills in the rest."""
    container = {"name": "main", "image": "example/serve:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    spec = {"roleName": name, "replicas": replicas, "podSpec": {"containers": [container]}}
    return {"name": name, "spec": spec, **template}


def group(
    name: str,
    *clique_names: str,
    replicas: int = 1,
    min_available: int = 1,
    scale: Json | None = None,
    **fields: Any,
) -> Json:
    """A scaling group over cliques of the same set."""
    config: Json = {
        "name": name,
        "cliqueNames": list(clique_names),
        "replicas": replicas,
        "minAvailable": min_available,
        **fields,
    }
    if scale:
        config["scaleConfig"] = scale
    return config


def pcs(
    name: str,
    *cliques: Json,
    replicas: int = 1,
    groups: Sequence[Json] = (),
    namespace: str = "default",
    startup: str = "CliqueStartupTypeAnyOrder",
    termination_delay: str = "4h0m0s",
    strategy: Json | None = None,
    metadata: Json | None = None,
    scheduler: str = "",
    **template: Any,
) -> Json:
    """A PodCliqueSet. `scheduler` names the backend on every clique; `template` is added to `spec.template`."""
    if scheduler:
        for one in cliques:
            one["spec"]["podSpec"]["schedulerName"] = scheduler
    body: Json = {
        "cliques": list(cliques),
        "cliqueStartupType": startup,
        "terminationDelay": termination_delay,
        "headlessServiceConfig": {"publishNotReadyAddresses": True},
        **template,
    }
    if groups:
        body["podCliqueScalingGroups"] = list(groups)
    spec: Json = {"replicas": replicas, "template": body}
    if strategy:
        spec["updateStrategy"] = strategy
    return {"metadata": {"name": name, "namespace": namespace, **(metadata or {})}, "spec": spec}


def worked_example(name: str = "demo", namespace: str = "default", **fields: Any) -> Json:
    """Two replicas of a router beside three replicas of a leader with two workers: 22 pods in 6 gangs."""
    fields.setdefault("replicas", 2)
    return pcs(
        name,
        clique("router", 2, min_available=1),
        clique("lead", 1),
        clique("work", 2),
        groups=[group("grp", "lead", "work", replicas=3, min_available=1)],
        namespace=namespace,
        **fields,
    )


def many_pairs(name: str, replicas: int, namespace: str = "default", pods: int = 2) -> Json:
    """The shape of the scale figures: one clique of two pods, many replicas."""
    return pcs(name, clique("w", pods), replicas=replicas, namespace=namespace)
