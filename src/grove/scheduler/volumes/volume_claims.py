"""What a pod's volume claims ask of a node, by the rules of kube-scheduler's volume binding.

A bound claim goes where its volume can be reached. A claim that waits for its first consumer goes where a free volume
matches it, or where its class may make one. Once a node was selected for it, it goes only there. Any other claim holds
the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from grove.api.core import LabelSelector, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from grove.api.meta import Json
from grove.api.quantity import InvalidQuantity, exact
from grove.api.selector import InvalidSelector, Requirement, of
from grove.scheduler.model.facts import NodeTerm, NodeTerms, node_terms

SELECTED_NODE = "volume.kubernetes.io/selected-node"
WAIT = "WaitForFirstConsumer"
ONE_POD = "ReadWriteOncePod"
ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, slots=True)
class VolumeClaims:
    """Where claims, volumes and classes are looked up; `volumes` lists all volumes."""

    claim: Callable[[str, str], PersistentVolumeClaim | None]
    volume: Callable[[str], PersistentVolume | None]
    storage_class: Callable[[str], StorageClass | None]
    volumes: Callable[[], Iterable[PersistentVolume]]


def claim_names(pod: Pod) -> list[str]:
    """Names of the claims a pod mounts, those made for it (ephemeral volumes) included."""
    names = []
    for volume in pod.spec.volumes:
        claim = volume.get("persistentVolumeClaim")
        if claim:
            names.append(str(claim.get("claimName", "")))
        elif volume.get("ephemeral"):
            names.append(f"{pod.metadata.name}-{volume.get('name', '')}")
    return names


def pod_volumes(pod: Pod, claims: VolumeClaims) -> tuple[tuple[NodeTerms, ...], str]:
    """Terms a node must meet, one set a claim that cares; and, if not empty, why no node will do."""
    needs: list[NodeTerms] = []
    for name in claim_names(pod):
        claim = claims.claim(pod.metadata.namespace, name)
        if claim is None:
            return (), f'persistentvolumeclaim "{name}" not found'
        if claim.metadata.is_deleting:
            return (), f'persistentvolumeclaim "{name}" is being deleted'
        try:
            terms, blocked = _claim_needs(claim, claims)
        except (InvalidQuantity, InvalidSelector) as err:
            return (), f'persistentvolumeclaim "{name}": {err}'
        if blocked:
            return (), blocked
        needs += terms
    return tuple(needs), ""


def _claim_needs(claim: PersistentVolumeClaim, claims: VolumeClaims) -> tuple[tuple[NodeTerms, ...], str]:
    name = claim.metadata.name
    if claim.spec.volume_name:
        volume = claims.volume(claim.spec.volume_name)
        if volume is None:
            return (), f'persistentvolume "{claim.spec.volume_name}" of claim "{name}" not found'
        return reach(volume), ""
    kind = claims.storage_class(claim.spec.storage_class_name or "")
    if kind is None or kind.volume_binding_mode != WAIT:
        return (), f'pod has unbound immediate persistentvolumeclaim "{name}"'
    selected = claim.metadata.annotations.get(SELECTED_NODE, "")
    if selected:
        return ((NodeTerm(names=(Requirement("metadata.name", "In", frozenset((selected,))),)),),), ""
    terms = _could_bind(claim, kind, claims)
    return () if terms is None else (terms,), ""


def _could_bind(claim: PersistentVolumeClaim, kind: StorageClass, claims: VolumeClaims) -> NodeTerms | None:
    """Where a free volume matches the claim or a new one may be made; None is anywhere."""
    all_terms: list[NodeTerm] = []
    volumes = matching_volumes(claim, claims.volumes())
    promised = [volume for volume in volumes if volume.spec.claim_ref is not None]
    if not promised:
        made = makes_at(kind)
        if made is None:
            return None
        all_terms += made
    for volume in promised or volumes:
        terms = _reach(volume)
        if terms is None:
            return None
        all_terms += terms
    return tuple(dict.fromkeys(all_terms))


def makes_at(kind: StorageClass) -> NodeTerms | None:
    """Where a class may make volumes; None is anywhere."""
    if not kind.provisioner or kind.provisioner == NO_PROVISIONER:
        return ()
    return tuple(map(_topology_term, kind.allowed_topologies)) or None


def matching_volumes(claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]) -> list[PersistentVolume]:
    """Volumes a claim could have, smallest first, so that a small claim does not take a large disk."""
    persistent_volumes = [volume for volume in volumes if _matches(volume, claim)]
    return sorted(persistent_volumes, key=lambda v: (exact(v.spec.capacity.get("storage", "0")), v.metadata.name))


def reach(volume: PersistentVolume) -> tuple[NodeTerms, ...]:
    """Terms that a node must meet to use a volume."""
    return tuple(terms for terms in (_reach(volume), _zone(volume)) if terms is not None)


def is_for_one_pod(claim: PersistentVolumeClaim) -> bool:
    return ONE_POD in claim.spec.access_modes


def _matches(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    spec = volume.spec
    if spec.claim_ref is not None:
        ours = (claim.metadata.namespace, claim.metadata.name)
        if (spec.claim_ref.get("namespace"), spec.claim_ref.get("name")) != ours:
            return False
        if spec.claim_ref.get("uid") not in (None, "", claim.metadata.uid):
            return False  # of a claim that had this name before
    elif volume.status.phase not in ("", "Available"):
        return False
    if spec.storage_class_name != (claim.spec.storage_class_name or ""):
        return False
    if not set(claim.spec.access_modes) <= set(spec.access_modes):
        return False
    if claim.spec.selector is not None:
        wanted = of(msgspec.convert(claim.spec.selector, LabelSelector))
        if not wanted.matches(volume.metadata.labels):
            return False
    asked = (claim.spec.resources.get("requests") or {}).get("storage", "0")
    return exact(spec.capacity.get("storage", "0")) >= exact(asked)


def _reach(volume: PersistentVolume) -> NodeTerms | None:
    affinity = volume.spec.node_affinity
    return None if affinity is None else node_terms(affinity.required)


def _zone(volume: PersistentVolume) -> NodeTerms | None:
    """Zone and region labels of a volume hold for nodes that carry any such label; the others are not asked."""
    labels = volume.metadata.labels
    asked = [Requirement(key, "In", frozenset(labels[key].split("__"))) for key in ZONES if key in labels]
    if not asked:
        return None
    nowhere = NodeTerm(labels=tuple(Requirement(key, "DoesNotExist", frozenset()) for key in ZONES))
    return (NodeTerm(labels=tuple(asked)), nowhere)


def _topology_term(term: Json) -> NodeTerm:
    expressions = term.get("matchLabelExpressions") or ()
    return NodeTerm(labels=tuple(Requirement(e["key"], "In", frozenset(e.get("values") or ())) for e in expressions))
