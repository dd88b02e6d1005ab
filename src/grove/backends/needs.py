"""What has to be switched on in other schedulers, for what, and how to see it: the rows of `kubectl grove doctor`.

Pure: each scheduler names its questions, and makes needs of the answers. A need that cannot be read is unknown, and
comes with the same lines to add as one that is not met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from grove.api.core import ConfigMap, CustomResourceDefinition, Pod
from grove.api.meta import Json, Resource
from grove.backends import kai, koord, kube, kube_api, volcano
from grove.backends.base import Answers, Question
from grove.backends.koord_topology import DEFAULT, NETWORK_TOPOLOGY
from grove.backends.volcano_config import CONFIG_MAP, FILE, PLUGIN, config_question, has_plugin

DEPLOYMENT = Resource("apps", "v1", "Deployment", "deployments")
JOB_FLOW = Resource("flow.volcano.sh", "v1alpha1", "JobFlow", "jobflows")
SHARD = Resource("kai.scheduler", "v1", "SchedulingShard", "schedulingshards", namespaced=False)
QUEUE = Resource("scheduling.run.ai", "v2", "Queue", "queues", namespaced=False)
KOORD_SYSTEM = "koordinator-system"
CONTROL_PLANE = "kube-system"
TOPOLOGY_GATE = "TopologyAwareWorkloadScheduling"


class Need(NamedTuple):
    """One thing that a scheduler must have. `met` is None if it cannot be read; `lines` are to be added exactly so."""

    what: str
    met: bool | None
    without: str
    lines: str


@dataclass(frozen=True, slots=True)
class Use:
    """The use that sets make of a scheduler: options of its profile, queues, and if one of them requires a domain."""

    options: Mapping[str, Any]
    queues: frozenset[str] = frozenset()
    requires_domain: bool = False


def questions_for(scheduler: str, use: Use) -> Sequence[Question]:
    """The questions to the cluster about a scheduler; none if the scheduler needs no answers."""
    rules = _RULES.get(scheduler)
    return tuple(rules[0](use)) if rules is not None else ()


def needs_of(scheduler: str, use: Use, answers: Answers) -> list[Need]:
    """A question that was not answered, because of a missing right, is absent from `answers`."""
    rules = _RULES.get(scheduler)
    return list(rules[1](use, answers)) if rules is not None else []


# Volcano


def _volcano_questions(use: Use) -> Iterator[Question]:
    yield _crd_question(volcano.POD_GROUP)
    yield config_question(_volcano_config(use))
    yield Question("flows", "served", JOB_FLOW)
    yield Question("hypernodes", "served", volcano.HYPER_NODE)
    yield Question("tiers", "list", volcano.HYPER_NODE, only_if="hypernodes")


def _volcano_config(use: Use) -> str:
    return str(use.options.get("schedulerConfig") or CONFIG_MAP)


def _volcano_needs(use: Use, answers: Answers) -> Iterator[Need]:
    fields = _spec_fields(answers, volcano.POD_GROUP)
    version = None if fields is None else "subGroupPolicy" in fields
    yield Need("Volcano 1.14 or later", version, "sets for it are refused", "helm upgrade --install volcano …")
    place, tiers = _volcano_config(use), use.options.get("tiers") or {}
    where = f"kubectl -n {place.partition('/')[0]} edit configmap {place.rpartition('/')[2]}; in {FILE}, under plugins:"
    config = answers.get("config")
    gangs = has_plugin(config, "gang")
    yield Need("plugin gang", gangs, "pods are placed one by one", f"{where}\n- name: gang")
    if tiers or use.requires_domain:
        lost = "it ignores topology, and admission refuses sets that require a domain"
        yield Need(f"plugin {PLUGIN}", has_plugin(config), lost, f"{where}\n- name: {PLUGIN}")
    named = {str((node.get("spec") or {}).get("tierName") or "") for node in answers.get("tiers") or ()}
    for key, tier in sorted(tiers.items()):
        met = tier in named if "hypernodes" in answers else None
        yield Need(f"HyperNodes of the tier {tier}", met, f"gangs that require {key} wait", _hyper_node(key, tier))
    lost = "vc-controller-manager logs errors all the time; Grove does not use this kind"
    flag = "--controllers=*,-jobflow-controller,-jobtemplate-controller"
    lines = f"{flag} for vc-controller-manager, or Volcano's jobflow CRDs"
    yield Need("kind jobflows.flow.volcano.sh", _bool(answers, "flows"), lost, lines)


def _hyper_node(key: str, tier: str) -> str:
    return (
        f"apiVersion: {volcano.HYPER_NODE.api_version}\nkind: HyperNode\nmetadata: {{name: RACK}}\nspec:\n  tier: 1\n"
        f"  tierName: {tier}\n  members: [{{type: Node, selector: {{labelMatch: {{matchLabels: {{{key}: RACK}}}}}}}}]"
    )


# Koordinator


def _koord_questions(use: Use) -> Iterator[Question]:
    yield Question("podgroups", "served", koord.POD_GROUP)
    yield Question("config", "get", ConfigMap.RESOURCE, object_name="koord-scheduler-config", namespace=KOORD_SYSTEM)
    yield Question("deployment", "get", DEPLOYMENT, object_name="koord-scheduler", namespace=KOORD_SYSTEM)
    yield Question("topologies", "served", NETWORK_TOPOLOGY)
    yield Question("topology", "get", NETWORK_TOPOLOGY, object_name=DEFAULT, only_if="topologies")


def _koord_needs(use: Use, answers: Answers) -> Iterator[Need]:
    install = "helm upgrade --install koordinator …"
    served = _bool(answers, "podgroups")
    yield Need("PodGroup of scheduling.sigs.k8s.io", served, "sets for it are refused", install)
    config, where = (
        _koord_config(answers.get("config")),
        f"kubectl -n {KOORD_SYSTEM} edit configmap koord-scheduler-config",
    )
    reserving = None if config is None else "Reservation" in _enabled(config, "reserve")
    lines = f"{where}; in plugins of the profile:\nreserve:\n  enabled:\n  - name: Reservation"
    yield Need("plugin Reservation under reserve", reserving, "reservations are matched and not used up", lines)
    if not use.options.get("topologyLayers") and not use.requires_domain:
        return
    aware = None if config is None else _plugin_args(config, "Coscheduling").get("awareNetworkTopology") is True
    lines = f"{where}; in pluginConfig:\n- name: Coscheduling\n  args:\n    awareNetworkTopology: true"
    yield Need("awareNetworkTopology of Coscheduling", aware, "a gang with topology fails at its second pod", lines)
    flag = "--enable-network-topology-manager=true"
    managed = _has_flag(answers.get("deployment"), flag)
    lines = f"kubectl -n {KOORD_SYSTEM} edit deployment koord-scheduler; in args:\n- {flag}"
    yield Need(f"flag {flag}", managed, "it has no picture of the cluster", lines)
    there = answers.get("topology") is not None if "topologies" in answers else None
    lines = "a ClusterTopologyBinding, from which the operator makes it (docs/backends.md)"
    yield Need(f"ClusterNetworkTopology {DEFAULT}", there, "gangs with topology fail", lines)


def _koord_config(config_map: Any) -> Json | None:
    """The scheduler's configuration, under whatever key of the ConfigMap it is."""
    for text in ((config_map or {}).get("data") or {}).values():
        try:
            config = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
        if isinstance(config, dict) and config.get("kind") == "KubeSchedulerConfiguration":
            return config
    return None


