"""`grove scheduler` and `grove replay`: read the flags, start the scheduler, or make recorded decisions again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from grove.kube.logs import configure_logs
from grove.kube.run import run_process
from grove.processes.scheduler import serve
from grove.scheduler.model.config import InvalidConfig, checked, load_configuration, parse_gates
from grove.scheduler.replay.replay import BadJournal
from grove.scheduler.replay.replay import replay as decisions


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Which cluster; default as kubectl."
)
@click.option("--context", default="", help="The kubeconfig context to use.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A SchedulerConfiguration file.",
)
@click.option("--feature-gates", "gates", default="", help="For example GroveIntegration=false.")
@click.option("--leader-elect/--no-leader-elect", default=None, help="Use leader election. Overrides the file.")
@click.option("--port", type=int, help="Port of /metrics, /healthz and /readyz; overrides the file. Default: 8080.")
@click.option(
    "--record", type=click.Path(file_okay=False, path_type=Path), help="Write every decision into this folder."
)
@click.pass_context
def scheduler(
    ctx: click.Context,
    kubeconfig: Path | None,
    context: str,
    config_file: Path | None,
    gates: str,
    leader_elect: bool | None,
    port: int | None,
    record: Path | None,
) -> None:
    """Run grove-scheduler, which places whole PodGangs, and single pods that name it."""
    try:
        config = load_configuration(config_file.read_text() if config_file is not None else "")
        changes: dict[str, Any] = {"feature_gates": {**config.feature_gates, **parse_gates(gates)}}
        if leader_elect is not None:
            changes["leader_election"] = msgspec.structs.replace(config.leader_election, enabled=leader_elect)
        if port is not None:
            changes["server"] = msgspec.structs.replace(config.server, port=port)
        config = checked(msgspec.structs.replace(config, **changes))
    except InvalidConfig as err:
        raise click.UsageError(f"{config_file or 'configuration'}: {err}") from err
    configure_logs(config.log_level, config.log_format)
    verbose = bool(ctx.find_root().params.get("verbose"))
    sys.exit(run_process(lambda: serve(config, kubeconfig, context, record), verbose=verbose))


@click.command()
@click.argument("directory", type=click.Path(exists=True, path_type=Path))
@click.option("-q", "--quiet", is_flag=True, help="Print only the totals.")
def replay(directory: Path, quiet: bool) -> None:
    """Repeat the decisions that `grove scheduler --record` wrote, and compare them."""
    total = different = 0
    try:
        for decision in decisions(directory):
            total += 1
            if decision.is_same:
                if not quiet:
                    click.echo(f"{decision.decision}  {decision.kind:8} {decision.gang}  same")
                continue
            different += 1
            click.echo(f"{decision.decision}  {decision.kind:8} {decision.gang}  DIFFERENT")
            click.echo(f"  recorded: {msgspec.json.encode(decision.recorded).decode()}")
            click.echo(f"  now:      {msgspec.json.encode(decision.now).decode()}")
    except BadJournal as err:
        raise click.ClickException(str(err)) from err
    click.echo(f"{total} decisions, {different} different" if different else f"{total} decisions, all the same")
    if different:
        sys.exit(1)
