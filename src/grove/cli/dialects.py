"""Names of dialects' objects on the command line: the PodCliqueSet that is kept for each is what is shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from grove.cli.access import Unanswered

if TYPE_CHECKING:
    from grove.kube.client import Client


async def find_translated(client: Client, namespace: str, name: str) -> str:
    """The set that is kept for a PodGangSet, or a PodCliqueSet of grove.ai, of this name; empty if there is neither.

    An object that could not be translated says why.
    """
    from grove.api.dynamo import PodGangSet
    from grove.api.koordset import KoordPodCliqueSet
    from grove.api.meta import find_condition
    from grove.kube.errors import Forbidden, NotFound

    kinds: tuple[type[Any], ...] = (PodGangSet, KoordPodCliqueSet)
    for kind in kinds:
        try:
            found = await client.get(kind, name, namespace)
        except (NotFound, Forbidden):
            continue
        if found.status.pod_clique_set_name:
            return str(found.status.pod_clique_set_name)
        told = find_condition(found.status.conditions, "Translated")
        why = told.message if told is not None else "the operator has not looked at it; are its dialects switched on?"
        raise Unanswered(f"{kind.RESOURCE.kind} {name} has no PodCliqueSet: {why}")
    return ""


def scaled_target(target: str, sets: Iterable[Any]) -> str:
    """What scaling an object means for its set: `gang` for a PodGangSet means the pods of its one clique."""
    from grove.api.dynamo import GROUP
    from grove.api.labels import TRANSLATED_FROM, TRANSLATED_NAME
    from grove.dialects.dynamo import CLIQUE

    name, _slash, part = target.partition("/")
    for one in sets:
        metadata = one["metadata"]
        origin = (metadata.get("labels") or {}).get(TRANSLATED_FROM)
        if origin and name in (metadata["name"], (metadata.get("annotations") or {}).get(TRANSLATED_NAME)):
            inner = part or (CLIQUE if origin == GROUP else "")
            return f"{metadata['name']}/{inner}" if inner else str(metadata["name"])
    return target