def _profiles(config: Json) -> Iterator[Json]:
    yield from (
        profile for profile in config.get("profiles") or () if profile.get("schedulerName", koord.NAME) == koord.NAME
    )


def _enabled(config: Json, point: str) -> set[str]:
    of_profiles = (
        ((profile.get("plugins") or {}).get(point) or {}).get("enabled") or () for profile in _profiles(config)
    )
    return {str(plugin.get("name")) for enabled in of_profiles for plugin in enabled}


def _plugin_args(config: Json, plugin: str) -> Json:
    for profile in _profiles(config):
        for entry in profile.get("pluginConfig") or ():
            if entry.get("name") == plugin:
                return dict(entry.get("args") or {})
    return {}


def _has_flag(workload: Any, flag: str) -> bool | None:
    containers = ((((workload or {}).get("spec") or {}).get("template") or {}).get("spec") or {}).get("containers")
    return flag in _words(containers) if containers else None


def _words(containers: Iterable[Json]) -> list[str]:
    return [
        word for container in containers for word in (*(container.get("command") or ()), *(container.get("args") or ()))
    ]


# KAI


def _kai_questions(use: Use) -> Iterator[Question]:
    yield _crd_question(kai.POD_GROUP)
    yield Question("queue kind", "served", QUEUE)
    yield Question("queues", "list", QUEUE, only_if="queue kind")
    yield Question("shard kind", "served", SHARD)
    yield Question("shards", "list", SHARD, only_if="shard kind")


