"""Rules of a ClusterRole: what the operator must be allowed for a scheduler, beyond Grove's own objects and pods."""

from __future__ import annotations

from collections.abc import Iterable

from grove.api.meta import Json, Resource

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
