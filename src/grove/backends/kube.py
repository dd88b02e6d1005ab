"""default-scheduler: kube-scheduler as every cluster has it, with gangs where the server has the Workload API.

Without that API, kube-scheduler places pods one by one, and Grove only gates gangs. A gang's pods stay gated until all
of them exist, and scaled gangs follow their base gang.

With it, `kube_objects` describes a gang as objects. Pods carry the reference from the beginning, because it cannot be
added later. Their gates are removed when the objects exist; surplus pods follow when the gang is placed. The gang
records its mapping, so a new setting or a newer server does not change a living gang.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from grove.api import conditions, labels
from grove.api.core import Pod
from grove.api.fields import natural
from grove.api.labels import DEFAULT_SCHEDULER
from grove.api.meta import Json, Resource, find_condition, is_true
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.backends import base, kube_api, kube_objects
from grove.backends.base import NO_OBJECTS, Answers, Backend, BackendError, GangObjects, PodSite, Question, Refusal
from grove.backends.constraints import constraints_of, gang_constraints
from grove.backends.kube_api import Capability
from grove.backends.kube_objects import MAX_TEMPLATES, MERGED, PER_CLIQUE, TREE
from grove.config import Section, read_section

NAME = DEFAULT_SCHEDULER
AUTO, REQUIRED, OFF = "Auto", "Required", "Off"
NO_MAPPING = "None"
PARTED = "Parted"
"""A gang whose group asks for more than was left of it when a pod was lost: pods are placed one by one since."""


@dataclass(frozen=True, slots=True)
class KubeOptions:
    """`gang`: use gangs where offered (Auto), insist on them, or never. `asked`: the configuration names it, so a
    cluster without gangs is worth a warning. `mapping`: see `kube_objects`.
    """

    gang: str = AUTO
    mapping: str = AUTO
    asked: bool = False


class KubeBackend(Backend):
    name = NAME
    spreads = frozenset({"clique"})
    core_by_index = True
    frozen = frozenset({"Workload", "PodGroup", "CompositePodGroup"})
    said_once = (("spec", "podGroupTemplateRef"), ("spec", "workloadRef"))
    grace_s = 30.0
    """How long part of a gang may be bound without the rest before it is taken for a scheduler that ignores gangs."""

    def __init__(self, options: KubeOptions | None = None, offered: Capability | None = None) -> None:
        self.options, self.offered, self.discovered = (
            options or KubeOptions(),
            offered or Capability(),
            offered is not None,
        )

    @property
    def questions(self) -> Sequence[Question]:
        return () if self.options.gang == OFF else tuple(kube_api.questions())

    def learn(self, answers: Answers) -> None:
        self.offered, self.discovered = kube_api.capability(answers), True

    @property
    def gang_resources(self) -> Sequence[Resource]:
        version = self.offered.version
        if not version or self.options.gang == OFF:
            return ()
        if version == kube_api.V1ALPHA1:
            return (kube_api.workload(version),)
        tree = (kube_api.COMPOSITE,) if self.offered.tree else ()
        return (kube_api.workload(version), *tree, kube_api.pod_group(version))

    # The objects of a gang

    def mapping_for(self, pcs: PodCliqueSet) -> str:
        """The mapping for new gangs of a set; empty for none."""
        asked, offered = self.options.mapping, self.offered
        if self.options.gang == OFF or not offered.version:
            return ""
        if asked != AUTO:
            too_many = asked == PER_CLIQUE and offered.version == kube_api.V1ALPHA1
            return MERGED if too_many and kube_objects.largest_gang(pcs) > MAX_TEMPLATES else asked
        groups = kube_objects.largest_gang(pcs)
        if groups <= MAX_TEMPLATES and offered.tree:
            return TREE
        has_inner_topology = any(
            constraint.required and constraint.owner != "set" for constraint in constraints_of(pcs)
        )
        if has_inner_topology and not (offered.version == kube_api.V1ALPHA1 and groups > MAX_TEMPLATES):
            return PER_CLIQUE
        return MERGED if groups > 1 else PER_CLIQUE

    def recorded(self, gang: PodGang) -> tuple[str, str]:
        """Version and mapping of a gang's objects; empty for a gang without objects."""
        version, _, mapping = gang.metadata.annotations.get(labels.GANG_MAPPING, "").partition("/")
        return (version, mapping) if mapping else ("", "")

    def gang_annotations(self, pcs: PodCliqueSet, gang: PodGang | None, pods: Sequence[Pod]) -> Mapping[str, str]:
        if gang is not None:
            # What is recorded stays, and what was left out is not added later: pods could not join.
            return {labels.GANG_MAPPING: PARTED} if self._is_shrunk(pcs, gang) and _has_loner(gang, pods) else {}
        if pods and not any(_reference(pod) for pod in pods):
            return {labels.GANG_MAPPING: NO_MAPPING} if self._warns() else {}
        mapping = self.mapping_for(pcs)
        if mapping:
            return {labels.GANG_MAPPING: f"{self.offered.version}/{mapping}"}
        return {labels.GANG_MAPPING: NO_MAPPING} if self._warns() else {}

    def prepare_pod(self, pod: Json, site: PodSite) -> None:
        pod["spec"]["schedulerName"] = self.name
        if spread := _pod_spread(site):
            pod["spec"]["topologySpreadConstraints"] = [spread]
        for field in ("schedulingGroup", "workloadRef"):
            pod["spec"].pop(field, None)  # a user's own would put the pod into another gang
        version, mapping = self.recorded(site.gang) if site.gang is not None else self._new_mapping(site.pcs)
        if not mapping or version != self.offered.version:
            return
        if mapping == MERGED and not site.is_core:
            return
        if site.gang is not None and self._is_shrunk(site.pcs, site.gang) and _has_pods(site.gang, site.clique):
            return
        field = self.offered.pod_field
        pod["spec"][field] = kube_objects.pod_reference(version, mapping, site.gang_name, site.clique)

    def _is_shrunk(self, pcs: PodCliqueSet, gang: PodGang) -> bool:
        """True if the gang's only group is larger than the gang is now.

        Its pods would wait for pods that do not exist.
        """
        if len(gang.spec.podgroups) >= kube_objects.whole_size(pcs, gang):
            return False  # the cliques are back; the condition will say so
        objects_ready = find_condition(gang.status.conditions, conditions.SCHEDULER_OBJECTS_READY)
        return self.recorded(gang)[1] == MERGED and objects_ready is not None and objects_ready.reason == base.SHRUNK

    def asks_for_more(self, wanted: Json, live: Json) -> bool:
        return kube_objects.min_count(live) > kube_objects.min_count(wanted)

    def _new_mapping(self, pcs: PodCliqueSet) -> tuple[str, str]:
        """Version and mapping for the pods of a gang that is not there yet."""
        mapping = self.mapping_for(pcs)
        if not mapping and self.options.gang == REQUIRED:
            raise BackendError(_MISSING)
        return self.offered.version, mapping

    def gang_objects(self, gang: PodGang, pcs: PodCliqueSet, pods: Sequence[Pod]) -> GangObjects:
        version, mapping = self.recorded(gang)
        if not mapping:
            return self._without_objects(gang)
        if version != self.offered.version:
            if self.options.gang == OFF or not self.offered.version:
                return GangObjects(ready=False, reason=base.NOT_OFFERED, message=f"made as {version}; {_MISSING}")
            message = f"made as {version}, the server now has {self.offered.version}: recreate the set for a gang"
            return GangObjects(ready=False, reason=base.NOT_OFFERED, message=message)
        lost, dropped = kube_objects.unsupported_constraints(gang, mapping, self.offered)
        if lost:
            message = f"kube-scheduler cannot express this: {', '.join(lost)}"
            return GangObjects(ready=False, reason=base.NOT_REPRESENTABLE, message=message)
        objects = kube_objects.gang_objects(gang, pcs, mapping, self.offered)
        if dropped:
            return GangObjects(objects, reason=base.WRITTEN_IN_PART, message=f"ignored: {', '.join(dropped)}")
        return GangObjects(objects)

    def _without_objects(self, gang: PodGang) -> GangObjects:
        """For a gang without objects: the scheduler places its pods one by one."""
        if gang.metadata.annotations.get(labels.GANG_MAPPING) == PARTED:
            return GangObjects(reason=base.SHRUNK, message=_PARTED)
        if gang.metadata.annotations.get(labels.GANG_MAPPING) == NO_MAPPING:
            return GangObjects(ready=False, reason=base.NOT_OFFERED, message=f"{_MISSING}; pods are placed one by one")
        if ignored := [str(constraint) for constraint in gang_constraints(gang)]:
            message = f"pods are placed one by one; ignored: {', '.join(ignored)}"
            return GangObjects(ready=False, reason=base.WRITTEN_IN_PART, message=message)
        return NO_OBJECTS

    def may_ungate(self, pod: Pod, gang: PodGang) -> bool:
        version, mapping = self.recorded(gang)
        if not mapping or (version != self.offered.version and not _reference(pod)):
            return True
        if not is_true(gang.status.conditions, conditions.SCHEDULER_OBJECTS_READY):
            return False
        return bool(_reference(pod)) or is_true(gang.status.conditions, conditions.SCHEDULED)

    def doubt_s(self, gang: PodGang, pods: Sequence[Pod], now: datetime) -> float | None:
        """Seconds until a partly bound gang shows that the scheduler ignores groups. No API tells its feature gates.

        Pods that were there when the first of them was bound, and are still not, were not placed together. Younger
        ones replace pods that were lost, which is another matter.
        """
        if not self.recorded(gang)[1]:
            return None
        members = [pod for pod in pods if _reference(pod)]
        bound = [at for pod in members if pod.is_bound and (at := _scheduled_at(pod)) is not None]
        unbound = [at for pod in members if not pod.is_bound and (at := pod.metadata.creation_timestamp) is not None]
        needed = sum(group.min_replicas for group in gang.spec.podgroups)
        if not bound or not unbound or len(bound) >= needed or max(unbound) > min(bound):
            return None
        return max(0.0, self.grace_s - (now - min(bound)).total_seconds())

    # What cannot be said at all

    def validate(self, pcs: PodCliqueSet) -> Sequence[Refusal]:
        if self.options.gang == OFF:
            return ()
        mapping = self.mapping_for(pcs)
        if not mapping:
            return (Refusal("spec", _MISSING),) if self.discovered and self.options.gang == REQUIRED else ()
        single = kube_objects.largest_gang(pcs) == 1
        refusals: list[Refusal] = []
        for constraint in constraints_of(pcs):
            if not constraint.required or mapping == TREE:
                continue
            if not self.offered.topology:
                refusals.append(
                    Refusal(constraint.path, "this cluster's kube-scheduler takes no topology for groups of pods")
                )
            elif mapping == MERGED and constraint.owner != "set":
                refusals.append(
                    Refusal(constraint.path, "with gangMapping Merged only the whole set can have a topology")
                )
            elif mapping == PER_CLIQUE and not single and constraint.cliques > 1:
                message = "kube-scheduler cannot keep several cliques in one domain; constrain each clique or the set"
                refusals.append(Refusal(constraint.path, message))
        return tuple(refusals)

    def validate_change(self, pcs: PodCliqueSet, stored: PodCliqueSet) -> Sequence[Refusal]:
        """Minima, cliques and topology cannot change anyway; where groups carry a priority, that cannot either."""
        if not self.offered.preemption or not self.mapping_for(stored):
            return ()
        was, now = stored.spec.template.priority_class_name, pcs.spec.template.priority_class_name
        if was == now:
            return ()
        message = (
            f"kube-scheduler's groups of pods keep the priority they were made with ({was or 'none'}): "
            "delete the set and create it again"
        )
        return (Refusal("spec.template.priorityClassName", message),)

    def _warns(self) -> bool:
        return self.options.asked and self.options.gang == AUTO


