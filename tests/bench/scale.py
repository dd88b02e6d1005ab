"""`make scale`: the same thousand sets on 100, 1,000 and 10,000 nodes, so that growth can be read.

On a stock control plane each time: 1,000 sets of four pods made at once, 100 of them scaled, then all deleted at once.
Time is wall time as a user's watch sees it; CPU and memory are of each process by itself. Fake nodes run what is bound.
`--nodes` and `--sets` make it smaller.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.logs import configure_logs
from tests.bench.operator_bench import SETTLE_S, Bench, clear, operating, with_nodes
from tests.bench.planes import StockPlane, stock_plane
from tests.support.manifests import clique, group, pcs

NODES = (100, 1_000, 10_000)
SETS, PODS = 1_000, 4
SCALED = 10
"""Every tenth set."""
AT_ONCE = 64
IDLE_S = 10.0
PROCESSES = ("operator", "scheduler", "kube-apiserver", "etcd", "kube-controller-manager")

Column = dict[str, float]


def four_pods(name: str) -> Json:
    """A router, and a leader with two workers that stay together."""
    return pcs(
        name, clique("router"), clique("lead"), clique("work", 2), groups=[group("inst", "lead", "work")],
        topologyConstraint={"topologyName": "fake-nodes", "pack": {"preferred": "rack"}},
    )  # fmt: skip


class Growth:
    """One size of cluster: what each part of the story took."""

    def __init__(self, bench: Bench, sets: int, column: Column) -> None:
        self._bench, self._sets, self._column = bench, sets, column

    async def tell(self) -> None:
        before = self._bench.cpu_s()
        await asyncio.sleep(IDLE_S)
        for name in ("operator", "scheduler"):
            self._column[f"idle, {name}, % of a core"] = self._bench.spent_since(before)[name] / IDLE_S * 100
        await self._part(f"{self._sets} sets made", self._make, lambda: self._bench.available() == self._sets)
        more = self._sets + self._sets // SCALED
        await self._part(
            f"{self._sets // SCALED} sets scaled", self._scale, lambda: self._bench.available() == more
        )  # fmt: skip
        for name, memory_mb in self._memory_mb().items():
            self._column[f"memory, {name}, MB"] = memory_mb
        await self._part(f"{self._sets} sets deleted", self._delete, lambda: True)

    async def _part(self, name: str, act: object, holds: object) -> None:
        cpu, began = self._bench.cpu_s(), time.perf_counter()
        await act()  # type: ignore[operator]
        await self._bench.until(holds, 1800)  # type: ignore[arg-type]
        self._column[f"{name}, s"] = time.perf_counter() - began
        await asyncio.sleep(SETTLE_S)
        spent = self._bench.spent_since(cpu)
        for process in PROCESSES:
            self._column[f"{name}, CPU of {process}, s"] = spent[process]
        print(f"  {name}: {self._column[f'{name}, s']:.1f} s", file=sys.stderr, flush=True)

    async def _make(self) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def make(number: int) -> None:
            async with turns:
                await self._bench.client.create(PodCliqueSet, four_pods(f"s{number}"))

        async with asyncio.TaskGroup() as made:
            for number in range(self._sets):
                made.create_task(make(number))

    async def _scale(self) -> None:
        patch = {"spec": {"replicas": 2}}
        async with asyncio.TaskGroup() as scaled:
            for number in range(0, self._sets, SCALED):
                scaled.create_task(
                    self._bench.client.patch(PodCliqueSet, f"s{number}", patch, "default", subresource="scale")
                )

    async def _delete(self) -> None:
        await clear(self._bench)

    def _memory_mb(self) -> Column:
        found = {process.name: process.child.pid for process in self._bench.processes}
        found |= {child.name: child.pid for child in self._bench.plane.children}
        return {name: _memory_mb(pid) for name, pid in found.items() if name in PROCESSES}


def _memory_mb(pid: int) -> float:
    (held,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(held) / 1024


async def measure(plane: StockPlane, nodes: int, sets: int, column: Column) -> None:
    async with with_nodes(plane, nodes) as (bench, kubeconfig):
        with operating(bench, kubeconfig):
            await asyncio.sleep(SETTLE_S)
            await Growth(bench, sets, column).tell()


def show(columns: dict[int, Column], sets: int) -> None:
    table = Table("what", *(f"{nodes:,} nodes" for nodes in columns), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name in next(iter(columns.values())):
        table.add_row(name, *(f"{column.get(name, float('nan')):,.1f}" for column in columns.values()))
    Console(width=120).print(f"{sets} sets of {PODS} pods", table)


def main(words: Sequence[str] | None = None) -> None:
    asked = argparse.ArgumentParser(prog="python -m tests.bench.scale", description=__doc__)
    asked.add_argument("--nodes", type=int, nargs="+", default=NODES)
    asked.add_argument("--sets", type=int, default=SETS)
    asked.add_argument("--json", type=Path, help="also write the figures here")
    given = asked.parse_args(words)
    configure_logs("error", "text")
    print(f"{given.sets} sets on {list(given.nodes)} nodes: about 5 minutes each on 2 cores; nothing is installed")
    columns: dict[int, Column] = {}
    for nodes in given.nodes:
        print(f"{nodes} nodes", file=sys.stderr, flush=True)
        column: Column = {}
        with tempfile.TemporaryDirectory() as folder, stock_plane(folder, hurried=True) as plane:
            asyncio.run(measure(plane, nodes, given.sets, column))
        columns[nodes] = column
        if given.json:
            given.json.write_text(json.dumps(columns, indent=2) + "\n")
    show(columns, given.sets)


if __name__ == "__main__":
    main()
