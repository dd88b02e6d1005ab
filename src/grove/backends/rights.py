"""What the operator must be allowed to do for each scheduler profile, as rules of a ClusterRole.

A chart gives exactly the rules of the profiles that are enabled; the exempt users are service accounts of other
schedulers that write to pods Grove manages, which the guard of managed objects must let through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grove.api import labels as key
from grove.api.meta import Json
from grove.backends import kai, koord, kube_api, volcano

_KEEP = ("get", "list", "watch", "create", "patch", "delete")
_READ = ("get", "list", "watch")
_CRDS = "apiextensions.k8s.io"


def _rule(group: str, resources: Iterable[str], verbs: Iterable[str], *names: str) -> Json:
    rule: Json = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return rule | ({"resourceNames": list(names)} if names else {})


RULES: Mapping[str, tuple[Json, ...]] = {
    key.GROVE_SCHEDULER: (),
    key.DEFAULT_SCHEDULER: (
        _rule(kube_api.GROUP, ("workloads", "podgroups", "compositepodgroups"), _KEEP),
        _rule(kube_api.GROUP, ("podgroups/status",), ("get",)),
        _rule("", ("pods",), ("create",)),
    ),
    key.KAI_SCHEDULER: (
        _rule(kai.POD_GROUP.group, (kai.POD_GROUP.plural,), _KEEP),
        _rule(kai.TOPOLOGY.group, (kai.TOPOLOGY.plural,), _KEEP),
    ),
    key.KOORDINATOR_SCHEDULER: (_rule(koord.POD_GROUP.group, (koord.POD_GROUP.plural,), _KEEP),),
    key.VOLCANO_SCHEDULER: (
        _rule(volcano.POD_GROUP.group, (volcano.POD_GROUP.plural,), _KEEP),
        _rule(volcano.POD_GROUP.group, ("queues",), _READ),
        _rule(volcano.HYPER_NODE.group, (volcano.HYPER_NODE.plural,), _READ),
        _rule(_CRDS, ("customresourcedefinitions",), ("get",), "podgroups.scheduling.volcano.sh"),
    ),
}
"""By profile name, beyond what the operator needs for Grove's own objects and for pods."""

EXEMPT_USERS: Mapping[str, tuple[str, ...]] = {
    key.KAI_SCHEDULER: (
        "system:serviceaccount:kai-scheduler:pod-grouper",
        "system:serviceaccount:kai-scheduler:binder",
    ),
}


def rules_for(profiles: Iterable[str]) -> list[Json]:
    """The rules for these profiles, in the order of their names."""
    return [rule for name in sorted(set(profiles)) for rule in RULES.get(name, ())]


def exempt_users_for(profiles: Iterable[str]) -> list[str]:
    return [user for name in sorted(set(profiles)) for user in EXEMPT_USERS.get(name, ())]
