"""koord-scheduler (Koordinator): a PodGang as a gang group, one PodGroup a clique, all of which must be met together.

The order of writes matters. The scheduler counts gated pods and may try to bind them. So the backend creates the
PodGroups last, when every pod of the minimum has lost its gate. Until then the scheduler has no gang and holds the
pods. Pods carry their label from creation, because the scheduler ignores a label that comes later.

Surplus pods have no label and lose their gate when the minimum is bound. As members of the gang, the scheduler would
try them while they are gated, and one that does not fit would undo the gang.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from grove.api import conditions, labels
from grove.api.core import Pod
from grove.api.koordinator import POD_GROUP as GANG
from grove.api.koordinator import QUOTA, RESERVATION_AFFINITY, RESERVATION_REF
from grove.api.meta import Json, Resource, is_true
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang, PodGroup
from grove.api.podrequest import pod_request
from grove.api.reservation_ref import reservation_affinity
from grove.api.topology import ClusterTopologyBinding
from grove.backends import base, koord_annotations
from grove.backends.base import Answers, Backend, GangObjects, PodSite, Question, Refusal, TopologyBackend, TopologySync
from grove.backends.constraints import constraints_of, gang_constraints
from grove.backends.koord_annotations import TIMEOUT, ZONE
from grove.backends.koord_topology import DEFAULT, NETWORK_TOPOLOGY, network_drift, network_topology
from grove.backends.kube_objects import LABEL_LENGTH, object_meta, shortened
from grove.backends.queues import QueueRule
from grove.backends.uniform import mixed_labels, qos_faults
from grove.config import Section, Strings, read_section

NAME = labels.KOORDINATOR_SCHEDULER
ALIASES = frozenset({"koordinator-scheduler"})
POD_GROUP = Resource("scheduling.sigs.k8s.io", "v1alpha1", "PodGroup", "podgroups")

_PREFIX = "gang.scheduling.koordinator.sh/"
GROUPS, TOTAL, MODE, MATCH = (f"{_PREFIX}{name}" for name in ("groups", "total-number", "mode", "match-policy"))
TOPOLOGY_SPEC, TOPOLOGY_INDEX = f"{_PREFIX}network-topology-spec", f"{_PREFIX}network-topology-index"
QUESTIONED = "scheduling.koordinator.sh/questioned-object-key"
UNEQUAL = (
    "koord-scheduler 1.8 places gangs with topology in part, across domains, or crashes if the pods of their "
    "minimum have different requests. Give all cliques the same requests, or remove the constraint"
)


@dataclass(frozen=True, slots=True)
class KoordOptions:
    """`layers`: Koordinator's topology layers by node label key; without them no topology can be said.

    `group_first` makes PodGroups before pods are let go, as other integrations do; it leaves a race.
    """

    layers: Mapping[str, str] = field(default_factory=dict)
    group_first: bool = False
    strict: bool = True


class KoordBackend(Backend):
    name = NAME
    queue = QueueRule(NAME, QUOTA, ("labels",))
    aliases = ALIASES
    core_by_index = True
    tries_once = True
    fixed = (("metadata", "annotations", GROUPS),)

    def __init__(self, options: KoordOptions | None = None, *, installed: bool = False) -> None:
        self.options, self.installed, self.discovered = options or KoordOptions(), installed, installed

    @property
    def gang_resources(self) -> Sequence[Resource]:
        return (POD_GROUP,) if self.installed else ()

    @property
    def questions(self) -> Sequence[Question]:
        return (Question("podgroups", "served", POD_GROUP),)

    def learn(self, answers: Answers) -> None:
        self.installed, self.discovered = bool(answers.get("podgroups")), True

    # Admission

    def validate(self, pcs: PodCliqueSet) -> Sequence[Refusal]:
        refusals: list[Refusal] = []
        if self.discovered and not self.installed:
            refusals.append(
                Refusal("spec", "Koordinator is not installed: there is no PodGroup of scheduling.sigs.k8s.io")
            )
        for name, message in koord_annotations.faults(pcs.metadata.annotations):
            refusals.append(Refusal(f"metadata.annotations[{name}]", message))
        refusals += self._uniform(pcs)
        refusals += _compute_domains(pcs)
        for constraint in constraints_of(pcs):
            if not self.options.layers:
                message = "no layers are configured for koord-scheduler, so it cannot use any topology"
                refusals.append(Refusal(constraint.path, message))
            elif constraint.owner != "set" and self.options.strict:
                refusals.append(
                    Refusal(constraint.path, "Koordinator applies one topology to a whole gang: constrain the set")
                )
            elif unequal := unequal_cliques(pcs):
                refusals.append(Refusal(constraint.path, f"{UNEQUAL}: {unequal}"))
        return tuple(refusals)

    def _uniform(self, pcs: PodCliqueSet) -> Iterable[Refusal]:
        cliques = pcs.spec.template.cliques
        yield from (Refusal(*fault) for fault in (*mixed_labels(pcs, (QUOTA,)), *qos_faults(pcs)))
        for field_ in ("priorityClassName", "preemptionPolicy"):
            default = pcs.spec.template.priority_class_name if field_ == "priorityClassName" else ""
            values = sorted({clique.spec.pod_spec.get(field_) or default for clique in cliques})
            if len(values) > 1:
                shown = ", ".join(value or "none" for value in values)
                yield Refusal(
                    "spec.template.cliques.spec.podSpec", f"{field_} must be the same in a whole gang: {shown}"
                )

    # Pods

    def prepare_pod(self, pod: Json, site: PodSite) -> None:
        super().prepare_pod(pod, site)
        namespace = pod["metadata"]["namespace"]
        own: Json = pod["metadata"].setdefault("labels", {})
        annotations: Json = pod["metadata"].setdefault("annotations", {})
        if site.is_core:
            own[GANG] = group_name(site.gang_name, site.clique)
        own[QUESTIONED] = sha256(f"{namespace}/{site.gang_name}".encode()).hexdigest()[:16]
        annotations[TOPOLOGY_INDEX] = str(gang_index(site))
        owner_annotations = site.gang.metadata.annotations if site.gang is not None else site.pcs.metadata.annotations
        if reference := owner_annotations.get(RESERVATION_REF):
            annotations[RESERVATION_AFFINITY] = _json(reservation_affinity(reference))
        if wanted := owner_annotations.get(ZONE):
            keys = {layer: label for label, layer in self.options.layers.items()}
            terms = koord_annotations.zone_preferences(koord_annotations.zones(wanted), keys)
            _prefer(pod["spec"], terms)

    def may_ungate(self, pod: Pod, gang: PodGang) -> bool:
        if self.options.group_first and not is_true(gang.status.conditions, conditions.SCHEDULER_OBJECTS_READY):
            return False
        # The core pods are released first. The gang's objects come next, and surplus pods last.
        return is_core(pod, gang) or is_true(gang.status.conditions, conditions.SCHEDULED)

    def node_labels_to_keep(self, gang: PodGang, stands_on: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
        """The domain most core pods stand in: the scheduler gathers a gang once and places later pods freely."""
        level = _gang_key(gang)
        counter = Counter(node[level] for node in stands_on if level in node)
        if not level or level not in self.options.layers or not counter:
            return {}
        return {level: min(counter, key=lambda domain: (-counter[domain], domain))}

    def late_pods(self, gang: PodGang, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Members of a gang with topology that joined it later: its plugin Coscheduling registers no events."""
        core = [pod for pod in pods if is_core(pod, gang)]
        if _gang_key(gang) not in self.options.layers or not any(pod.is_bound for pod in core):
            return ()
        return [pod for pod in core if not pod.is_bound and not pod.is_gated]

    # Gangs

    def gang_objects(self, gang: PodGang, pcs: PodCliqueSet, pods: Sequence[Pod]) -> GangObjects:
        if not self.installed:
            return GangObjects(
                ready=False, reason=base.NOT_INSTALLED, message="Koordinator's PodGroup is not served here"
            )
        if gang.spec.topology_constraint is not None and (unequal := unequal_cliques(pcs)):
            return GangObjects(ready=False, reason=base.NOT_REPRESENTABLE, message=f"{UNEQUAL}: {unequal}")
        lost, dropped = self._unsupported_constraints(gang)
        if lost:
            message = f"Koordinator cannot express this: {', '.join(lost)}"
            return GangObjects(ready=False, reason=base.NOT_REPRESENTABLE, message=message)
        objects = pod_groups(gang, self.options.layers)
        if not self.options.group_first and not _core_released(gang, pods):
            return GangObjects(objects, False, base.PODS_HELD, "made when all core pods may be scheduled", create=False)
        if dropped:
            return GangObjects(objects, reason=base.WRITTEN_IN_PART, message=f"ignored: {', '.join(dropped)}")
        return GangObjects(objects)

    def _unsupported_constraints(self, gang: PodGang) -> tuple[list[str], list[str]]:
        layers, lost, dropped = self.options.layers, [], []
        keys = {constraint.required for constraint in gang_constraints(gang) if constraint.required}
        for constraint in gang_constraints(gang):
            is_said = constraint.owner == "gang" or (len(keys) == 1 and _gang_key(gang) in keys)
            if constraint.required and (constraint.required not in layers or (not is_said and self.options.strict)):
                lost.append(str(constraint))
            elif not is_said or (constraint.preferred and constraint.preferred not in layers):
                dropped.append(str(constraint))
        return lost, dropped


