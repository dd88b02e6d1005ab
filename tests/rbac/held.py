"""Rights that no request shows, each with its reason. What is neither used nor here fails `make audit-rbac`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.rbac.rights import Right


@dataclass(frozen=True)
class Held:
    """Rights of one component: these verbs on these resources (`resource.group`, with `*` for parts of a name)."""

    component: str
    verbs: str
    resources: str
    why: str

    def covers(self, right: Right) -> bool:
        where = f"{right.resource}.{right.group}" if right.group else right.resource
        return (
            right.component == self.component
            and right.verb in self.verbs.split()
            and any(fnmatchcase(where, one) for one in self.resources.split())
        )


HELD: tuple[Held, ...] = (
    Held(
        "operator",
        "get list watch",
        "pods/status",
        "given on: the Role of a set's init containers has it, and nobody may give what he does not have",
    ),
    Held(
        "operator",
        "create",
        "customresourcedefinitions.apiextensions.k8s.io",
        "asked by the API server when an apply finds no such definition; the request itself is a patch",
    ),
    Held(
        "operator",
        "update",
        "*/finalizers.*",
        "asked by the admission plugin that guards owner references which block deletion; no request of its own",
    ),
    Held(
        "scheduler",
        "update patch",
        "resourceclaims/binding.resource.k8s.io",
        "asked by the API server when an allocation is written into a claim's status; no request of its own",
    ),
    Held(
        "operator",
        "get list watch create patch delete",
        "compositepodgroups.scheduling.k8s.io",
        "a kind of Kubernetes 1.37, which is newer than the control planes that tests run on",
    ),
    Held(
        "operator",
        "get",
        "services serviceaccounts roles.rbac.* rolebindings.rbac.* horizontalpodautoscalers.* podcliques.*"
        " podcliquescalinggroups.* podgangs.* resourceclaims.* podgroups.* workloads.* provisioningrequests.*"
        " podtemplates",
        "read when a create finds the name taken although the cache does not show it, which takes a race",
    ),
    Held(
        "operator",
        "patch delete",
        "podgroups.scheduling.* workloads.scheduling.k8s.io",
        "for objects of a gang that others changed, or that it is not told by any more since its mapping changed",
    ),
    Held("operator", "patch", "resourceclaims.*", "puts back labels of a shared claim that somebody edited"),
    Held(
        "operator",
        "patch delete",
        "controllerrevisions.apps",
        "numbers a template anew that comes back, and removes the oldest beyond the limit of the history",
    ),
    Held(
        "operator",
        "get",
        "pods/grove_requests_waiting.custom.metrics.k8s.io",
        "asked once the number of running requests has been answered, which takes engines and an aggregated API",
    ),
    Held(
        "operator",
        "list watch",
        "hypernodes.topology.volcano.sh",
        "asked only where the profile of Volcano tells which tiers of HyperNodes the levels are",
    ),
    Held(
        "operator",
        "get list watch",
        "configmaps",
        "vc-scheduler's own configuration, asked only where the profile of Volcano tells which tiers the levels are",
    ),
    Held(
        "metrics",
        "create patch",
        "events",
        "warns about a pod whose page cannot be used, which takes engines beside a process of the chart's namespace",
    ),
    Held(
        "metrics",
        "patch",
        "secrets apiservices.apiregistration.k8s.io",
        "renews a certificate before it ends, and puts an APIService right that somebody edited",
    ),
    Held("scheduler", "get", "pods", "read when a binding was answered with a conflict, which takes a race"),
)


def reason(right: Right, held: Iterable[Held] = HELD) -> str:
    """Why the chart has a right that no test used; empty if there is no reason."""
    return next((one.why for one in held if one.covers(right)), "")
