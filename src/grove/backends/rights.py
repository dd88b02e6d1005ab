"""Rules of a ClusterRole: what the operator must be allowed for a scheduler, beyond Grove's own objects and pods."""

from __future__ import annotations

from collections.abc import Iterable

from grove.api.meta import Json, Resource

KEEP = ("get", "list", "watch", "create", "patch", "delete")
READ = ("get", "list", "watch")


def keeps(resource: Resource) -> Json:
    """For objects that Grove makes."""
    return rule(resource.group, (resource.plural,), KEEP)


def reads(resource: Resource) -> Json:
    return rule(resource.group, (resource.plural,), READ)


def rule(group: str, resources: Iterable[str], verbs: Iterable[str], *names: str) -> Json:
    made: Json = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return made | ({"resourceNames": list(names)} if names else {})
