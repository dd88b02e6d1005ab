"""A story from curtain to curtain: the world it plays in, the telling, the numbers at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console

from grove.api.topology import ClusterTopologyBinding
from grove.demo.pace import idle
from grove.demo.scenario import Scenario
from grove.demo.stage import Plain, Screen
from grove.demo.story import Story, StoryFailed
from grove.demo.summary import Summary, summarize, summary_line, summary_table
from grove.plan.world import World, binding, shaped

NODES = 64


async def perform(
    plot: Scenario,
    stage: Plain | Screen,
    console: Console,
    *,
    nodes: int | None = None,
    seed: int = 1,
    keep: bool = False,
    attend: Callable[[World], None] = lambda world: None,
) -> Summary:
    """Plays a scenario on a stage. Calls `attend` with the world before the first step."""
    count = nodes or plot.nodes or NODES
    if count < plot.least:
        raise StoryFailed(f"this story needs {plot.least} nodes or more, not {count}")
    fake = shaped(count, plot.gpus)
    async with World(fake, seed=seed, objects=[(ClusterTopologyBinding, binding())]) as world:
        attend(world)
        story = Story(world, stage)
        if isinstance(stage, Screen):
            stage.watch(world)
        await story.play(plot)
        summary = summarize(world, story.chronicle)
        stage.is_over = True
        if not keep:
            stage.close()
        console.print()
        console.print(summary_table(summary, console.width))
        console.print()
        console.print(summary_line(summary), soft_wrap=not console.is_terminal)
        if keep:
            print("staying up; Ctrl-C ends it", file=sys.stderr)
            await idle()
        return summary
