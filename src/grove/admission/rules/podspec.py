"""Checks of a pod template that the API server would make only when the pod is created.

The CRD's schema covers types, required fields and duplicates in lists. This module has the rules between fields:
names, references, quantities. Without it such faults appear as failed pod creations. It is a subset on purpose: the
API server refuses everything that this module refuses.

A dry-run creation would find all faults. But it takes 3 ms of CPU for each clique, and a whole review of five cliques
takes 0.8 ms. It also refuses a template because of today's quota.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grove.admission.rules.containers import container_faults
from grove.admission.rules.syntax import (
    enum_faults,
    label_fault,
    label_faults,
    label_value_fault,
    qualified_name_fault,
    subdomain_fault,
)
from grove.api.faults import Fault, duplicate, forbidden, invalid, required
from grove.api.fields import integer, mapping, sequence, text
from grove.api.labels import POD_INFO_VOLUME, STARTUP_CONTAINER, TOKEN_VOLUME
from grove.api.meta import Json

_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATE = ("Equal", "Exists", "Lt", "Gt")
_PREEMPTION = ("PreemptLowerPriority", "Never")
_LONGEST_S = 2**31 - 1


def pod_spec_faults(path: str, spec: Json, old: Json | None = None) -> Iterator[Fault]:
    """Faults of one template; `old` is the stored one on an update, whose own sins are not held against a change."""
    yield from _placement_faults(path, spec, old)
    yield from enum_faults(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART)
    yield from enum_faults(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS)
    yield from enum_faults(f"{path}.preemptionPolicy", spec.get("preemptionPolicy"), _PREEMPTION)
    grace = integer(spec.get("terminationGracePeriodSeconds"))
    if grace is not None and grace < 0:
        yield invalid(f"{path}.terminationGracePeriodSeconds", grace, "must not be negative")
    deadline = integer(spec.get("activeDeadlineSeconds"))
    if deadline is not None and not 1 <= deadline <= _LONGEST_S:
        yield invalid(f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {_LONGEST_S}, inclusive")
    for field in ("serviceAccountName", "priorityClassName", "runtimeClassName"):
        if (name := text(spec.get(field))) and (wrong := subdomain_fault(name)):
            yield invalid(f"{path}.{field}", name, wrong)
    yield from label_faults(f"{path}.nodeSelector", mapping(spec.get("nodeSelector")))
    yield from _toleration_faults(f"{path}.tolerations", sequence(spec.get("tolerations")))
    yield from _affinity_faults(f"{path}.affinity", mapping(spec.get("affinity")))

    volumes = {text(mapping(volume).get("name")) for volume in sequence(spec.get("volumes"))}
    yield from _volume_faults(f"{path}.volumes", sequence(spec.get("volumes")))
    claims = {text(mapping(claim).get("name")) for claim in sequence(spec.get("resourceClaims"))}
    yield from _claim_faults(f"{path}.resourceClaims", sequence(spec.get("resourceClaims")))
    if sequence(spec.get("ephemeralContainers")):
        yield forbidden(
            f"{path}.ephemeralContainers", "ephemeral containers are added to running pods, not to templates"
        )
    if not sequence(spec.get("containers")):
        yield required(f"{path}.containers", "at least one container is required")
    yield from _reserved_faults(path, spec, mapping(old))
    taken: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(sequence(spec.get(field))):
            where, body = f"{path}.{field}[{index}]", mapping(container)
            yield from _container_name_faults(where, text(body.get("name")), taken)
            yield from container_faults(where, body, volumes, claims, is_init=field == "initContainers")


def _placement_faults(path: str, spec: Json, old: Json | None) -> Iterator[Fault]:
    """Grove's scheduler decides the place of every pod of a gang; a template must not decide it first."""
    before = mapping(old)
    spread = sequence(spec.get("topologySpreadConstraints"))
    if spread and spread != before.get("topologySpreadConstraints"):
        yield invalid(f"{path}.topologySpreadConstraints", spread, "must not be set: use topologyConstraint")
    node = text(spec.get("nodeName"))
    if node and node != before.get("nodeName"):
        yield invalid(f"{path}.nodeName", node, "must not be set: the scheduler chooses nodes for the whole gang")


RESERVED = {
    "initContainers": (STARTUP_CONTAINER,),
    "containers": (STARTUP_CONTAINER,),
    "volumes": (POD_INFO_VOLUME, TOKEN_VOLUME),
}
"""Names that Grove gives to what it adds to pods of a set with a start order."""


