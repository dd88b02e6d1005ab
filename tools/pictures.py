"""Draws the pictures of the README: `python tools/pictures.py`, part of `make docs`.

It plays the sample system on the simulated cluster. A moment later, while workers still wait for their leaders, it
draws the program's own tree and topology of it. The seed decides everything, so a test can compare.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402

from grove.api.topology import ClusterTopologyBinding  # noqa: E402
from grove.demo.scenario import load_manifests  # noqa: E402
from grove.diagnosis.tree import tree_of  # noqa: E402
from grove.kube.logs import configure_logs  # noqa: E402
from grove.plan.world import World, binding, shaped  # noqa: E402
from grove.show.drawing import svg_of, svg_of_text  # noqa: E402
from grove.show.layout import layout_of  # noqa: E402
from grove.show.paint import tree_table  # noqa: E402
from grove.sim.loop import run  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
SAMPLES = ("disaggregated.yaml", "agentic-pipeline.yaml", "deepseek-like.yaml")
SEED, NODES, WIDTH = 1, 64, 118
MOMENT_S = 6.0
"""Routers and some leaders are ready, workers are not."""


async def drawn() -> dict[str, str]:
    """File name to content."""
    async with World(shaped(NODES), seed=SEED, objects=[(ClusterTopologyBinding, binding())]) as world:
        for name in SAMPLES[1:]:
            for manifest in load_manifests(ROOT / "samples" / name):
                await world.apply(manifest)
        await asyncio.sleep(60.0)
        for manifest in load_manifests(ROOT / "samples" / SAMPLES[0]):
            await world.apply(manifest)
        await asyncio.sleep(MOMENT_S)
        seen = world.seen()
        pcs = next(pcs for pcs in seen.sets if pcs.metadata.name == "chat")
        return {
            "tree.svg": svg_of_text(_lines(tree_table(tree_of(seen, pcs), WIDTH))),
            "topology.svg": svg_of(layout_of(seen)),
        }


def _lines(picture: object) -> list[Text]:
    """What a console would print, with its styles."""
    console = Console(width=WIDTH, force_terminal=True, color_system="standard")
    lines = []
    for segments in console.render_lines(picture, pad=False):  # type: ignore[arg-type]
        line = Text()
        for segment in segments:
            line.append(segment.text, style=str(segment.style or ""))
        lines.append(line)
    return lines


def pictures() -> dict[str, str]:
    return run(drawn(), seed=SEED)


def main() -> None:
    configure_logs("error", "text")
    PICTURES.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (PICTURES / name).write_text(text)
        print(f"docs/pictures/{name}: {len(text)} bytes")


if __name__ == "__main__":
    main()
