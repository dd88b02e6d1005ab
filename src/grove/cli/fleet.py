"""`grove fleet` runs a whole fleet for weeks of simulated time; `grove record` writes a fleet file from a cluster."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import msgspec
import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from grove.answers.answer import RUNNING, Unanswered
from grove.api.meta import Json
from grove.cli.access import Options, cluster_command, resolve
from grove.cli.terminal import printed, terminal
from grove.config import ConfigError
from grove.config import load_configuration as load_operator
from grove.fleet.amounts import BadAmount, seconds
from grove.fleet.batch import too_large
from grove.fleet.checks import LONGEST_SOURCE, name_fault
from grove.fleet.compare import compare
from grove.fleet.file import BadFleet, Fleet, Time, Trace, load, ready_made, text_of
from grove.fleet.record import record_fleet
from grove.fleet.replay import NotReplay, is_same, read_replay, replay_file
from grove.fleet.report import page, share, span
from grove.fleet.results import VERSION, encode, results
from grove.fleet.run import Run, run_fleet
from grove.kube.http import HttpClient
from grove.kube.logs import configure_logs
from grove.scheduler.model.config import InvalidConfig
from grove.scheduler.model.config import load_configuration as load_scheduler
from grove.show.columns import table

BROKEN = 5
"""Exit code of a run that stopped because a promise was broken."""
LAST = 40
"""Writes that a replay prints; the file has all of the last hour."""
LONGEST_RECORD = LONGEST_SOURCE - len("-block")
"""Characters of a recorded file's name; gangs that require a domain get a file of their own."""
LINE_EVERY_S = 30.0
"""Between two lines that say how far a run is, where there is no terminal for a bar."""
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OUT = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("name", metavar="FILE", required=False)
@click.option("--for", "lasts", default="", help="How long the fleet runs, such as 7d; the file's own time if absent.")
@click.option("--seed", type=int, default=None, help="The same seed gives the same bytes; the file's own if absent.")
@click.option("--json", "json_out", type=_OUT, help="Write all figures to this file.")
@click.option("--html", "html_out", type=_OUT, help="Write the report with its plots to this file.")
@click.option("--operator-config", type=_FILE, help="The operator's configuration, instead of the file's settings.")
@click.option("--scheduler-config", type=_FILE, help="The scheduler's configuration, instead of the file's settings.")
@click.option("--compare", "pair", nargs=2, type=_OUT, help="Show two JSON results side by side.")
@click.option(
    "--replay", "replayed", type=_FILE, help="Run the fleet of a broken promise again, and show its last hour."
)
@click.option("--list", "listed", is_flag=True, help="Show the fleet files that come with Grove.")
@click.option("--print", "shown", is_flag=True, help="Print the fleet file, as a start for your own.")
def fleet(
    name: str | None,
    lasts: str,
    seed: int | None,
    json_out: Path | None,
    html_out: Path | None,
    operator_config: Path | None,
    scheduler_config: Path | None,
    pair: tuple[Path, Path] | None,
    replayed: Path | None,
    listed: bool,
    shown: bool,
) -> int:
    """Run a fleet for weeks of simulated time: failures, releases, load and batch work.

    FILE is a fleet file, or the name of one that comes with Grove (`--list`). The real operator and scheduler decide,
    with default settings unless the file or the options give others. Nothing on any cluster is read or changed.

    Exit codes: 0 every promise held, 5 a promise was broken, 2 the file cannot be used.
    """
    configure_logs("error", "text")
    if listed:
        return _list()
    if pair is not None:
        return _compare(*pair)
    if replayed is not None:
        return _replay(replayed)
    if name is None:
        raise click.UsageError("name a fleet file, or one of: " + ", ".join(ready_made()))
    if shown:
        printed(_text(name))
        return RUNNING
    wanted = _wanted(name, lasts, seed, operator_config, scheduler_config)
    _check_outputs([path for path in (json_out, html_out) if path is not None])
    run = _with_progress(wanted)
    run_results = results(run)
    if json_out is not None:
        json_out.write_bytes(encode(run_results))
    if html_out is not None:
        html_out.write_text(page(run_results, {"the run": run.cpu_s, "the scheduler's turns": run.scheduler_cpu_s}))
    _summary(run_results, run)
    for path in (json_out, html_out):
        if path is not None:
            click.echo(f"wrote {path}", err=True)
    if run.broken:
        replay = Path(f"fleet-broken-{wanted.seed}.json")
        replay.write_bytes(encode(replay_file(run)))
        click.echo(f"a promise was broken; see the last hour with: grove fleet --replay {replay}", err=True)
        return BROKEN
    return RUNNING


