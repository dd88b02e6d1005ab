"""`grove simulate`: the demo's engine for a user's own manifests, on a made-up cluster or a copy of a real one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grove.answers.answer import Unanswered
from grove.cli.access import Options, cluster_command, resolve, show

if TYPE_CHECKING:
    from grove.demo.simulation import Ground


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    help="A manifest; may be given several times.",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
)
@click.option(
    "--cluster",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A shape (zones, racks, gpus …) or Node objects. Default: 64 nodes with 8 GPUs.",
)
@click.option("--from-kubeconfig", is_flag=True, help="Use a copy of the cluster of your kubeconfig.")
@click.option(
    "--events",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A scenario that runs after the manifests are applied.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same run.")
@click.option("--for", "patience", default="1h", show_default=True, help="Simulated time to wait until all gangs run.")
@click.option("--timeline/--no-timeline", default=True, help="Show what happened, in order.")
@cluster_command()
def simulate(
    options: Options,
    files: tuple[Path, ...],
    cluster: Path | None,
    from_kubeconfig: bool,
    events: Path | None,
    seed: int,
    patience: str,
    timeline: bool,
) -> int:
    """Run your manifests on a simulated cluster, and show the end state, the timeline and the placement.

    Exit codes: 0 all gangs run, 3 a gang waits, 4 a gang cannot be placed.
    """
    from grove.answers.plan import check_fields
    from grove.answers.simulate import _usual, outcome_answer
    from grove.api import duration
    from grove.demo.scenario import BadScenario, load_manifests, load_scenario, no_set
    from grove.demo.simulation import BadCluster, load_ground
    from grove.demo.simulation import simulate as play
    from grove.kube.logs import configure_logs
    from grove.sim.loop import run

    configure_logs("error", "text")
    if cluster is not None and from_kubeconfig:
        raise click.UsageError("--cluster and --from-kubeconfig name two different clusters")
    try:
        manifests = [manifest for path in files for manifest in load_manifests(path)]
        scenario = load_scenario(events) if events is not None else None
        ground = _copied(options) if from_kubeconfig else load_ground(cluster) if cluster else _usual()
        patience_s = duration.parse(patience).total_seconds()
    except (BadCluster, BadScenario, duration.InvalidDuration, ValueError) as error:
        raise Unanswered(str(error)) from error
    if all(manifest["kind"] != "PodCliqueSet" for manifest in manifests):
        raise Unanswered(no_set(manifests))
    check_fields(manifests)
    outcome = run(play(ground, manifests, scenario, seed=seed, patience_s=patience_s), seed=seed)
    if outcome.failed and not outcome.sets:
        raise Unanswered(outcome.failed, outcome.faults)  # nothing ever stood there to be shown
    return show(outcome_answer(outcome, timeline=timeline), options.output)


def _copied(options: Options) -> Ground:
    import asyncio

    from grove.api.topology import ClusterTopologyBinding
    from grove.demo.simulation import Ground
    from grove.kube.http import HttpClient
    from grove.plan.copying import copy_cluster

    config, _ = resolve(options)

    async def copied() -> Any:
        async with HttpClient(config, user_agent="grove-simulate", attempts=2, timeout_s=options.timeout_s) as client:
            return await copy_cluster(client, ())

    copy = asyncio.run(copied())
    return Ground((), copy, bool(copy.of(ClusterTopologyBinding.RESOURCE)))
