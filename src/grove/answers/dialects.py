"""Names of dialects' objects on the command line: the PodCliqueSet that is kept for each is what is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from grove.answers.answer import Unanswered
from grove.api.dynamo import GROUP, PodGangSet
from grove.api.koordset import KoordPodCliqueSet
from grove.api.labels import TRANSLATED_FROM, TRANSLATED_NAME
from grove.api.meta import find_condition
from grove.dialects.dynamo import CLIQUE
from grove.kube.client import Client
from grove.kube.errors import Forbidden, NotFound


async def find_translated(client: Client, namespace: str, name: str) -> str:
    """The set that is kept for a PodGangSet, or a PodCliqueSet of grove.ai, of this name; empty if there is neither.

    An object that could not be translated says why.
    """
    kinds: tuple[type[Any], ...] = (PodGangSet, KoordPodCliqueSet)
    for kind in kinds:
        try:
            obj = await client.get(kind, name, namespace)
        except (NotFound, Forbidden):
            continue
        if obj.status.pod_clique_set_name:
            return str(obj.status.pod_clique_set_name)
        condition = find_condition(obj.status.conditions, "Translated")
        why = (
            condition.message
            if condition is not None
            else "the operator has not looked at it; are its dialects switched on?"
        )
        raise Unanswered(f"{kind.RESOURCE.kind} {name} has no PodCliqueSet: {why}")
    return ""


def scaled_part(labels: Mapping[str, str]) -> str:
    """The part of a set that is meant when the set is scaled: all pods of a PodGangSet are in its one clique."""
    return CLIQUE if labels.get(TRANSLATED_FROM) == GROUP else ""


def scaled_target(target: str, sets: Iterable[Any]) -> str:
    """The set that is kept for an object, and the part of it that scaling the object means."""
    name, _, part = target.partition("/")
    for pcs in sets:
        metadata = pcs["metadata"]
        labels = metadata.get("labels") or {}
        named = (metadata["name"], (metadata.get("annotations") or {}).get(TRANSLATED_NAME))
        if TRANSLATED_FROM in labels and name in named:
            inner = part or scaled_part(labels)
            return f"{metadata['name']}/{inner}" if inner else str(metadata["name"])
    return target