def unequal_cliques(pcs: PodCliqueSet) -> str:
    """Which cliques with core pods ask for different amounts, in words; empty when all pods are alike."""
    asked: dict[str, list[str]] = {}
    for clique in pcs.spec.template.cliques:
        if clique.spec.min_available != 0:
            asked.setdefault(_json(sorted(pod_request(clique.spec.pod_spec).items())), []).append(clique.name)
    return " against ".join(", ".join(names) for names in asked.values()) if len(asked) > 1 else ""


def _compute_domains(pcs: PodCliqueSet) -> Iterable[Refusal]:
    """Koordinator places devices itself and does not know claims on NVLink domains."""
    template = pcs.spec.template
    places = [("metadata", pcs.metadata.annotations)]
    places += [(f"spec.template.cliques[{at}]", clique.annotations) for at, clique in enumerate(template.cliques)]
    groups = enumerate(template.pod_clique_scaling_groups)
    places += [(f"spec.template.podCliqueScalingGroups[{at}]", config.annotations) for at, config in groups]
    for path, values in places:
        if values.get(labels.MNNVL_GROUP, labels.MNNVL_NONE) != labels.MNNVL_NONE:
            message = "Koordinator does not place multi-node NVLink domains"
            yield Refusal(f"{path}.annotations[{labels.MNNVL_GROUP}]", message)


