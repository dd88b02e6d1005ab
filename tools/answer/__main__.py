"""`make answer`: two real nodes, llama.cpp over three pods, Dynamo's mock engine; questions, answers and a table.

Every chapter sends requests while something happens: a worker is killed, instances are added, the model is updated.
It ends with a table: time to the first answer, and how many requests were sent, answered and failed in each chapter.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tools.answer.chapters import CHAPTERS, Story
from tools.answer.table import Row, as_markdown

from grove.local.nodes import preflight
from grove.local.nodes.cluster import RealCluster
from grove.local.nodes.detached import attach
from grove.local.state import State

ROOT = Path(__file__).parents[2]
IMAGES = ("dist/grove-initc.tar", "dist/engines/llama-cpp-rpc.tar", "dist/engines/dynamo.tar")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make answer", description=__doc__)
    parser.add_argument("--dir", type=Path, default=ROOT / "build" / "answer")
    parser.add_argument("--only", action="append", choices=list(CHAPTERS), help="some chapters; may be repeated")
    given = parser.parse_args(arguments)
    print(f"logs go to {given.dir}", flush=True)
    try:
        preflight.check(given.dir)
    except preflight.CannotRun as problem:
        print(problem, file=sys.stderr)
        return 1
    if absent := [name for name in IMAGES if not (ROOT / name).exists()]:
        print(f"missing: {', '.join(absent)}; `make answer` builds them", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _stop)
    rows: list[Row] = []
    try:
        with _cluster(given.dir) as cluster:
            story = Story(cluster, ROOT / "samples" / "engines", rows.append)
            for name in given.only or CHAPTERS:
                CHAPTERS[name](story)
    finally:
        table = as_markdown(rows)
        print(f"\n{table}", flush=True)
        (given.dir / "table.md").write_text(table + "\n")
    return 0 if rows and all(row.held for row in rows) else 1


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # an exception, so that the cluster is stopped on the way out


@contextmanager
def _cluster(directory: Path) -> Iterator[RealCluster]:
    """The cluster of `grove up --real-nodes 2`, with Grove on it; this process is in its network."""
    grove = [sys.executable, "-m", "grove"]
    images = [word for name in IMAGES for word in ("--image", str(ROOT / name))]
    began = time.monotonic()
    try:
        subprocess.run([*grove, "up", "--real-nodes", "2", "--dir", str(directory), *images], cwd=ROOT, check=True)
        state = State.load(directory)
        cluster = attach(directory, state) if state is not None else None
        if cluster is None:
            raise RuntimeError(f"no cluster of real nodes is up in {directory}")
        print(f"two nodes and Grove are up after {time.monotonic() - began:.0f} s\n", flush=True)
        with cluster.entered():
            yield cluster
    finally:
        subprocess.run([*grove, "down", "--dir", str(directory)], cwd=ROOT, check=False)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