_MISSING = (
    "this cluster does not offer gangs to its kube-scheduler (the Workload API of scheduling.k8s.io is not served)"
)


_PARTED = (
    "a clique was scaled to zero and a pod was lost: the group cannot be filled any more, and pods are placed one by "
    "one. Create the set again to have a gang"
)


def _has_pods(gang: PodGang, clique: str) -> bool:
    """True if a clique has pods in the gang. A clique that returns from 0 replicas has no pods at first."""
    return any(group.name == clique and group.pod_references for group in gang.spec.podgroups)


def _has_loner(gang: PodGang, pods: Sequence[Pod]) -> bool:
    """True if a pod that the gang needs has no reference to a PodGroup."""
    minima = {group.name: group.min_replicas for group in gang.spec.podgroups}
    for pod in pods:
        clique, index = pod.metadata.labels.get(labels.POD_CLIQUE, ""), pod.metadata.labels.get(labels.POD_INDEX, "")
        if _reference(pod) is None and (number := natural(index)) is not None and number < minima.get(clique, 0):
            return True
    return False


def _scheduled_at(pod: Pod) -> datetime | None:
    condition = find_condition(pod.status.conditions, "PodScheduled")
    return condition.last_transition_time if condition is not None and condition.status == "True" else None


def _reference(pod: Pod) -> Json | None:
    return pod.spec.scheduling_group or pod.spec.workload_ref