class LayeredKoordBackend(KoordBackend, TopologyBackend):
    """With topology: layers are configured, so the scheduler's picture of the cluster is kept like the binding."""

    topology_resource = NETWORK_TOPOLOGY

    @property
    def questions(self) -> Sequence[Question]:
        return (*super().questions, Question("topologies", "served", NETWORK_TOPOLOGY))

    def learn(self, answers: Answers) -> None:
        super().learn(answers)
        self.topology_served = bool(answers.get("topologies"))

    def topology_name(self, binding: ClusterTopologyBinding) -> str:
        return DEFAULT

    def wanted_topology(self, binding: ClusterTopologyBinding) -> Json | None:
        return network_topology(binding, self.options.layers)

    def topology_drift(self, binding: ClusterTopologyBinding, reference: str, observed: Json | None) -> TopologySync:
        return network_drift(binding, self.options.layers, reference, observed)


def group_name(gang: str, clique: str) -> str:
    """Also the value of a label, which takes 63 characters."""
    return shortened(f"{gang}-{clique}", LABEL_LENGTH)


def gang_index(site: PodSite) -> int:
    """Where a core pod stands in its gang: by replica of its group, then clique as the set lists them, then index."""
    template, name = site.pcs.spec.template, site.pcs.metadata.name
    widest = max((clique.spec.min_available or clique.spec.replicas for clique in template.cliques), default=1)
    groups = {member: group.name for group in template.pod_clique_scaling_groups for member in group.clique_names}
    for position, clique in enumerate(template.cliques):
        middle = rf"{re.escape(groups[clique.name])}-(?P<replica>\d+)-" if clique.name in groups else ""
        match = re.fullmatch(rf"{re.escape(name)}-\d+-{middle}{re.escape(clique.name)}", site.clique)
        if match:
            replica = int(match.groupdict().get("replica", 0))
            return (replica * len(template.cliques) + position) * max(1, widest) + site.index
    return site.index