@click.command()
@click.option("--for", "lasts", default="4h", show_default=True, help="How long to watch the cluster.")
@click.option("--out", type=_OUT, default=Path("fleet.yaml"), show_default=True, help="The fleet file to write.")
@cluster_command(everywhere=True, formats=())
def record(options: Options, lasts: str, out: Path) -> int:
    """Watch a live cluster and write what happens as a fleet file: nodes, arrivals, sizes, durations, failures.

    Only reads. Interrupt it to stop earlier: what was seen until then is written.
    """
    configure_logs("error", "text")
    _check_outputs([out, out.with_suffix(".csv")])
    if why := name_fault(Trace(file=out.with_suffix(".csv").name).stem, LONGEST_RECORD):
        raise Unanswered(f"--out {out}: its name becomes the name of gangs: {why}")
    try:
        lasts_s = seconds(lasts)
    except BadAmount as error:
        raise Unanswered(str(error)) from error
    config, namespace = resolve(options)

    async def watch() -> Json:
        async with HttpClient(config, user_agent="grove-record") as client:
            return await record_fleet(client, namespace, lasts_s, out.with_suffix(".csv"))

    tree = asyncio.run(watch())
    out.write_text(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
    click.echo(f"wrote {out}; run it with: grove fleet {out}", err=True)
    return RUNNING


def _check_outputs(paths: Sequence[Path]) -> None:
    """Before the run: a month of simulated time is lost if its results cannot be written."""
    for path in paths:
        folder = path.parent
        if not folder.is_dir():
            raise Unanswered(f"{path}: there is no folder {folder}")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise Unanswered(f"{path} cannot be written")
    if len({path.resolve() for path in paths}) < len(paths):
        raise Unanswered(f"{paths[0]} is named for two outputs")


def _text(name: str) -> str:
    try:
        return text_of(name)
    except BadFleet as error:
        raise Unanswered(f"{name} cannot be used", error.faults) from error
    except OSError as error:
        raise Unanswered(f"{name}: {error.strerror}; files that come with Grove: {', '.join(ready_made())}") from error


def _wanted(name: str, lasts: str, seed: int | None, operator: Path | None, scheduler: Path | None) -> Fleet:
    _text(name)
    try:
        wanted = load(name)
        changes: dict[str, object] = {}
        if lasts:
            if seconds(lasts) <= 0:
                raise BadAmount(f"--for {lasts}: must be above 0")
            changes["lasts"] = Time(lasts)
        if seed is not None:
            changes["seed"] = seed
        if operator is not None or scheduler is not None:
            settings = msgspec.structs.replace(
                wanted.settings,
                operator=_config(operator, load_operator) if operator is not None else wanted.settings.operator,
                scheduler=_config(scheduler, load_scheduler) if scheduler is not None else wanted.settings.scheduler,
            )
            changes["settings"] = settings
        wanted = msgspec.structs.replace(wanted, **changes)
        wanted.operator_settings()
        wanted.scheduler_settings()
        if faults := too_large(wanted):
            raise BadFleet(name, faults)
    except BadFleet as error:
        raise Unanswered(f"{name} cannot be used", error.faults) from error
    except ValueError as error:
        raise Unanswered(str(error)) from error
    return wanted


def _config(path: Path, check: Callable[[str], object]) -> Json:
    """A configuration file as plain JSON; refused if the program itself would refuse it."""
    try:
        text = path.read_text(encoding="utf-8")
        check(text)
        tree = yaml.safe_load(text)
    except OSError as error:
        raise Unanswered(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Unanswered(f"{path} is not UTF-8") from error
    except (ConfigError, InvalidConfig, yaml.YAMLError) as error:
        raise Unanswered(f"{path}: {error}") from error
    if not isinstance(tree, dict | None):
        raise Unanswered(f"{path} is not a mapping of settings")
    return tree or {}


def _with_progress(wanted: Fleet) -> Run:
    """Runs the fleet with a bar on stderr. Without a terminal, a long run prints a line from time to time."""
    days = wanted.lasts.s / 86400
    if not sys.stderr.isatty():
        return run_fleet(wanted, _lines(days))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{days:g} simulated days", total=1.0)
        return run_fleet(wanted, lambda done: bar.update(task, completed=done))


def _lines(days: float) -> Callable[[float], None]:
    """Takes the share of the run that is done, and prints how far it is."""
    began = printed_s = time.monotonic()

    def note(done: float) -> None:
        nonlocal printed_s
        now = time.monotonic()
        if now - printed_s >= LINE_EVERY_S:
            printed_s = now
            click.echo(f"{share(done)} of {days:g} simulated days after {span(now - began)}", err=True)

    return note


def _list() -> int:
    rows = [(name, title) for name, title in ready_made().items()]
    console = terminal()
    console.print(table(("NAME", "WHAT"), rows, console.width))
    return RUNNING


def _compare(a: Path, b: Path) -> int:
    trees = []
    for path in (a, b):
        try:
            tree = msgspec.json.decode(path.read_bytes())
        except OSError as error:
            raise Unanswered(f"{path}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise Unanswered(f"{path} is not a result of `grove fleet --json`") from error
        if not isinstance(tree, dict) or "utilisation" not in tree:
            raise Unanswered(f"{path} is not a result of `grove fleet --json`")
        if tree.get("version") != VERSION:
            raise Unanswered(f"{path} was written by another version of grove fleet; run the fleet again")
        trees.append(tree)
    marks = {"a": a.name, "b": b.name, "": ""}
    rows = [(row.name, row.a, row.b, marks[row.better]) for row in compare(*trees)]
    console = terminal()
    console.print(table(("FIGURE", a.name, b.name, "BETTER"), rows, console.width))
    return RUNNING


def _replay(path: Path) -> int:
    """Shows the last writes before the promise was broken, then plays the same fleet again."""
    try:
        past = read_replay(path.read_bytes())
    except NotReplay as error:
        raise Unanswered(f"{path} is not the file of a broken promise: {error}") from error
    rows = [(f"{at_s:.1f} s", what, f"{kind} {name}", why) for at_s, what, kind, name, why in past.last_hour[-LAST:]]
    console = terminal()
    console.print(table(("AT", "WRITE", "OBJECT", "CHANGED"), rows, console.width))
    for broken in past.broken:
        click.echo(f"{broken.promise} was broken after {span(broken.at_s)}: {broken.text}")
    again = _with_progress(past.fleet)
    if not again.broken:
        click.echo("played again: every promise holds now")
        return RUNNING
    same = is_same(past.broken[0], again.broken)
    click.echo("played again: it breaks at the same moment" if same else f"played again: {again.broken[0].text}")
    return BROKEN


def _summary(run_results: Json, run: Run) -> None:
    waiting = run_results["waiting"]["all"].get("all", {"count": 0, "p50": 0.0, "p95": 0.0, "worst": 0.0})
    rows = [
        ("simulated", f"{run_results['days']:g} days of {run_results['nodes']} nodes with {run_results['gpus']} GPUs"),
        ("GPUs", ", ".join(f"{state} {share(value)}" for state, value in run_results["utilisation"].items())),
        ("gangs", f"{waiting['count']}; half waited up to {span(waiting['p50'])}, 95 % up to {span(waiting['p95'])}"),
        ("longest wait", span(waiting["worst"])),
        ("still waiting", str(len(run_results["stillWaiting"]))),
        *((f"{name} below minimum", span(figures["belowMinimum"])) for name, figures in run_results["serving"].items()),
        *((f"{name} excused", _excused(figures)) for name, figures in run_results["serving"].items()),
        ("promises", "all held" if not run_results["promises"] else run_results["promises"][0]["text"]),
        ("API writes", ", ".join(f"{who} {count:,}" for who, count in run_results["writes"].items())),
        ("CPU", f"{run.cpu_s:.1f} s, of it the scheduler's turns {run.scheduler_cpu_s:.1f} s"),
    ]
    console = terminal()
    console.print(table(("FIGURE", "VALUE"), rows, console.width))


def _excused(serving: Json) -> str:
    """What says how strict the judges were: they expect nothing of an instance that something from outside took."""
    return f"{share(serving['excused'])} of instances, weighed by time; updated for {share(serving['updating'])} of it"
