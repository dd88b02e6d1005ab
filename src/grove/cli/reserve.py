"""`reserve`: capacity for a set before it exists, or standing headroom for further replicas of one that exists.

The first makes Koordinator's Reservations, which grove-scheduler places. The second writes the annotation for headroom.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grove.api.labels import MOST_HEADROOM
from grove.api.words import many
from grove.cli.access import Answer, Options, Unanswered, answer, cluster_command, complete_sets, object_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from grove.api.meta import Json
    from grove.kube.client import Client


@click.command(
    epilog="kubectl grove reserve -f chat.yaml --for 2h; kubectl apply -f chat.yaml; "
    "kubectl grove reserve -f chat.yaml --release; kubectl grove reserve chat --standing 1"
)
@click.argument("pcs", required=False, shell_complete=complete_sets)
@click.option(
    "-f",
    "--filename",
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Manifests with the sets to reserve for; - reads from standard input.",
)
@click.option(
    "--for", "ttl", default="1h", show_default=True, help="How long: 90s, 30m, 2h, or 0 for as long as it takes."
)
@click.option("--release", is_flag=True, help="End the reservations of these sets instead.")
@click.option(
    "--standing",
    type=click.IntRange(0, MOST_HEADROOM),
    help="Hold headroom for so many further replicas of PCS; 0 ends it.",
)
@cluster_command()
def reserve(
    options: Options, pcs: str | None, files: tuple[Path, ...], ttl: str, release: bool, standing: int | None
) -> int:
    """Keep capacity for whole sets: gang by gang, all of it or none. Their pods use it when they come. Writes.

    With --standing, PCS is a set that exists, or SET/GROUP: capacity for further replicas of it is held free.
    """
    from grove.api import duration
    from grove.demo.scenario import load_manifests

    if (standing is None) == (not files) or (standing is None) != (pcs is None):
        raise click.UsageError("give manifests (-f), or a set and --standing")
    if standing is not None and pcs is not None:
        name, units = object_name(pcs), standing
        return answer(options, lambda client, namespace: standing_answer(client, namespace, name, units))
    try:
        if ttl != "0":
            duration.parse(ttl)
    except duration.InvalidDuration as error:
        raise click.UsageError(f"--for: {error}") from None
    try:
        sets = [one for path in files for one in load_manifests(path) if one["kind"] == "PodCliqueSet"]
    except ValueError as error:
        raise Unanswered(str(error)) from error
    if not sets:
        raise click.UsageError("no PodCliqueSet in these files")
    return answer(options, lambda client, namespace: reserve_answer(client, namespace, sets, ttl, release))


async def standing_answer(client: Client, namespace: str, target: str, units: int) -> Answer:
    """Writes the annotation for headroom on a set, or on one of its scaling groups."""
    from rich.text import Text

    from grove.api.labels import HEADROOM
    from grove.api.podcliqueset import PodCliqueSet
    from grove.kube.errors import NotFound

    name, _, group = target.partition("/")
    note = {HEADROOM: str(units) if units else None}
    try:
        live = await client.get(PodCliqueSet.RESOURCE, name, namespace)
    except NotFound:
        raise Unanswered(f"there is no PodCliqueSet {name} in namespace {namespace}") from None
    patch: Json = {"metadata": {"annotations": note}}
    if group:
        configs = live["spec"]["template"].get("podCliqueScalingGroups") or []
        found = next((one for one in configs if one["name"] == group), None)
        if found is None:
            names = ", ".join(one["name"] for one in configs) or "none"
            raise Unanswered(f"{name} has no scaling group {group} (it has: {names})")
        kept = {key: value for key, value in {**(found.get("annotations") or {}), **note}.items() if value is not None}
        changed = [{**one, "annotations": kept} if one is found else one for one in configs]
        version = {"resourceVersion": live["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "spec": {"template": {"podCliqueScalingGroups": changed}}}
    await client.patch(PodCliqueSet, name, patch, namespace)
    what = f"headroom for {many(units, 'further replica')} of {target}" if units else f"no headroom for {target}"
    data = {"namespace": namespace, "target": target, "units": units}
    return Answer(data, lambda width: Text(f"{what}; kubectl grove tree {name} shows what is held"))


async def reserve_answer(client: Client, namespace: str, sets: Sequence[Json], ttl: str, release: bool) -> Answer:
    import msgspec

    from grove.admission.rules.defaulting import missing_defaults, with_additions
    from grove.api.koordinator import Reservation
    from grove.api.podcliqueset import PodCliqueSet
    from grove.kube.errors import AlreadyExists, NotFound
    from grove.plan.reserving import RESERVED_FOR, reservations_for, set_label

    if not await client.serves(Reservation):
        raise Unanswered("this cluster has no Reservation (scheduling.koordinator.sh): install Koordinator's CRDs")
    rows: list[dict[str, Any]] = []
    for one in sets:
        home = one["metadata"].get("namespace") or namespace or "default"
        name = one["metadata"]["name"]
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
            full = with_additions(one, missing_defaults(one, namespace=home))
            pcs = msgspec.convert(full, PodCliqueSet)
            for body in reservations_for(pcs, home, "0s" if ttl == "0" else ttl):
                try:
                    await client.create(Reservation, body)
                    made += 1
                except AlreadyExists:
                    continue
        rows.append({"namespace": home, "set": name, "made": made, "released": gone})

    def paint(width: int) -> RenderableType:
        from rich.text import Text

        said = [
            f"{row['namespace']}/{row['set']}: "
            + (
                f"{many(row['released'], 'reservation')} released"
                if release
                else f"{many(row['made'], 'reservation')} made, for {ttl}"
            )
            for row in rows
        ]
        tail = [] if release else ["see them with: kubectl get reservations"]
        return Text("\n".join([*said, *tail]))

    return Answer(rows, paint)