def _reserved_faults(path: str, spec: Json, old: Json) -> Iterator[Fault]:
    """A template that is stored with such a name may keep it."""
    for field, names in RESERVED.items():
        before = {text(mapping(item).get("name")) for item in sequence(old.get(field))}
        for index, item in enumerate(sequence(spec.get(field))):
            name = text(mapping(item).get("name"))
            if name in names and name not in before:
                detail = "reserved: Grove adds it to pods that wait for others to start"
                yield invalid(f"{path}.{field}[{index}].name", name, detail)


def _container_name_faults(path: str, name: str, taken: set[str]) -> Iterator[Fault]:
    if not name:
        yield required(f"{path}.name")
    elif wrong := label_fault(name):
        yield invalid(f"{path}.name", name, wrong)
    elif name in taken:
        yield duplicate(f"{path}.name", name, "names are unique among all containers of a pod")
    taken.add(name)


def _volume_faults(path: str, volumes: list[Any]) -> Iterator[Fault]:
    for index, item in enumerate(volumes):
        volume = mapping(item)
        where, name = f"{path}[{index}]", text(volume.get("name"))
        if not name:
            yield required(f"{where}.name")
        elif wrong := label_fault(name):
            yield invalid(f"{where}.name", name, wrong)
        sources = sorted(key for key, value in volume.items() if key != "name" and value is not None)
        if not sources and volume:
            yield required(where, "must specify a volume type")
        for surplus in sources[1:]:
            yield forbidden(
                f"{where}.{surplus}", f"may not specify more than 1 volume type, there is {sources[0]} already"
            )


def _claim_faults(path: str, claims: list[Any]) -> Iterator[Fault]:
    for index, item in enumerate(claims):
        where, name = f"{path}[{index}]", text(mapping(item).get("name"))
        if name and (wrong := label_fault(name)):
            yield invalid(f"{where}.name", name, wrong)
        sources = [key for key in ("resourceClaimName", "resourceClaimTemplateName") if mapping(item).get(key)]
        if len(sources) != 1:
            yield invalid(where, item, "must specify one of resourceClaimName and resourceClaimTemplateName")


def _toleration_faults(path: str, tolerations: list[Any]) -> Iterator[Fault]:
    for index, item in enumerate(tolerations):
        where, toleration = f"{path}[{index}]", mapping(item)
        key, operator, value = (text(toleration.get(field)) for field in ("key", "operator", "value"))
        if key and (wrong := qualified_name_fault(key)):
            yield invalid(f"{where}.key", key, wrong)
        if not key and operator != "Exists":
            yield invalid(
                f"{where}.operator", operator, "operator must be Exists when `key` is empty, which means all keys"
            )
        yield from enum_faults(f"{where}.operator", operator, _TOLERATE)
        if operator == "Exists" and value:
            yield invalid(f"{where}.value", value, "value must be empty when `operator` is 'Exists'")
        elif operator in ("", "Equal") and value and (wrong := label_value_fault(value)):
            yield invalid(f"{where}.value", value, wrong)
        yield from enum_faults(f"{where}.effect", toleration.get("effect"), _EFFECTS)
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            yield invalid(
                f"{where}.effect",
                toleration.get("effect"),
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            )


def _affinity_faults(path: str, affinity: Json) -> Iterator[Fault]:
    hard, soft = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    nodes = mapping(affinity.get("nodeAffinity"))
    if isinstance(wanted := nodes.get(hard), dict) and not sequence(wanted.get("nodeSelectorTerms")):
        yield required(f"{path}.nodeAffinity.{hard}.nodeSelectorTerms", "must have at least one node selector term")
    yield from _weight_faults(f"{path}.nodeAffinity.{soft}", nodes.get(soft))
    for field in ("podAffinity", "podAntiAffinity"):
        terms = mapping(affinity.get(field))
        for index, term in enumerate(sequence(terms.get(hard))):
            yield from _topology_key_faults(f"{path}.{field}.{hard}[{index}]", mapping(term))
        yield from _weight_faults(f"{path}.{field}.{soft}", terms.get(soft))
        for index, weighted in enumerate(sequence(terms.get(soft))):
            term = mapping(mapping(weighted).get("podAffinityTerm"))
            yield from _topology_key_faults(f"{path}.{field}.{soft}[{index}].podAffinityTerm", term)


def _topology_key_faults(path: str, term: Json) -> Iterator[Fault]:
    key = text(term.get("topologyKey"))
    if not key:
        yield required(f"{path}.topologyKey", "can not be empty")
    elif wrong := qualified_name_fault(key):
        yield invalid(f"{path}.topologyKey", key, wrong)


def _weight_faults(path: str, terms: Any) -> Iterator[Fault]:
    for index, term in enumerate(sequence(terms)):
        weight = integer(mapping(term).get("weight"))
        if weight is not None and not 1 <= weight <= 100:
            yield invalid(f"{path}[{index}].weight", weight, "must be in the range 1-100")
