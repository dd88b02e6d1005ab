"""`grove demo`: the guided tour, on a cluster inside the process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from grove.demo.stage import Plain, Screen


@click.command()
@click.option("--nodes", type=click.IntRange(1, 2000), help="How many nodes. Default: 64, or as the scenario says.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same run.")
@click.option(
    "--speed",
    type=click.FloatRange(0),
    default=None,
    help="Faster (2) or slower (0.5). 0 does not wait; it is the default if the output is no terminal.",
)
@click.option(
    "--scenario", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A scenario file of your own."
)
@click.option("--keep", is_flag=True, help="Keep the cluster after the end, until Ctrl-C.")
@click.option("--plain", is_flag=True, help="Print plain lines. Default if the output is no terminal.")
@click.option(
    "--web", is_flag=True, help="Show it in a browser, with buttons that stop nodes and delete pods. Prints a link."
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="With --web: the port. Default: a free port.")
@click.option("--open/--no-open", "opens", default=True, help="With --web: open the page.")
def demo(
    nodes: int | None,
    seed: int,
    speed: float | None,
    scenario: Path | None,
    keep: bool,
    plain: bool,
    web: bool,
    port: int,
    opens: bool,
) -> None:
    """Show how an inference system starts, scales, waits, recovers and is updated, on a cluster inside this process."""
    from grove.answers.answer import Unanswered
    from grove.cli.terminal import terminal
    from grove.demo.pace import run_paced
    from grove.demo.performance import perform
    from grove.demo.scenario import BadScenario, load_scenario
    from grove.demo.stage import PLAIN_WIDTH, Plain, Screen
    from grove.demo.story import StoryFailed
    from grove.kube.logs import configure_logs

    configure_logs("error", "text")
    try:
        plot = load_scenario(scenario or Path(__file__).parents[1] / "demo" / "tour.yaml")
    except BadScenario as error:
        raise Unanswered(str(error)) from error
    if web:
        from grove.cli.console_page import tour_in_browser

        tour_in_browser(plot, nodes=nodes, seed=seed, speed=speed or 1.0, port=port, opens=opens)
        return
    console = terminal(plain=plain, width=PLAIN_WIDTH)
    stage: Plain | Screen
    if not console.is_terminal:
        stage, pace = Plain(console), speed or 0.0
    else:
        pace = 1.0 if speed is None else speed
        stage = Screen(console, pace)
    try:
        run_paced(
            perform(plot, stage, console, nodes=nodes, seed=seed, keep=keep), seed=seed, speed=pace, frame=stage.frame
        )
    except StoryFailed as error:
        raise Unanswered(error.message, error.faults) from error
    except KeyboardInterrupt:
        if stage.is_over:
            return  # it was kept up, and this is how it ends
        raise click.Abort from None
    finally:
        stage.fall()
