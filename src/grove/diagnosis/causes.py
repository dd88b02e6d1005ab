"""Objects that pods refer to, and their faults: claims, volumes, storage classes, Secrets and ConfigMaps. Pure.

`references` names the objects to read. `causes` names the faults that keep pods from starting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from grove.api.core import Event
from grove.api.meta import Json
from grove.api.node import PersistentVolume, PersistentVolumeClaim, StorageClass
from grove.api.podclique import PodClique
from grove.api.quantity import exact

CLAIM, SECRET, CONFIG_MAP = "PersistentVolumeClaim", "Secret", "ConfigMap"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
LATER = "WaitForFirstConsumer"
DOCKER_CONFIG = "kubernetes.io/dockerconfigjson"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, slots=True)
class Reference:
    """An object that pods of a clique cannot start without. `key` is one that it must have; empty if any will do.

    `pulls`: its absence matters only where an image cannot be pulled without it.
    """

    kind: str
    name: str
    key: str = ""
    pulls: bool = False


@dataclass(frozen=True, slots=True)
class Cause:
    """The fault of an object that pods of these cliques need, and the step that repairs it."""

    namespace: str
    cliques: frozenset[str]
    reason: str
    step: str
    command: str = ""
    """Carries out the step as it stands; empty where a person has to decide something first."""
    keeps_from_nodes: bool = False
    """Pods with an unbound claim get no node. Pods whose Secret is missing get one, and do not start there."""
    pulls: bool = False
    """A Secret for a registry: it is the cause only of an image that is not pulled."""

    def concerns(self, namespace: str, cliques: Set[str]) -> bool:
        return self.namespace == namespace and bool(self.cliques & cliques)


Fault = tuple[str, str] | tuple[str, str, str]
"""A reason, a step, and the command of the step where there is one."""


@dataclass(frozen=True)
class Referred:
    """Objects that were read.

    `keys` are those of Secrets and ConfigMaps that exist. `unread` are kinds that could not be read. `volumes` is None
    if they were not read.
    """

    claims: Mapping[str, PersistentVolumeClaim | None]
    classes: Mapping[str, StorageClass | None]
    keys: Mapping[tuple[str, str], frozenset[str] | None]
    unread: frozenset[str] = frozenset()
    warnings: tuple[Event, ...] = ()
    volumes: tuple[PersistentVolume, ...] | None = None


def references(clique: PodClique) -> set[Reference]:
    """Objects that the pods of a clique cannot start without."""
    return references_of(clique.spec.pod_spec)


def references_of(spec: Json) -> set[Reference]:
    """Objects that a pod of this spec cannot start without."""
    references = set(_of_volumes(spec.get("volumes") or ()))
    references |= {
        Reference(SECRET, secret.get("name", ""), pulls=True) for secret in spec.get("imagePullSecrets") or ()
    }
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        references |= set(_of_environment(container))
    return references


def _of_volumes(volumes: Iterable[Json]) -> Iterator[Reference]:
    for volume in volumes:
        if claim := volume.get("persistentVolumeClaim"):
            yield Reference(CLAIM, claim.get("claimName", ""))
        sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for source in sources:
            secret, config = source.get("secret"), source.get("configMap")
            if secret and not secret.get("optional"):
                yield from _with_keys(SECRET, secret.get("secretName") or secret.get("name", ""), secret)
            if config and not config.get("optional"):
                yield from _with_keys(CONFIG_MAP, config.get("name", ""), config)


def _with_keys(kind: str, name: str, source: Json) -> Iterator[Reference]:
    """The object, or each key of it that a volume names: a kubelet does not mount the volume without them."""
    keys = [item.get("key", "") for item in source.get("items") or ()] or [""]
    yield from (Reference(kind, name, key) for key in keys)


def _of_environment(container: Json) -> Iterator[Reference]:
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        for field, kind in (("secretKeyRef", SECRET), ("configMapKeyRef", CONFIG_MAP)):
            if (ref := source.get(field)) and not ref.get("optional"):
                yield Reference(kind, ref.get("name", ""), ref.get("key", ""))
    for env_source in container.get("envFrom") or ():
        for field, kind in (("secretRef", SECRET), ("configMapRef", CONFIG_MAP)):
            if (ref := env_source.get(field)) and not ref.get("optional"):
                yield Reference(kind, ref.get("name", ""))


def causes(cliques: Iterable[PodClique], referred: Referred) -> tuple[Cause, ...]:
    """One cause an object, with all cliques of one namespace that need it; volumes first."""
    needed: dict[Reference, set[str]] = {}
    namespace = ""
    for clique in cliques:
        namespace = clique.metadata.namespace
        for reference in references(clique):
            needed.setdefault(reference, set()).add(clique.metadata.name)
    causes: list[Cause] = []
    absent: set[tuple[str, str]] = set()
    for reference in sorted(needed, key=lambda each: (each.kind != CLAIM, each.pulls, each.kind, each.name, each.key)):
        if (reference.kind, reference.name) in absent:
            continue
        wrong = _claim(reference.name, referred) if reference.kind == CLAIM else _object(reference, referred)
        if wrong is not None:
            if referred.keys.get((reference.kind, reference.name), "") is None and not reference.pulls:
                absent.add((reference.kind, reference.name))
            cause = Cause(namespace, _users(reference, needed, referred), *wrong)
            causes.append(replace(cause, keeps_from_nodes=reference.kind == CLAIM, pulls=reference.pulls))
    return tuple(causes)


def ending_namespace(namespace: str, cliques: frozenset[str]) -> Cause:
    """The cause of pods that are not created because their namespace is being deleted."""
    step = f"wait for its deletion; kubectl get namespace {namespace} -o yaml says what is left in it"
    return Cause(namespace, cliques, f"namespace {namespace} is being deleted", step, keeps_from_nodes=True)


def _users(reference: Reference, needed: Mapping[Reference, set[str]], referred: Referred) -> frozenset[str]:
    """Cliques that need the object, or this key of it if the object exists."""
    if reference.pulls or referred.keys.get((reference.kind, reference.name), "") is not None:
        return frozenset(needed[reference])
    same = [
        users
        for other, users in needed.items()
        if (other.kind, other.name, other.pulls) == (reference.kind, reference.name, False)
    ]
    return frozenset(clique for users in same for clique in users)


def _object(reference: Reference, referred: Referred) -> Fault | None:
    if (reference.kind, reference.name) not in referred.keys:
        return None
    keys = referred.keys[reference.kind, reference.name]
    if keys is None and reference.pulls:
        step = f"create the {reference.kind} {reference.name} of type {DOCKER_CONFIG}, or correct imagePullSecrets"
        return f"{reference.kind} {reference.name} does not exist; imagePullSecrets names it", step
    if keys is None:
        return (
            f"{reference.kind} {reference.name} does not exist",
            f"create the {reference.kind} {reference.name}, or correct the pod template",
        )
    if reference.key and reference.key not in keys:
        there = f"it has {', '.join(sorted(keys))}" if keys else "it is empty"
        return (
            f"{reference.kind} {reference.name} has no key {reference.key}; {there}",
            f"add the key {reference.key}, or correct the pod template",
        )
    return None


def _claim(name: str, referred: Referred) -> Fault | None:
    if name not in referred.claims:
        return None
    claim = referred.claims[name]
    if claim is None:
        return f"{CLAIM} {name} does not exist", f"create the {CLAIM} {name}, or correct the pod template"
    if claim.status.phase == "Lost":
        volume = claim.spec.volume_name
        return (
            f"{CLAIM} {name} is Lost: its PersistentVolume {volume} is gone",
            "restore the volume, or delete the claim and create it again",
        )
    if claim.status.phase == "Bound":
        return None
    own = claim.spec.storage_class_name
    if own is None:
        if not any(is_default(class_) for class_ in referred.classes.values() if class_ is not None) and not _is_unread(
            referred
        ):
            step = f"kubectl annotate storageclass NAME {DEFAULT_CLASS}=true, or name a class in the claim"
            return f"{CLAIM} {name} names no StorageClass, and no class is the default", step
        return _pending(name, referred)
    if own and referred.classes.get(own) is None and not _is_unread(referred):
        there = (
            ", ".join(sorted(key for key, storage_class in referred.classes.items() if storage_class is not None))
            or "none"
        )
        step = f"create the StorageClass {own}, or make the claim with one that exists ({there})"
        return f"StorageClass {own} does not exist; {CLAIM} {name} asks for it", step
    kept = referred.classes.get(own) if own else None
    if kept is not None and kept.volume_binding_mode == LATER and kept.provisioner != NO_PROVISIONER:
        # It is bound when the pods have a place. A warning says that its provisioner cannot make the volume.
        return _pending(name, referred) if _warnings_of(name, referred) else None
    static = not own or (kept is not None and kept.provisioner == NO_PROVISIONER)
    if referred.volumes is not None and (static or claim.spec.volume_name):
        return _no_volume(claim, own, referred.volumes) or _pending(name, referred)
    return _pending(name, referred)


def suits(volume: PersistentVolume, claim: PersistentVolumeClaim, named: str) -> bool:
    """True if a free volume has the class, the size and the access modes that a claim asks for."""
    spec = volume.spec
    if spec.claim_ref is not None or (claim.spec.volume_name and volume.metadata.name != claim.spec.volume_name):
        return False
    return (
        spec.storage_class_name == named
        and set(claim.spec.access_modes) <= set(spec.access_modes)
        and exact(spec.capacity.get("storage", "0")) >= exact(asked_of(claim).get("storage", "0"))
    )


def asked_of(claim: PersistentVolumeClaim) -> Json:
    """The requests of a claim, by resource."""
    requests: Json = claim.spec.resources.get("requests") or {}
    return requests


def _no_volume(claim: PersistentVolumeClaim, named: str, volumes: tuple[PersistentVolume, ...]) -> Fault | None:
    """Why no PersistentVolume that exists can be bound to a claim; None if one can."""
    name, size = claim.metadata.name, asked_of(claim).get("storage", "0")
    if wanted := claim.spec.volume_name:
        persistent_volume = next((each for each in volumes if each.metadata.name == wanted), None)
        if persistent_volume is None:
            step = f"create the PersistentVolume {wanted}, or delete the claim and create it without volumeName"
            return f"PersistentVolume {wanted} does not exist; {CLAIM} {name} names it", step
        ref = persistent_volume.spec.claim_ref or {}
        if ref and ref.get("uid", claim.metadata.uid) != claim.metadata.uid:
            other = f"{ref.get('namespace')}/{ref.get('name')}"
            step = f"delete the claim and create it with another volume, or delete {other}"
            return f"PersistentVolume {wanted} belongs to claim {other}", step
    if any(suits(volume, claim, named) for volume in volumes):
        return None
    step = f"create a PersistentVolume of {size} with {', '.join(claim.spec.access_modes) or 'its access modes'}"
    mine = [volume for volume in volumes if volume.spec.storage_class_name == named]
    released = [volume for volume in mine if volume.status.phase == "Released"]
    if released:
        volume = released[0].metadata.name
        return (
            f"PersistentVolume {volume} is Released, so {CLAIM} {name} cannot have it",
            f"free PersistentVolume {volume}, if its data may be used again",
            f"""kubectl patch pv {volume} -p '{{"spec":{{"claimRef":null}}}}'""",
        )
    free = [volume for volume in mine if volume.spec.claim_ref is None]
    if not free:
        of = f" of StorageClass {named}" if named else ""
        return f"no PersistentVolume{of} is free for {CLAIM} {name}", step
    largest = max((str(volume.spec.capacity.get("storage", "0")) for volume in free), key=exact)
    if exact(largest) < exact(size):
        return f"no free PersistentVolume has the {size} of {CLAIM} {name}; the largest has {largest}", step
    modes = sorted({mode for volume in free for mode in volume.spec.access_modes})
    asked = ", ".join(claim.spec.access_modes)
    return f"no free PersistentVolume allows {asked} for {CLAIM} {name}; they allow {', '.join(modes)}", step


def _is_unread(referred: Referred) -> bool:
    return "StorageClass" in referred.unread


def is_default(storage_class: StorageClass) -> bool:
    return storage_class.metadata.annotations.get(DEFAULT_CLASS, "") == "true"


def _pending(name: str, referred: Referred) -> Fault:
    warnings = _warnings_of(name, referred)
    text = f": {warnings[-1].message}" if warnings else ": no PersistentVolume was bound to it"
    return f"{CLAIM} {name} is Pending{text}", f"kubectl describe pvc {name}"


def _warnings_of(name: str, referred: Referred) -> list[Event]:
    """Warnings about a claim, the latest last."""
    mine = [
        warning
        for warning in referred.warnings
        if warning.involved_object.kind == CLAIM and warning.involved_object.name == name
    ]
    return sorted(mine, key=lambda event: str(event.last_timestamp or event.event_time or ""))