class _Options(Section):
    gang_scheduling: bool | None = None
    gang: Literal["Auto", "Required", "Off"] | None = None
    gang_mapping: Literal["Auto", "PerClique", "Merged"] = "Auto"


def build(options: Json, path: str) -> KubeBackend:
    if options.get("gang") is False:
        options = {**options, "gang": OFF}  # as YAML reads the word without quotes
    read = read_section(_Options, options, path)
    gang = read.gang or (OFF if read.gang_scheduling is False else AUTO)
    return KubeBackend(KubeOptions(gang, read.gang_mapping, asked=read.gang_scheduling is True or "gang" in options))


def _pod_spread(site: PodSite) -> Json | None:
    """The spread of a clique's pods, as kube-scheduler takes it; None without one, or without its level."""
    clique = site.pcs.spec.template.find_clique(site.clique_name)
    own = clique.spread_constraint if clique is not None else None
    key = site.binding.find_key(own.domain) if own is not None and site.binding is not None else None
    if own is None or not key:
        return None
    return {
        "topologyKey": key,
        "maxSkew": own.max_skew,
        "whenUnsatisfiable": own.when_unsatisfiable,
        "labelSelector": {"matchLabels": {labels.POD_CLIQUE: site.clique}},
        "nodeTaintsPolicy": "Honor",
    }
