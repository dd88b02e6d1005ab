"""Start order: which PodCliques a PodClique waits for, and the init container that does the waiting.

A clique waits only for parents in its own gang. A scaled gang follows its base gang because it is scheduled after it.
Parents are exact names, resolved from the templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from grove.api import conditions, labels, names
from grove.api.core import Pod
from grove.api.meta import Json, is_true
from grove.api.podcliqueset import EXPLICIT, IN_ORDER, CliqueTemplate, PodCliqueSet
from grove.api.quantity import exact
from grove.api.startorder import CONDITION_ARGUMENT, READY, reached
from grove.operator.shared.layout import Unit, min_pods

STARTUP_LIMITS = {"cpu": "200m", "memory": "64Mi"}
"""It takes 0.1 s of CPU and 21 MB; on top twice a page, as it comes: 44 MB for pods of 250 kB. Less than any pod of a
model asks for itself."""
STARTUP_REQUESTS = {"cpu": "10m", "memory": "32Mi"}
STARTUP_USER = 65532
"""The user of the image."""


def has_start_order(pcs: PodCliqueSet) -> bool:
    """True if a clique of the set waits for another one. Only then its pods need a container that watches pods."""
    template = pcs.spec.template
    if template.clique_startup_type == IN_ORDER:
        return len(template.cliques) > 1
    return template.clique_startup_type == EXPLICIT and any(clique.spec.starts_after for clique in template.cliques)


def mounts_token(pod: Pod, pcs_name: str) -> bool:
    """True if the start-order container of a pod reads the token of its set, under its present or former name."""
    return mounts_secret(pod, names.token_secret(pcs_name), names.legacy_token_secret(pcs_name))


def mounts_secret(pod: Pod, *secrets: str) -> bool:
    """True if a pod mounts one of these Secrets."""
    return any((volume.get("secret") or {}).get("secretName") in secrets for volume in pod.spec.volumes)


def parents(pcs: PodCliqueSet, unit: Unit) -> tuple[str, ...]:
    """PodCliques that this one starts after, in template order; empty if it may start at once."""
    fqns = (fqn for template in _parent_templates(pcs, unit) for fqn in _resolved(pcs, unit, template))
    return tuple(dict.fromkeys(fqns))


def parent_minimums(
    pcs: PodCliqueSet, unit: Unit, starts_after: tuple[str, ...], live_replicas: Mapping[str, int] | None = None
) -> tuple[tuple[str, int], ...]:
    """Each parent with the pods of it that must have reached the start condition.

    No more than the parent is scaled to (by `live_replicas`, or by its template while there is none): for more a child
    would wait for good. Left out: a name the set does not know any more, and a parent that is scaled to zero.
    """
    if not starts_after:
        return ()
    live = live_replicas or {}
    known = {fqn: template for template in pcs.spec.template.cliques for fqn in _resolved(pcs, unit, template)}
    counts = {fqn: live.get(fqn, known[fqn].spec.replicas) for fqn in starts_after if fqn in known}
    return tuple((fqn, min(min_pods(known[fqn]), count)) for fqn, count in counts.items() if count)


def with_startup_container(
    pod_spec: Json,
    pcs_name: str,
    image: str,
    minimums: tuple[tuple[str, int], ...],
    *,
    condition: str = READY,
    readiness_gate: bool = False,
) -> Json:
    """A copy of a pod spec that waits for `minimums` after its own init containers; unchanged if there are none.

    `condition` is what those pods must be. With `readiness_gate` the pod is not ready either before they are, whatever
    its init containers do.
    """
    if not minimums:
        return pod_spec
    resources = _startup_resources(pod_spec)
    container = {
        "name": labels.STARTUP_CONTAINER,
        "image": image,
        "args": [
            *(f"--podcliques={fqn}:{count}" for fqn, count in minimums),
            *([] if condition == READY else [f"{CONDITION_ARGUMENT}{condition}"]),
        ],
        **({"resources": resources} if resources else {}),
        "securityContext": _startup_security(pod_spec),
        "volumeMounts": [
            {"name": labels.POD_INFO_VOLUME, "mountPath": labels.POD_INFO_MOUNT_PATH, "readOnly": True},
            {"name": labels.TOKEN_VOLUME, "mountPath": labels.TOKEN_MOUNT_PATH, "readOnly": True},
        ],
    }
    gate = {"conditionType": conditions.STARTUP_ORDER}
    volumes = [
        {"name": labels.TOKEN_VOLUME, "secret": {"secretName": names.token_secret(pcs_name), "defaultMode": 420}},
        {
            "name": labels.POD_INFO_VOLUME,
            "downwardAPI": {
                "items": [
                    {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}},
                    {"path": "podgangname", "fieldRef": {"fieldPath": f"metadata.labels['{labels.POD_GANG}']"}},
                ]
            },
        },
    ]
    return {
        **pod_spec,
        **({"readinessGates": [*(pod_spec.get("readinessGates") or ()), gate]} if readiness_gate else {}),
        "initContainers": [*(pod_spec.get("initContainers") or ()), container],
        "volumes": [*(pod_spec.get("volumes") or ()), *volumes],
    }


def _startup_resources(pod_spec: Json) -> Json:
    """The resources of the start-order container that keep the QoS class of the pod; empty if none would keep it.

    A Guaranteed pod stays so only if every container has its limits as requests, else it loses pinned CPUs. A quota on
    limits refuses a container without them. A pod is BestEffort only if no container asks for anything. A pod
    with resources of its own has its class from those.
    """
    if _counted(pod_spec, "limits") or _counted(pod_spec, "requests"):
        return {}
    containers = [*(pod_spec.get("initContainers") or ()), *(pod_spec.get("containers") or ())]
    limits = [_counted(container, "limits") for container in containers]
    # The API server fills in requests that are left out from the limits.
    requests = [
        {**limit, **_counted(container, "requests")} for limit, container in zip(limits, containers, strict=True)
    ]
    if not any(requests):
        return {}
    is_guaranteed = all(len(limit) == 2 and limit == ask for limit, ask in zip(limits, requests, strict=True))
    return {"limits": STARTUP_LIMITS, "requests": STARTUP_LIMITS if is_guaranteed else STARTUP_REQUESTS}


def _counted(owner: Json, what: str) -> dict[str, Fraction]:
    """CPU and memory, the resources that make the QoS class, where they are not zero."""
    amounts = (owner.get("resources") or {}).get(what) or {}
    amounts_of = {name: exact(amounts[name]) for name in ("cpu", "memory") if name in amounts}
    return {name: amount for name, amount in amounts_of.items() if amount}


def _startup_security(pod_spec: Json) -> Json:
    """The security context that the Pod Security Standard `restricted` requires.

    The image runs as a user of its own.
    """
    security: Json = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if (pod_spec.get("securityContext") or {}).get("runAsUser") == 0:
        security["runAsUser"] = STARTUP_USER  # else it would inherit root, which runAsNonRoot forbids
    return security


def waited_for(args: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The parents that the arguments of a start-order container name, and how many pods of each."""
    for arg in args:
        parent, _, count = arg.partition("--podcliques=")[2].rpartition(":")
        if parent and count.isascii() and count.isdigit():
            yield parent, int(count)


