"""One new pod of a clique, as the JSON that is created.

The clique's pod spec stays as it is, except for what Grove promises: scheduler, gate, host name, environment, claims
and start order. A pod without a priority of its own gets that of the set.
"""

from __future__ import annotations

from grove.api import env, labels, labelsets, names
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.provisioning import CLASS, CONSUMES, provisioning_class
from grove.api.startorder import READY
from grove.backends.base import Backend, PodSite
from grove.backends.uniform import CARRIED
from grove.operator.podclique import in_place
from grove.operator.podclique.domain_affinity import domain_terms, with_domain_affinity
from grove.operator.podclique.status import ObservedClique
from grove.operator.shared.claims import claims_of_pod, with_claims
from grove.operator.shared.diff import owned_by
from grove.operator.shared.layout import min_pods
from grove.operator.shared.rollout import is_in_place
from grove.operator.shared.startup import parent_minimums, with_startup_container


def build_pod(observed: ObservedClique, backend: Backend, incarnation: int, index: int, name: str) -> Json:
    """The pod with this index; raises `BackendError` if the scheduler's backend refuses it.

    `incarnation` says which restart of its gang the pod is made for.
    """
    pcs, clique, unit = observed.pcs, observed.clique, observed.unit
    pcs_name, namespace = pcs.metadata.name, clique.metadata.namespace
    spec = env.with_variables(
        clique.spec.pod_spec, env.pod_variables(pcs_name, unit.replica, clique.metadata.name, namespace)
    )
    spec = with_claims(spec, claims_of_pod(pcs, unit, index))
    terms = domain_terms(pcs, unit, observed.binding) if labels.DOMAIN_AFFINITY in pcs.metadata.annotations else []
    if terms:
        spec = with_domain_affinity(spec, terms)
    minimums = parent_minimums(pcs, unit, clique.spec.starts_after, observed.parent_replicas)
    condition = clique.spec.start_condition
    readiness_gate = pcs.metadata.annotations.get(labels.STARTUP_READINESS_GATE) == "true"
    # Last, so that our own container gets neither the variables nor the claims meant for the user's.
    spec = {
        **with_startup_container(
            spec,
            pcs_name,
            observed.startup_image,
            minimums,
            condition=condition,
            readiness_gate=readiness_gate,
        ),
        "hostname": names.pod_hostname(clique.metadata.name, index),
        "subdomain": names.subdomain(pcs_name, unit.replica),
    }
    spec.pop("schedulingGates", None)
    if backend.needs_gate:
        spec["schedulingGates"] = [{"name": labels.POD_GANG_GATE}]
    if pcs.spec.template.priority_class_name and not spec.get("priorityClassName") and backend.sets_pod_priority:
        spec["priorityClassName"] = pcs.spec.template.priority_class_name
    metadata: Json = {
        "name": name,
        "generateName": names.pod_prefix(clique.metadata.name),
        "namespace": namespace,
        "labels": labelsets.pod(
            clique.metadata.labels, pcs_name, unit.replica, unit.template.name, clique.metadata.name, unit.gang, index
        ),
        "annotations": dict(clique.metadata.annotations),
        "ownerReferences": owned_by(clique),
    }
    for label in CARRIED:
        if label in pcs.metadata.labels:
            metadata["labels"].setdefault(label, pcs.metadata.labels[label])
    if labels.GPU_MEMORY in pcs.metadata.annotations:
        metadata["annotations"].setdefault(labels.GPU_MEMORY, pcs.metadata.annotations[labels.GPU_MEMORY])
    if terms:
        metadata["annotations"][labels.DOMAIN_AFFINITY] = "true"
    asked = pcs.metadata.annotations.get(labels.PROVISIONING_REQUEST)
    if asked is not None and index < min_pods(unit.template) and (class_ := provisioning_class(asked)):
        metadata["annotations"] |= {CONSUMES: unit.gang, CLASS: class_}
    if incarnation:
        metadata["annotations"][labels.INCARNATION] = str(incarnation)
    if minimums and condition != READY:
        metadata["annotations"][labels.STARTS_AFTER_CONDITION] = condition
    pod = Pod.RESOURCE.manifest(metadata, spec=spec)
    if observed.kueue is not None:
        observed.kueue.mark(pod, clique.metadata.name, index, unit.template.name)
    site = PodSite(
        pcs,
        unit.gang,
        clique.metadata.name,
        index,
        min_pods(unit.template),
        observed.gang,
        unit.template.name,
        observed.binding,
    )
    backend.prepare_pod(pod, site)
    if observed.drain_s:
        in_place.add_gate(spec)
    if is_in_place(pcs):
        in_place.prepare(pod, clique)
    return pod
