"""Rights as the chart grants them, requests as the audit log tells them, and the difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

RENDERED = Path(__file__).parents[1] / "unit/charts/every-option.rendered.yaml"
"""The chart with everything switched on."""

ROLES: Mapping[str, str] = {
    "grove:system:grove-operator": "operator",
    "grove:system:grove-operator-lease": "operator",
    "grove:system:grove-scheduler": "scheduler",
    "grove:system:grove-scheduler-lease": "scheduler",
    "grove:system:grove-metrics": "metrics",
    "grove:system:grove-metrics-certificate": "metrics",
    "grove:system:grove-uninstall": "uninstall",
}
"""Which component holds a role; the roles of people (`grove:view`, `grove:edit`) are held by people."""

_AGENTS = {
    "grove-operator": "operator",
    "grove-crds": "operator",
    "grove-scheduler": "scheduler",
    "grove-metrics": "metrics",
    "grove-webhooks": "uninstall",
}


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one resource, for one component. `names` are the objects it is limited to; none is all."""

    component: str
    group: str
    resource: str
    verb: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.component}: {self.verb} {where}"


@dataclass(frozen=True, order=True)
class Use:
    """One kind of request that a component made."""

    component: str
    group: str
    resource: str
    verb: str
    name: str = ""


def documents(file: Path = RENDERED) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


def accounts(objects: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The user name of each component: the account its cluster role is bound to."""
    found = {}
    for one in objects:
        component = ROLES.get((one.get("roleRef") or {}).get("name", ""))
        if component is not None and one["kind"] == "ClusterRoleBinding":
            (subject,) = one["subjects"]
            found[component] = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    return found


def granted(objects: Iterable[Mapping[str, Any]]) -> Iterator[Right]:
    """Every right of every component; one of several names is one right."""
    for one in objects:
        component = ROLES.get(one["metadata"]["name"]) if one["kind"] in ("ClusterRole", "Role") else None
        for rule in one.get("rules") or () if component is not None else ():
            for group in rule.get("apiGroups") or ():
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield Right(str(component), group, resource, verb, tuple(rule.get("resourceNames") or ()))


def use_of(event: Mapping[str, Any], users: Mapping[str, str]) -> Use | None:
    """Who did what, from one line of an audit log; None if it was not one of us or was not allowed.

    A component is known by its account. One that a test runs with the administrator's rights is known by what it calls
    itself.
    """
    reference = event.get("objectRef")
    if reference is None or (event.get("annotations") or {}).get("authorization.k8s.io/decision") != "allow":
        return None
    user = (event.get("impersonatedUser") or event["user"])["username"]
    component = {name: who for who, name in users.items()}.get(user)
    if component is None and "impersonatedUser" not in event:
        agent = event.get("userAgent", "").partition("/")[0].removesuffix("-election")
        component = _AGENTS.get(agent)
    if component is None:
        return None
    resource = "/".join(filter(None, (reference.get("resource", ""), reference.get("subresource", ""))))
    return Use(component, reference.get("apiGroup", ""), resource, event["verb"], reference.get("name", ""))


def is_used(right: Right, used: Iterable[Use]) -> bool:
    """`list` counts as used where `watch` was: who follows a kind lists it where the server does not stream lists."""
    verbs = (right.verb, "watch") if right.verb == "list" else (right.verb,)
    return any(
        (one.component, one.group) == (right.component, right.group)
        and one.verb in verbs
        and right.resource in (one.resource, "*")
        and (not right.names or one.name in right.names)
        for one in used
    )


def unused(rights: Iterable[Right], used: Iterable[Use]) -> list[Right]:
    used = set(used)
    return sorted({right for right in rights if not is_used(right, used)})
