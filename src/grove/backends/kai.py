"""kai-scheduler: a PodGang as a KAI PodGroup with subgroups, or left to KAI's own podgrouper.

A PodGroup of ours needs KAI 0.15, whose CRD has `minSubGroup`. With an older KAI, or if the configuration asks for it,
podgrouper reads the PodGang as it is. Queue, priority and topology are then written where podgrouper looks for them.
The gang records which of the two applies, because pods get their marks at creation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grove.api import conditions, labels
from grove.api.core import Pod
from grove.api.meta import Json, Resource, is_true
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import GangTopologyConstraint, PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.backends import base
from grove.backends.base import (
    Answers,
    BackendError,
    GangObjects,
    PodSite,
    Question,
    Refusal,
    TopologyBackend,
    TopologySync,
)
from grove.backends.constraints import gang_constraints
from grove.backends.kube_objects import object_meta
from grove.backends.queues import QueueRule
from grove.config import Section, read_section

NAME = labels.KAI_SCHEDULER
AUTO, GROVE, PODGROUPER = "auto", "grove", "podgrouper"
POD_GROUP = Resource("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups")
TOPOLOGY = Resource("kai.scheduler", "v1alpha1", "Topology", "topologies", namespaced=False)
MAX_LEVELS = 16
NEVER_STALE = "-1s"
"""Staleness is gang termination, which Grove does itself, after the set's own termination delay."""
_PROBE: Json = {
    "metadata": {"generateName": "grove-probe-", "namespace": "default"},
    "spec": {
        "queue": "grove-probe",
        "minMember": 1,
        "stalenessGracePeriod": NEVER_STALE,
        "subGroups": [{"name": "parent", "minSubGroup": 1}, {"name": "leaf", "minMember": 1, "parent": "parent"}],
    },
}
"""What a definition that is too old would prune."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class KaiFacts:
    """The features of the installed PodGroup definition."""

    installed: bool = False
    subgroups: bool = False
    staleness: bool = False


QUEUE = QueueRule(NAME, labels.KAI_QUEUE, ("labels", "annotations"), is_needed=True)


class KaiBackend(TopologyBackend):
    name = NAME
    queue = QUEUE
    event_reasons = {base.NOT_REPRESENTABLE: conditions.EventReason.KAI_BACKEND_MAPPING_FAILED}
    topology_resource = TOPOLOGY
    topology_frozen = True
    sets_pod_priority = False  # the PodGroup carries it; a pod that names a class which does not exist is refused

    def __init__(self, ownership: str = AUTO, facts: KaiFacts | None = None) -> None:
        self.ownership, self.facts, self.discovered = ownership, facts or KaiFacts(), facts is not None

    @property
    def owns(self) -> bool:
        """True if Grove makes the PodGroups of new gangs."""
        return self.ownership == GROVE or (self.ownership == AUTO and self.facts.subgroups)

    @property
    def gang_resources(self) -> Sequence[Resource]:
        return (POD_GROUP,) if self.facts.installed and self.ownership != PODGROUPER else ()

    @property
    def questions(self) -> Sequence[Question]:
        return (
            Question("served", "served", POD_GROUP),
            Question("group", "dry_run", POD_GROUP, _PROBE, only_if="served"),
            Question("topologies", "served", TOPOLOGY),
        )

    def learn(self, answers: Answers) -> None:
        self.discovered = True
        spec: Json = (answers.get("group") or {}).get("spec") or {}
        subgroups = any("minSubGroup" in subgroup for subgroup in spec.get("subGroups") or ())
        self.topology_served = bool(answers.get("topologies"))
        self.facts = KaiFacts(bool(answers.get("served")), subgroups, "stalenessGracePeriod" in spec)

    # Admission

    def validate(self, pcs: PodCliqueSet) -> Sequence[Refusal]:
        refusals: list[Refusal] = []
        if self.discovered and not self.facts.installed:
            refusals.append(Refusal("spec", "KAI is not installed: there is no PodGroup of scheduling.run.ai"))
        if self.ownership == GROVE and self.facts.installed and not self.facts.subgroups:
            refusals.append(Refusal("spec", "podGroupOwnership grove needs KAI 0.15: its PodGroup has no minSubGroup"))
        for at, clique in enumerate(pcs.spec.template.cliques):
            if not _LABEL.fullmatch(clique.name):
                message = f'KAI takes lower case letters, digits and "-" in subgroup names, not "{clique.name}"'
                refusals.append(Refusal(f"spec.template.cliques[{at}].name", message))
        refusals += _one_subgroup(pcs)
        try:
            queue_of(pcs)
        except BackendError as error:
            refusals.append(Refusal("spec", str(error)))
        return tuple(refusals)

    # Pods and gangs

    def gang_annotations(self, pcs: PodCliqueSet, gang: PodGang | None, pods: Sequence[Pod]) -> Mapping[str, str]:
        if gang is not None:
            return {}
        if pods:
            marked = all(pod.metadata.annotations.get(labels.KAI_SKIP_PODGROUPER) == "true" for pod in pods)
            return {labels.GANG_MAPPING: GROVE if marked else PODGROUPER}
        return {labels.GANG_MAPPING: GROVE if self.owns else PODGROUPER}

    def _is_ours(self, gang: PodGang | None) -> bool:
        recorded = gang.metadata.annotations.get(labels.GANG_MAPPING) if gang is not None else None
        return recorded == GROVE if recorded else self.owns

    def prepare_pod(self, pod: Json, site: PodSite) -> None:
        super().prepare_pod(pod, site)
        own: Json = pod["metadata"].setdefault("labels", {})
        annotations: Json = pod["metadata"].setdefault("annotations", {})
        own[labels.KAI_QUEUE] = queue_of(site.pcs)
        if self._is_ours(site.gang):
            own[labels.KAI_SUBGROUP_NAME] = site.clique
            annotations[labels.KAI_SKIP_PODGROUPER] = "true"
            annotations[labels.KAI_POD_GROUP_NAME] = site.gang_name

    def gang_objects(self, gang: PodGang, pcs: PodCliqueSet, pods: Sequence[Pod]) -> GangObjects:
        if not self.facts.installed:
            return GangObjects(ready=False, reason=base.NOT_INSTALLED, message="KAI's PodGroup is not served here")
        if not self._is_ours(gang):
            if none := [group.name for group in gang.spec.podgroups if not group.min_replicas]:
                message = f"KAI's podgrouper needs a minimum of one pod a clique; none has {', '.join(none)}"
                return GangObjects(ready=False, reason=base.NOT_REPRESENTABLE, message=message)
            return GangObjects(message="KAI's podgrouper reads the PodGang")
        constrained = any(True for _ in gang_constraints(gang))
        if constrained and not topology_of(gang):
            message = f"a topology constraint needs the annotation {labels.TOPOLOGY_NAME} or {labels.KAI_TOPOLOGY}"
            return GangObjects(ready=False, reason=base.NOT_REPRESENTABLE, message=message)
        try:
            return GangObjects((pod_group(gang, queue_of(pcs), self.facts),))
        except BackendError as error:
            return GangObjects(ready=False, reason=base.NOT_REPRESENTABLE, message=str(error))

    def may_ungate(self, pod: Pod, gang: PodGang) -> bool:
        return is_true(gang.status.conditions, conditions.SCHEDULER_OBJECTS_READY)

    # Topology

    def wanted_topology(self, binding: ClusterTopologyBinding) -> Json | None:
        levels = [{"nodeLabel": level.key} for level in binding.spec.levels][:MAX_LEVELS]
        meta = {"name": binding.metadata.name, "labels": {labels.MANAGED_BY: labels.OPERATOR}}
        return TOPOLOGY.manifest(meta, spec={"levels": levels})

    def topology_drift(self, binding: ClusterTopologyBinding, reference: str, observed: Json | None) -> TopologySync:
        if observed is None:
            return TopologySync(False, f"there is no KAI Topology {reference}")
        wanted = [level.key for level in binding.spec.levels]
        actual = [level.get("nodeLabel") for level in (observed.get("spec") or {}).get("levels") or ()]
        generation = int(observed["metadata"].get("generation") or 0)
        if actual == wanted:
            return TopologySync(True, observed_generation=generation)
        message = f"KAI Topology {reference} has levels {', '.join(map(str, actual))}, not {', '.join(wanted)}"
        return TopologySync(False, message, generation)


def _one_subgroup(pcs: PodCliqueSet) -> Iterator[Refusal]:
    """A clique named like a replica of a group that packs: both are subgroups of the base gang."""
    template = pcs.spec.template
    for at, clique in enumerate(template.cliques):
        name, _, index = clique.name.rpartition("-")
        group, is_index = template.find_group(name), index.isdecimal() and str(int(index)) == index
        if group is None or group.topology_constraint is None or not is_index or int(index) >= group.min_available:
            continue
        if template.find_group_of(clique.name) is None:
            message = f'a replica of scaling group "{name}" is a subgroup of the same name: rename one'
            yield Refusal(f"spec.template.cliques[{at}].name", message)


def pod_group(gang: PodGang, queue: str, facts: KaiFacts) -> Json:
    """The PodGroup of a gang: parents first, then a leaf a clique. Empty names are left out: KAI takes them for set."""
    spec: Json = {"queue": queue, "minMember": sum(group.min_replicas for group in gang.spec.podgroups)}
    if gang.spec.priority_class_name:
        spec["priorityClassName"] = gang.spec.priority_class_name
    if facts.staleness:
        spec["stalenessGracePeriod"] = NEVER_STALE
    topology = topology_of(gang)
    spec |= _with_constraint(gang.spec.topology_constraint, topology)
    configs = [config for config in gang.spec.topology_constraint_group_configs if config.pod_group_names]
    parents = {member: config.name for config in configs for member in config.pod_group_names}
    groups: list[Json] = [
        {"name": config.name, "minSubGroup": len(config.pod_group_names)}
        | _with_constraint(config.topology_constraint, topology)
        for config in configs
    ]
    for group in gang.spec.podgroups:
        leaf: Json = {"name": group.name, "minMember": group.min_replicas}
        if group.name in parents:
            leaf["parent"] = parents[group.name]
        groups.append(leaf | _with_constraint(group.topology_constraint, topology))
    spec["subGroups"] = groups
    meta = object_meta(gang, gang.metadata.name)
    meta["labels"] = {**gang.metadata.labels, **meta["labels"], labels.KAI_QUEUE: queue}
    meta["annotations"] = dict(gang.metadata.annotations)
    return POD_GROUP.manifest(meta, spec=spec)


def queue_of(pcs: PodCliqueSet) -> str:
    """The one queue of a set: its label, else its annotation, else what all its cliques agree on."""
    for _, message in QUEUE.faults(pcs):
        raise BackendError(message)
    return QUEUE.queues(pcs)[0]


def topology_of(gang: PodGang) -> str:
    own = gang.metadata.annotations
    return own.get(labels.TOPOLOGY_NAME) or own.get(labels.KAI_TOPOLOGY) or ""


def _with_constraint(constraint: GangTopologyConstraint | None, topology: str) -> Json:
    """The field that says it; nothing where there is nothing to say."""
    if constraint is None or not (constraint.required or constraint.preferred):
        return {}
    body: Json = {"topology": topology}
    if constraint.required:
        body["requiredTopologyLevel"] = constraint.required
    if constraint.preferred:
        body["preferredTopologyLevel"] = constraint.preferred
    return {"topologyConstraint": body}


class _Options(Section):
    pod_group_ownership: Literal["auto", "grove", "podgrouper"] = "auto"


def build(options: Json, path: str) -> KaiBackend:
    return KaiBackend(read_section(_Options, options, path).pod_group_ownership)
