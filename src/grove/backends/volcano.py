"""volcano (1.14 and later): a PodGang as a PodGroup with a subgroup policy for each clique.

Volcano has two levels of topology, that of the PodGroup and that of a subgroup, given as tiers of HyperNodes. It
cannot express a level that several cliques share inside a gang, so admission refuses such a set. The profile says
which tier stands for which node label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grove.api import conditions, labels
from grove.api.core import CustomResourceDefinition, Pod
from grove.api.meta import Json, Resource, is_true
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import GangTopologyConstraint, PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.backends import base
from grove.backends.base import Answers, Backend, GangObjects, PodSite, Question, Refusal, TopologyBackend, TopologySync
from grove.backends.constraints import constraints_of, gang_constraints
from grove.backends.kube_objects import object_meta
from grove.backends.queues import QueueRule
from grove.backends.volcano_config import CONFIG_MAP, PLUGIN, config_question, has_plugin, switch_on
from grove.config import ConfigError, ConfigFault, Section, Strings, read_section

NAME = labels.VOLCANO_SCHEDULER
POD_GROUP = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
HYPER_NODE = Resource("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes", namespaced=False)
QUEUE = QueueRule(NAME, labels.VOLCANO_QUEUE, ("annotations",), default="default")
_CRD = f"{POD_GROUP.plural}.{POD_GROUP.group}"
_TIERS = Question("tiers", "list", HYPER_NODE, only_if="hypernodes")


class VolcanoBackend(Backend):
    name = NAME
    queue = QUEUE
    event_reasons = {base.NOT_INSTALLED: conditions.EventReason.VOLCANO_CAPABILITY_UNAVAILABLE}

    def __init__(
        self, tiers: Mapping[str, str] | None = None, *, capable: bool = False, known: frozenset[str] = frozenset()
    ) -> None:
        self.tiers = dict(tiers or {})
        """HyperNode tier names by node label key."""
        self.capable, self.known_tiers, self.discovered = capable, known, capable
        self.depths: dict[str, int] = {}
        """How far from the nodes a tier is, by its name."""
        self.config = CONFIG_MAP
        """Namespace and name of the ConfigMap with vc-scheduler's configuration."""
        self.served = False
        """Whether the cluster has HyperNodes."""
        self.has_plugin: bool | None = None
        """Whether vc-scheduler looks at topology; None if that cannot be known."""

    @property
    def gang_resources(self) -> Sequence[Resource]:
        return (POD_GROUP,) if self.capable else ()

    @property
    def questions(self) -> Sequence[Question]:
        crd = Question("crd", "get", CustomResourceDefinition.RESOURCE, object_name=_CRD)
        if not self.tiers:
            return (crd,)
        served = Question("hypernodes", "served", HYPER_NODE)
        return (crd, served, _TIERS, config_question(self.config))

    @property
    def awaited(self) -> Sequence[Question]:
        """HyperNodes while a tier of the profile has none, and vc-scheduler's configuration while its plugin is off."""
        if not self.tiers or not self.discovered:
            return ()
        missing = (_TIERS,) if self.served and not set(self.tiers.values()) <= self.known_tiers else ()
        return missing if self.has_plugin is not False else (*missing, config_question(self.config))

    def learn(self, answers: Answers) -> None:
        self.discovered = True
        self.capable = "subGroupPolicy" in spec_fields(answers.get("crd"), POD_GROUP.version)
        nodes = answers.get("tiers") or ()
        named = [node["spec"] for node in nodes if node["spec"].get("tierName")]
        self.depths = {str(tier["tierName"]): int(tier.get("tier") or 0) for tier in named}
        self.known_tiers = frozenset(self.depths)
        self.served = bool(answers.get("hypernodes"))
        self.has_plugin = has_plugin(answers.get("config"))

    def validate(self, pcs: PodCliqueSet) -> Sequence[Refusal]:
        refusals: list[Refusal] = []
        if self.discovered and not self.capable:
            message = "Volcano 1.14 or later is not installed: its PodGroup has no subGroupPolicy"
            refusals.append(Refusal("spec", message))
        for constraint in constraints_of(pcs):
            if not self.tiers:
                refusals.append(
                    Refusal(constraint.path, "no tiers are configured for volcano, so it cannot use any topology")
                )
            elif constraint.owner == "group" and constraint.cliques > 1:
                message = (
                    "Volcano cannot keep several cliques of a gang in one domain: constrain the set or each clique"
                )
                refusals.append(Refusal(constraint.path, message))
            elif constraint.required and constraint.preferred:
                refusals.append(Refusal(constraint.path, "Volcano takes a required or a preferred level, not both"))
            elif constraint.required and self.has_plugin is False:
                refusals.append(Refusal(constraint.path, self._ignored()))
        return tuple(refusals)

    def prepare_pod(self, pod: Json, site: PodSite) -> None:
        super().prepare_pod(pod, site)
        annotations: Json = pod["metadata"].setdefault("annotations", {})
        annotations[labels.VOLCANO_GROUP_NAME] = annotations[labels.KUBE_GROUP_NAME] = site.gang_name

    def gang_objects(self, gang: PodGang, pcs: PodCliqueSet, pods: Sequence[Pod]) -> GangObjects:
        if not self.capable:
            return GangObjects(ready=False, reason=base.NOT_INSTALLED, message="Volcano 1.14 or later is not installed")
        if lost := self._unsupported_constraints(gang):
            message = f"Volcano cannot express this: {', '.join(lost)}"
            return GangObjects(ready=False, reason=base.NOT_REPRESENTABLE, message=message)
        objects = (pod_group(gang, QUEUE.queues(pcs)[0], self.tiers),)
        asked = list(gang_constraints(gang))
        if asked and self.has_plugin is False:
            # The constraint is written all the same: vc-scheduler applies it as soon as the plugin is on.
            required = [constraint for constraint in asked if constraint.required]
            placed = is_true(gang.status.conditions, conditions.SCHEDULED)
            message = f"{'; '.join(map(str, required or asked))}: {self._ignored()}"
            reason = base.WRITTEN_IN_PART if placed or not required else base.NOT_REPRESENTABLE
            return GangObjects(objects, placed or not required, reason, message)
        # One of the two can be said, and the binding one is.
        dropped = [
            f"preferred {constraint.preferred} of {constraint.name}"
            for constraint in asked
            if constraint.required and constraint.preferred
        ]
        if dropped:
            return GangObjects(objects, reason=base.WRITTEN_IN_PART, message=f"ignored: {', '.join(dropped)}")
        return GangObjects(objects)

    def _ignored(self) -> str:
        return f"Volcano ignores topology here, because its plugin {PLUGIN} is off; {switch_on(self.config)}"

    def may_ungate(self, pod: Pod, gang: PodGang) -> bool:
        return is_true(gang.status.conditions, conditions.SCHEDULER_OBJECTS_READY)

    def _unsupported_constraints(self, gang: PodGang) -> list[str]:
        lost = []
        for constraint in gang_constraints(gang):
            tier = self.tiers.get(constraint.required, "")
            if constraint.owner == "group" and len(constraint.members) > 1:
                lost.append(str(constraint))
            elif constraint.required and tier not in self.known_tiers:
                # Volcano skips a tier it does not know without a word, and would place the gang anywhere.
                lost.append(f"{constraint} (no HyperNode has the tier {tier or 'for ' + constraint.required!r})")
        return lost