def _kai_needs(use: Use, answers: Answers) -> Iterator[Need]:
    fields = _spec_fields(answers, kai.POD_GROUP)
    installed = None if fields is None else bool(fields)
    yield Need("KAI's PodGroup", installed, "sets for it are refused", "helm upgrade --install kai-scheduler …")
    owned = (
        None if fields is None else "minSubGroup" in fields.get("subGroups", {}).get("items", {}).get("properties", {})
    )
    lost = "gangs are left to podgrouper, which refuses a minimum of 0 pods"
    yield Need("KAI 0.15 or later", owned, lost, "helm upgrade kai-scheduler …")
    there = answers.get("queues")
    parents = {str((queue.get("spec") or {}).get("parentQueue") or "") for queue in there or ()}
    names = {queue["metadata"]["name"] for queue in there or ()}
    for queue in sorted(use.queues):
        what, lost = f"Queue {queue}, without queues below it", "the gangs in it are never tried"
        met = None if there is None else queue in names and queue not in parents
        yield Need(
            what, met, lost, f"apiVersion: {QUEUE.api_version}\nkind: Queue\nmetadata: {{name: {queue}}}\nspec: {_FREE}"
        )
    if answers.get("shard kind") and "shards" in answers:
        lines = f"apiVersion: {SHARD.api_version}\nkind: SchedulingShard\nmetadata: {{name: default}}\nspec: {{}}"
        yield Need("a SchedulingShard", bool(answers["shards"]), "no scheduler of KAI runs", lines)
        values = [str((shard.get("spec") or {}).get("partitionLabelValue") or "") for shard in answers["shards"]]
        if values and all(values):
            lost = "pods without the label of a shard belong to no scheduler"
            lines = f"kai.scheduler/node-pool: {values[0]}, in the labels of the set"
            yield Need("a SchedulingShard for all nodes, or sets with the label of one", None, lost, lines)


_UNLIMITED = "{quota: -1, limit: -1, overQuotaWeight: 1}"
_FREE = f"{{resources: {{cpu: {_UNLIMITED}, memory: {_UNLIMITED}, gpu: {_UNLIMITED}}}}}"


# kube-scheduler


def _kube_questions(use: Use) -> Iterator[Question]:
    for version in kube_api.VERSIONS:
        yield Question(f"{version} workloads", "served", kube_api.workload(version))
    yield Question("control plane", "list", Pod.RESOURCE, namespace=CONTROL_PLANE)


def _kube_needs(use: Use, answers: Answers) -> Iterator[Need]:
    if use.options.get("gangScheduling") is False or use.options.get("gang") == kube.OFF:
        return
    versions = [version for version in kube_api.VERSIONS if answers.get(f"{version} workloads")]
    lost = "gangs are gated and then placed pod by pod"
    lines = f"--runtime-config={kube_api.GROUP}/{kube_api.V1ALPHA2}=true for kube-apiserver (1.35: {kube_api.V1ALPHA1})"
    yield Need(f"the Workload API ({kube_api.GROUP})", bool(versions), lost, lines)
    wanted = {"kube-apiserver": _GATES, "kube-scheduler": _GATES, "kube-controller-manager": _GATES[:1]}
    if use.requires_domain:
        wanted |= {name: (*gates, TOPOLOGY_GATE) for name, gates in wanted.items() if name != "kube-controller-manager"}
    for name, gates in wanted.items():
        gate_words = _control_plane_words(answers.get("control plane"), name)
        met = None if gate_words is None else all(_is_on(gate_words, gate) for gate in gates)
        lines = f"--feature-gates={','.join(f'{gate}=true' for gate in gates)} for {name}"
        lost = "PodGroups are never finally deleted" if name == "kube-controller-manager" else lost
        yield Need(f"feature gates {', '.join(gates)} of {name}", met, lost, lines)


_GATES: tuple[str, ...] = ("GenericWorkload", "GangScheduling")


def _control_plane_words(pods: Any, component: str) -> list[str] | None:
    """The command line of a part of the control plane that runs as a pod; None if there is none to be seen."""
    for pod in pods or ():
        if ((pod.get("metadata") or {}).get("labels") or {}).get("component") == component:
            return _words((pod.get("spec") or {}).get("containers") or ())
    return None


def _is_on(words: Iterable[str], gate: str) -> bool:
    given = [word.partition("=")[2] for word in words if word.startswith("--feature-gates=")]
    gates = dict(pair.partition("=")[::2] for gate_list in given for pair in gate_list.split(","))
    return gates.get(gate) == "true"


# What several ask


def _crd_question(resource: Resource) -> Question:
    name = f"{resource.plural}.{resource.group}"
    return Question("crd", "get", CustomResourceDefinition.RESOURCE, object_name=name)


def _spec_fields(answers: Answers, resource: Resource) -> Json | None:
    """The fields of the kind's `spec`; none if it is not installed, None if that cannot be read."""
    return volcano.spec_fields(answers["crd"], resource.version) if "crd" in answers else None


def _bool(answers: Answers, name: str) -> bool | None:
    return bool(answers[name]) if name in answers else None


_Rule = tuple[Callable[[Use], Iterable[Question]], Callable[[Use, Answers], Iterable[Need]]]
_RULES: Mapping[str, _Rule] = {
    volcano.NAME: (_volcano_questions, _volcano_needs),
    koord.NAME: (_koord_questions, _koord_needs),
    kai.NAME: (_kai_questions, _kai_needs),
    kube.NAME: (_kube_questions, _kube_needs),
}