def start_conditions(pod: Pod) -> tuple[str, ...]:
    """The start conditions that a pod satisfies; a pod that is being deleted satisfies none."""
    if pod.metadata.is_deleting:
        return ()
    return reached(pod.spec.node_name, pod.status.phase, pod.status.container_statuses, pod.status.conditions)


def is_waiting(pod: Pod) -> bool:
    """True if a pod is still in its start-order container and is not being deleted."""
    return has_start_order_container(pod) and not pod.metadata.is_deleting and not has_started(pod)


def waits_for_another_condition(pod: Pod, condition: str) -> bool:
    """True if a pod still waits, and for another start condition than its clique now has."""
    return is_waiting(pod) and pod.metadata.annotations.get(labels.STARTS_AFTER_CONDITION, READY) != condition


def has_start_order_container(pod: Pod) -> bool:
    """True if a pod has a start-order container, in which it waits for other pods."""
    containers = pod.spec.init_containers
    return bool(containers) and any(container.name == labels.STARTUP_CONTAINER for container in containers)


def has_started(pod: Pod) -> bool:
    """True if the init containers of a pod have ended."""
    return is_true(pod.status.conditions, "Initialized") or pod.status.phase not in ("", "Pending")


def _parent_templates(pcs: PodCliqueSet, unit: Unit) -> Iterator[CliqueTemplate]:
    template = pcs.spec.template
    if template.clique_startup_type == IN_ORDER:
        position = next(index for index, clique in enumerate(template.cliques) if clique.name == unit.template.name)
        if position > 0:
            yield template.cliques[position - 1]
    elif template.clique_startup_type == EXPLICIT:
        for name in unit.template.spec.starts_after:
            if (parent := template.find_clique(name)) is not None:
                yield parent


def _resolved(pcs: PodCliqueSet, child: Unit, parent: CliqueTemplate) -> Iterator[str]:
    """The PodCliques of the child's gang that a parent template stands for."""
    group, pcs_name = pcs.spec.template.find_group_of(parent.name), pcs.metadata.name
    if child.is_scaled:
        # Only what is in the same replica of the same group is in this gang.
        if child.group is not None and group is not None and group.name == child.group.config.name:
            yield names.member_clique(child.group.fqn, child.group.replica, parent.name)
    elif group is None:
        yield names.clique(pcs_name, child.replica, parent.name)
    else:
        fqn = names.scaling_group(pcs_name, child.replica, group.name)
        yield from (names.member_clique(fqn, index, parent.name) for index in range(group.min_available))