class TieredVolcanoBackend(VolcanoBackend, TopologyBackend):
    """With topology: reports whether HyperNodes have the tiers of a binding's levels, in the same order.

    An administrator makes the HyperNodes, or Volcano discovers them.
    """

    def topology_name(self, binding: ClusterTopologyBinding) -> str:
        return HYPER_NODE.plural

    def topology_drift(self, binding: ClusterTopologyBinding, reference: str, observed: Json | None) -> TopologySync:
        tiers = [self.tiers[level.key] for level in binding.spec.levels if level.key in self.tiers]
        if missing := [tier for tier in tiers if tier not in self.known_tiers]:
            return TopologySync(False, f"no HyperNode has the tier {', '.join(missing)}")
        depths = [self.depths.get(tier, 0) for tier in tiers]
        if depths != sorted(depths, reverse=True):
            shown = ", ".join(f"{tier} ({depth})" for tier, depth in zip(tiers, depths, strict=True))
            return TopologySync(False, f"tiers do not go from broad to narrow as the levels do: {shown}")
        return TopologySync(True)


def pod_group(gang: PodGang, queue: str, tiers: Mapping[str, str]) -> Json:
    spec: Json = {"minMember": max(1, sum(group.min_replicas for group in gang.spec.podgroups)), "queue": queue}
    if gang.spec.priority_class_name:
        spec["priorityClassName"] = gang.spec.priority_class_name
    if topology := _network(gang.spec.topology_constraint, tiers):
        spec["networkTopology"] = topology
    alone = {
        config.pod_group_names[0]: config.topology_constraint
        for config in gang.spec.topology_constraint_group_configs
        if len(config.pod_group_names) == 1
    }
    policies: list[Json] = []
    for group in gang.spec.podgroups:
        if not group.min_replicas:
            continue  # a subgroup has one pod at least; pods of this clique are members of the gang alone
        policy: Json = {
            "name": group.name,
            "labelSelector": {"matchLabels": {labels.POD_CLIQUE: group.name}},
            "matchLabelKeys": [labels.POD_CLIQUE],
            "subGroupSize": group.min_replicas,
            "minSubGroups": 1,
        }
        # After a restart vc-scheduler finds the place of a gang only by subgroups that have a topology of their own. So
        # the subgroup of a clique without one repeats the gang's.
        own = group.topology_constraint or alone.get(group.name)
        if topology := _network(own, tiers) or _network(gang.spec.topology_constraint, tiers):
            policy["networkTopology"] = topology
        policies.append(policy)
    spec["subGroupPolicy"] = policies
    meta = object_meta(gang, gang.metadata.name)
    meta["labels"] = {**gang.metadata.labels, **meta["labels"]}
    return POD_GROUP.manifest(meta, spec=spec)


def spec_fields(crd: Any, version: str) -> Json:
    """The fields of `spec` that a definition has in a version; none if it is not served."""
    for version_schema in ((crd or {}).get("spec") or {}).get("versions") or ():
        if version_schema.get("name") == version and version_schema.get("served", True):
            schema = (version_schema.get("schema") or {}).get("openAPIV3Schema") or {}
            return dict(((schema.get("properties") or {}).get("spec") or {}).get("properties") or {})
    return {}


def _network(constraint: GangTopologyConstraint | None, tiers: Mapping[str, str]) -> Json | None:
    if constraint is None:
        return None
    if constraint.required:
        return {"mode": "hard", "highestTierName": tiers[constraint.required]}
    return {"mode": "soft"} if constraint.preferred else None


class _Options(Section):
    tiers: Strings = {}
    scheduler_config: str = CONFIG_MAP


def build(options: Json, path: str) -> VolcanoBackend:
    section = read_section(_Options, options, path)
    if not all(section.scheduler_config.partition("/")[::2]):
        fault = ConfigFault(f"{path}.schedulerConfig", "must be the namespace and name of a ConfigMap: namespace/name")
        raise ConfigError([fault])
    made = TieredVolcanoBackend(section.tiers) if section.tiers else VolcanoBackend()
    made.config = section.scheduler_config
    return made
