"""`reserve`: capacity for a set before it exists, or standing headroom for further replicas of one that exists.

The first makes Koordinator's Reservations, which grove-scheduler places. The second writes the annotation for headroom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.text import Text

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.answers.answer import Answer, Unanswered
from grove.api.koordinator import Reservation
from grove.api.labels import HEADROOM
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.words import many
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, NotFound
from grove.plan.reserving import RESERVED_FOR, reservations_for, set_label


async def standing_answer(client: Client, namespace: str, target: str, units: int) -> Answer:
    """Writes the annotation for headroom on a set, or on one of its scaling groups."""
    name, _, group = target.partition("/")
    note = {HEADROOM: str(units) if units else None}
    try:
        live = await client.get(PodCliqueSet.RESOURCE, name, namespace)
    except NotFound:
        raise Unanswered(f"there is no PodCliqueSet {name} in namespace {namespace}") from None
    patch: Json = {"metadata": {"annotations": note}}
    if group:
        configs = live["spec"]["template"].get("podCliqueScalingGroups") or []
        config = next((config for config in configs if config["name"] == group), None)
        if config is None:
            names = ", ".join(config["name"] for config in configs) or "none"
            raise Unanswered(f"{name} has no scaling group {group} (it has: {names})")
        kept = {key: value for key, value in {**(config.get("annotations") or {}), **note}.items() if value is not None}
        changed = [{**other, "annotations": kept} if other is config else other for other in configs]
        version = {"resourceVersion": live["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "spec": {"template": {"podCliqueScalingGroups": changed}}}
    await client.patch(PodCliqueSet, name, patch, namespace)
    what = f"headroom for {many(units, 'further replica')} of {target}" if units else f"no headroom for {target}"
    data = {"namespace": namespace, "target": target, "units": units}
    return Answer(data, lambda width: Text(f"{what}; kubectl grove tree {name} shows what is held"))


async def reserve_answer(client: Client, namespace: str, sets: Sequence[Json], ttl: str, release: bool) -> Answer:
    if not await client.serves(Reservation):
        raise Unanswered("this cluster has no Reservation (scheduling.koordinator.sh): install Koordinator's CRDs")
    rows: list[dict[str, Any]] = []
    for manifest in sets:
        home = manifest["metadata"].get("namespace") or namespace or "default"
        name = manifest["metadata"]["name"]
        made = gone = 0
        if release:
            label = f"{RESERVED_FOR}={set_label(home, name)}"
            for held in (await client.list(Reservation, labels=label)).items:
                try:
                    await client.delete(Reservation, held.metadata.name)
                    gone += 1
                except NotFound:
                    continue
        else:
            full = with_additions(manifest, missing_defaults(manifest, namespace=home))
            pcs = msgspec.convert(full, PodCliqueSet)
            for body in reservations_for(pcs, home, "0s" if ttl == "0" else ttl):
                try:
                    await client.create(Reservation, body)
                    made += 1
                except AlreadyExists:
                    continue
        rows.append({"namespace": home, "set": name, "made": made, "released": gone})

    def paint(width: int) -> RenderableType:
        lines = [
            f"{row['namespace']}/{row['set']}: "
            + (
                f"{many(row['released'], 'reservation')} released"
                if release
                else f"{many(row['made'], 'reservation')} made, for {ttl}"
            )
            for row in rows
        ]
        tail = [] if release else ["see them with: kubectl get reservations"]
        return Text("\n".join([*lines, *tail]))

    return Answer(rows, paint)
