"""`make scale`: the same thousand sets on 100, 1,000 and 10,000 nodes, so that growth can be read.

Each time on a stock control plane, 1,000 sets of four pods are made at once. 100 of them are scaled, and then all are
deleted at once. Time is wall time in a user's watch. CPU and memory are those of each process. Fake nodes run the bound
pods. Time and CPU have their baseline beside them: a bare client makes and deletes the same systems on the same nodes
just before (see `baseline`). The baseline of the scaled sets is their share of it. `--nodes` and `--sets` make it
smaller.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.support.manifests import clique, group, pcs

from bench.baseline import NUMBER
from bench.operator_bench import SETTLE_S, Baseline, Bench, bare_client, baseline_of, clear, operating, with_nodes
from bench.planes import StockPlane, stock_plane
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.logs import configure_logs

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
        name,
        clique("router"),
        clique("lead"),
        clique("work", 2),
        groups=[group("inst", "lead", "work")],
        topologyConstraint={"topologyName": "fake-nodes", "pack": {"preferred": "rack"}},
    )


class Growth:
    """One size of cluster: what each part of the story took."""

    def __init__(self, bench: Bench, sets: int, baseline: Baseline, column: Column) -> None:
        self._bench, self._sets, self._baseline, self._column = bench, sets, baseline, column

    async def tell(self) -> None:
        before = self._bench.cpu_s()
        await asyncio.sleep(IDLE_S)
        for name in ("operator", "scheduler"):
            self._column[f"idle, {name}, % of a core"] = self._bench.spent_since(before)[name] / IDLE_S * 100
        made, gone = (
            (self._baseline.reported_s, self._baseline.reported_cpu_s),
            (self._baseline.gone_s, self._baseline.gone_cpu_s),
        )
        await self._part(f"{self._sets} sets made", self._make, lambda: self._bench.available() == self._sets, made)
        more = self._sets + self._sets // SCALED
        share = made[0] / SCALED, {name: spent / SCALED for name, spent in made[1].items()}
        await self._part(
            f"{self._sets // SCALED} sets scaled", self._scale, lambda: self._bench.available() == more, share
        )
        for name, memory_mb in self._memory_mb().items():
            self._column[f"memory, {name}, MB"] = memory_mb
        await self._part(f"{self._sets} sets deleted", self._delete, lambda: True, gone)

    async def _part(
        self,
        name: str,
        act: Callable[[], Awaitable[None]],
        holds: Callable[[], bool],
        least: tuple[float, Mapping[str, float]],
    ) -> None:
        cpu, began = self._bench.cpu_s(), time.perf_counter()
        await act()
        await self._bench.until(holds, 1800)
        self._column[f"{name}, s"] = time.perf_counter() - began
        self._column[f"{name}, baseline, s"] = least[0]
        await asyncio.sleep(SETTLE_S)
        spent = self._bench.spent_since(cpu)
        self._column[f"{name}, CPU of all processes, s"] = sum(spent.values())
        self._column[f"{name}, CPU of all processes, baseline, s"] = sum(least[1].values())
        for process in PROCESSES:
            self._column[f"{name}, CPU of {process}, s"] = spent[process]
        for process in (*PROCESSES[2:], "bare client"):
            self._column[f"{name}, CPU of {process}, baseline, s"] = least[1][process]
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
        pids = {process.name: process.child.pid for process in self._bench.processes}
        pids |= {child.name: child.pid for child in self._bench.plane.children}
        return {name: _memory_mb(pid) for name, pid in pids.items() if name in PROCESSES}


def _memory_mb(pid: int) -> float:
    (held,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(held) / 1024


async def measure(plane: StockPlane, nodes: int, sets: int, column: Column) -> None:
    async with with_nodes(plane, nodes) as (bench, kubeconfig):
        await bench.events_end()
        with bare_client(bench, kubeconfig) as bare:
            baseline = await baseline_of(bench, bare, four_pods("s0"), sets, "s0", f"s{NUMBER}")
        with operating(bench, kubeconfig):
            await asyncio.sleep(SETTLE_S)
            await Growth(bench, sets, baseline, column).tell()


def show(columns: dict[int, Column], sets: int) -> None:
    table = Table("what", *(f"{nodes:,} nodes" for nodes in columns), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name in next(iter(columns.values())):
        if ", baseline, s" not in name:
            table.add_row(name, *(cell(name, column) for column in columns.values()))
    Console(width=120).print(f"{sets} sets of {PODS} pods", table)


def cell(name: str, column: Column) -> str:
    """What was measured, and how many times its baseline that is."""
    value, baseline = column.get(name, float("nan")), column.get(f"{name.removesuffix(', s')}, baseline, s")
    return f"{value:,.1f} ({value / baseline:.2f} x)" if baseline else f"{value:,.1f}"


def main(words: Sequence[str] | None = None) -> None:
    asked = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
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
