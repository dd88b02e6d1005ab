"""`reserve`: capacity for a set before it exists, or standing headroom for further replicas of one that exists.

The first makes Koordinator's Reservations, which grove-scheduler places. The second writes the annotation for headroom.
"""

from __future__ import annotations

from pathlib import Path

import click

from grove.answers.answer import Unanswered, object_name
from grove.api.labels import MOST_HEADROOM
from grove.cli.access import Options, answer, cluster_command, complete_sets


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
@click.option("--for", "ttl", default="1h", show_default=True, help="How long, such as 90s, 30m or 2h. 0 is no limit.")
@click.option("--release", is_flag=True, help="End the reservations of these sets instead.")
@click.option(
    "--standing",
    type=click.IntRange(0, MOST_HEADROOM),
    help="Hold headroom for N further replicas of PCS; 0 ends it.",
)
@cluster_command()
def reserve(
    options: Options, pcs: str | None, files: tuple[Path, ...], ttl: str, release: bool, standing: int | None
) -> int:
    """Hold capacity for whole sets, gang by gang: all of a gang or nothing. Pods of the sets use it later. Writes.

    With --standing, PCS is a set that exists, or SET/GROUP: capacity for further replicas of it is held free.
    """
    from grove.answers.reserve import reserve_answer, standing_answer
    from grove.api import duration
    from grove.demo.scenario import load_manifests, no_set

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
        manifests = [manifest for path in files for manifest in load_manifests(path)]
    except ValueError as error:
        raise Unanswered(str(error)) from error
    sets = [manifest for manifest in manifests if manifest["kind"] == "PodCliqueSet"]
    if not sets:
        raise Unanswered(no_set(manifests))
    return answer(options, lambda client, namespace: reserve_answer(client, namespace, sets, ttl, release))
