"""What the operator has to be allowed for each scheduler, beside Grove's own objects and pods: the chart gives it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grove.api.core import ConfigMap, CustomResourceDefinition
from grove.api.koordinator import ElasticQuota, Reservation
from grove.api.meta import Json, Resource
from grove.backends import grove, kai, koord, kube, kube_api, volcano
from grove.backends.koord_topology import NETWORK_TOPOLOGY
from grove.backends.volcano_config import CONFIG_MAP

KEEP = ("get", "list", "watch", "create", "patch", "delete")


def keeps(resource: Resource, *, never: str = "") -> Json:
    """For objects that Grove makes; `never` is a verb that is not needed for them."""
    return rule(resource.group, (resource.plural,), (verb for verb in KEEP if verb != never))


def lists(resource: Resource) -> Json:
    """For objects that are looked at now and then, all at once."""
    return rule(resource.group, (resource.plural,), ("list",))


def rule(group: str, resources: Iterable[str], verbs: Iterable[str], *names: str) -> Json:
    made: Json = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return made | ({"resourceNames": list(names)} if names else {})


_CRD = f"{volcano.POD_GROUP.plural}.{volcano.POD_GROUP.group}"
RULES: Mapping[str, tuple[Json, ...]] = {
    grove.NAME: (lists(ElasticQuota.RESOURCE), lists(Reservation.RESOURCE)),
    kube.NAME: (
        rule(kube_api.GROUP, ("workloads", "podgroups", "compositepodgroups"), KEEP),
        rule("", ("pods",), ("create",)),
    ),
    kai.NAME: (keeps(kai.POD_GROUP), keeps(kai.TOPOLOGY, never="patch")),
    koord.NAME: (
        keeps(koord.POD_GROUP),
        keeps(NETWORK_TOPOLOGY, never="delete"),
        lists(ElasticQuota.RESOURCE),
        lists(Reservation.RESOURCE),
    ),
    volcano.NAME: (
        keeps(volcano.POD_GROUP),
        rule(volcano.POD_GROUP.group, ("queues",), ("get",)),
        rule(volcano.HYPER_NODE.group, (volcano.HYPER_NODE.plural,), ("list", "watch")),
        rule("", (ConfigMap.RESOURCE.plural,), ("get", "list", "watch"), CONFIG_MAP.rpartition("/")[2]),
        rule(CustomResourceDefinition.RESOURCE.group, (CustomResourceDefinition.RESOURCE.plural,), ("get",), _CRD),
    ),
}
"""By the name of the profile."""


def rules_for(profiles: Iterable[str]) -> list[Json]:
    """The rules for these profiles, in the order of their names."""
    return [rule for name in sorted(set(profiles)) for rule in RULES.get(name, ())]