def pod_groups(gang: PodGang, layers: Mapping[str, str]) -> list[Json]:
    """All PodGroups of a gang. Each names all of them, and carries the same topology: the scheduler reads any one."""
    namespace, name = gang.metadata.namespace, gang.metadata.name
    groups = [group for group in gang.spec.podgroups if group.min_replicas]  # the others have no core pods
    together = sorted(f"{namespace}/{group_name(name, group.name)}" for group in groups)
    annotations = {MODE: "Strict", MATCH: "waiting-and-running", GROUPS: _json(together)}
    if topology := _topology(gang, layers):
        annotations[TOPOLOGY_SPEC] = topology
    timeout = gang.metadata.annotations.get(TIMEOUT)
    return [_pod_group(gang, group, annotations, timeout) for group in groups]


def _pod_group(gang: PodGang, group: PodGroup, annotations: Mapping[str, str], timeout: str | None) -> Json:
    meta = object_meta(gang, group_name(gang.metadata.name, group.name))
    meta["annotations"] = {**annotations, TOTAL: str(group.min_replicas)}
    spec: Json = {"minMember": group.min_replicas}
    if timeout:
        spec["scheduleTimeoutSeconds"] = koord_annotations.timeout_s(timeout)
    return POD_GROUP.manifest(meta, spec=spec)


def _topology(gang: PodGang, layers: Mapping[str, str]) -> str:
    """The gang's levels as gather strategies; what Koordinator has no layer for is left out."""
    constraint = gang.spec.topology_constraint
    required = constraint.required if constraint is not None else ""
    preferred = constraint.preferred if constraint is not None else ""
    asked = ((required, "MustGather"), (preferred, "PreferGather"))
    strategies = [{"layer": layers[key], "strategy": how} for key, how in asked if key in layers]
    return _json({"gatherStrategy": strategies}) if strategies else ""


def is_core(pod: Pod, gang: PodGang) -> bool:
    """True if the gang needs this pod. The index in its clique decides."""
    clique = pod.metadata.labels.get(labels.POD_CLIQUE)
    group = next((podgroup for podgroup in gang.spec.podgroups if podgroup.name == clique), None)
    index = pod.metadata.labels.get(labels.POD_INDEX, "")
    return group is not None and index.isdigit() and int(index) < group.min_replicas


def _core_released(gang: PodGang, pods: Sequence[Pod]) -> bool:
    core = [pod for pod in pods if is_core(pod, gang)]
    needed = sum(group.min_replicas for group in gang.spec.podgroups)
    return len(core) >= needed and not any(pod.is_gated for pod in core)


def _gang_key(gang: PodGang) -> str:
    constraint = gang.spec.topology_constraint
    return constraint.required if constraint is not None else ""


def _prefer(spec: Json, terms: Sequence[Json]) -> None:
    if not terms:
        return
    affinity = dict(spec.get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    where = "preferredDuringSchedulingIgnoredDuringExecution"
    node[where] = [*(node.get(where) or ()), *terms]
    spec["affinity"] = {**affinity, "nodeAffinity": node}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


class _Options(Section):
    topology_layers: Strings = {}
    pod_group_first: bool = False
    strict_topology: bool = True


def build(options: Json, path: str) -> KoordBackend:
    read = read_section(_Options, options, path)
    koord_options = KoordOptions(read.topology_layers, read.pod_group_first, read.strict_topology)
    return LayeredKoordBackend(koord_options) if read.topology_layers else KoordBackend(koord_options)
