"""What a question costs on a large cluster: CPU seconds of `kubectl grove`, a process each, on 1,000 nodes and 10,000
pods. The cluster is stored and served by a process of its own, so the API server's time is not in the figure.

The baseline of each command is a process that starts, reads what that command read, and looks at none of it.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from bench.cli_server import ASKED
from bench.figures import Figure
from bench.reads import Reading, least_reading
from grove.api.core import Pod
from grove.api.meta import Json, Object, Resource
from grove.api.topology import ClusterTopologyBinding
from grove.kube.logs import configure_logs
from grove.plan.copying import QUOTA
from grove.plan.world import World, binding, shaped
from grove.sim.kinds import BUILT_IN
from grove.sim.loop import run as run_virtual

ROOT = Path(__file__).parents[1]
BLOCKS, NODES, PODS = 100, 10, 100
AIM, HELP_AIM = "≤ 1.5 s", "≤ 0.3 s"
ROUNDS, ALIKE = 3, 1.1
"""Processes of each command at most; fewer if one takes no more than `ALIKE` times the CPU of the quickest before."""

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status", "-A"),
    ("status", "-A", "-o", "wide"),
    ("status", "-A", "-o", "json"),
    ("rollout", "status", "s000"),
    ("tree", "s000"),
    ("explain", "s000"),
    ("explain", "s000", "--scores"),
    ("explain", "wide"),
    ("explain", "wide", "--scores"),
    ("queue", "-A"),
    ("topology",),
    ("topology", "--no-nodes", "-o", "json"),
    ("events", "s000"),
    ("scaleref", "s000"),
    ("doctor",),
    ("plan", "-f", str(ROOT / "samples" / "disaggregated.yaml")),
    ("plan", "--drain", "z0-b0-r0-n0"),
    ("plan", "--scale", "s000=2"),
    ("scale", "s000", "2", "--dry-run"),
    ("restart", "s000", "--dry-run"),
    ("repack", "--for", "wide"),
    ("repack", "--fleet"),
    ("rollout", "history", "s000"),
    ("queue", "--tree"),
    ("status", "s000"),
    ("explain", "s000-0"),
    ("takeover",),
    ("convert", str(ROOT / "samples" / "disaggregated.yaml")),
)


def run(results: dict[str, Figure]) -> None:
    configure_logs("error", "text")
    with tempfile.TemporaryDirectory() as folder:
        # An installed program has its bytecode; the first round writes it, wherever tests run.
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder, "bytecode"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for command in (["--help"], ["plan", "--help"]):
            _, wall = _best(command, {})
            least_s = min(_started_s() for _ in range(3))
            results[f"kubectl grove {' '.join(command)}, wall"] = Figure(wall, "s", HELP_AIM, least_s)
        stored = Path(folder, "cluster.json")
        stored.write_text(json.dumps(run_virtual(large_cluster(), seed=1)))
        baselines: dict[tuple[str, ...], Reading] = {}
        with serving(stored) as kubeconfig:
            for command in COMMANDS:
                _asked(kubeconfig)
                cpu, wall = _best([*command], {"KUBECONFIG": str(kubeconfig)})
                paths = tuple(sorted(set(_asked(kubeconfig))))  # the rounds asked alike, and so do several commands
                if paths not in baselines:
                    baselines[paths] = least_reading(kubeconfig, list(paths))
                least = baselines[paths]
                words = " ".join(Path(part).name for part in command)
                print(f"  {cpu:5.2f} s CPU, {least.cpu_s:5.2f} s to read: {words}", file=sys.stderr, flush=True)
                results[f"kubectl grove {words}, CPU"] = Figure(cpu, "s", AIM, least.cpu_s)
                results[f"kubectl grove {words}, wall with a stored server"] = Figure(wall, "s", "", least.wall_s)
            share = top_at_rest(kubeconfig)
            results["kubectl grove top at rest, share of a core"] = Figure(share, "%", "≤ 5 %")


def _asked(kubeconfig: Path) -> list[str]:
    """What the server was asked for since this was asked last."""
    server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    with urlopen(f"{server}{ASKED}") as answer:
        paths: list[str] = json.load(answer)
        return paths


def _started_s() -> float:
    """Seconds that an interpreter takes to start and end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - began


REST_S = 20.0
FIRST_S = 20.0


def top_at_rest(kubeconfig: Path) -> float:
    """CPU of `top` in a terminal while nothing happens, once its first screen stands, in percent of a core."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ |= {"PYTHONPATH": str(ROOT / "src"), "KUBECONFIG": str(kubeconfig), "TERM": "xterm-256color"}
        os.execv(sys.executable, [sys.executable, "-m", "grove.cli.kubectl", "top", "-A"])
    try:
        _drain(fd, FIRST_S)
        before = _cpu_s(pid)
        _drain(fd, REST_S)
        return 100 * (_cpu_s(pid) - before) / REST_S
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)


def _drain(fd: int, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            os.read(fd, 65536)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _best(args: list[str], env: dict[str, str]) -> tuple[float, float]:
    """CPU and wall seconds of the quickest of a few processes; any exit code but 1 and 2 is an answer."""
    times: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", "grove.cli.kubectl", *args],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **env},
        )
        assert child.stderr is not None
        message = child.stderr.read().decode()
        _, code, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(code)
        child.stderr.close()
        if child.returncode in (1, 2) and args[0] != "doctor":
            raise RuntimeError(f"kubectl grove {' '.join(args)} ended with {child.returncode}: {message}")
        cpu_s = usage.ru_utime + usage.ru_stime
        confirms = bool(times) and cpu_s <= ALIKE * min(time_pair[0] for time_pair in times)
        times.append((cpu_s, time.perf_counter() - begun))
        if confirms:
            break
    return min(time_pair[0] for time_pair in times), min(time_pair[1] for time_pair in times)


@contextmanager
def serving(stored: Path) -> Iterator[Path]:
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.cli_server", str(stored)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert child.stdout is not None
        server = f"http://127.0.0.1:{int(child.stdout.readline())}"
        entry = {"name": "bench", "cluster": {"server": server}}
        context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [entry],
            "contexts": [context],
            "users": [{"name": "bench", "user": {}}],
            "current-context": "bench",
        }
        path = stored.with_name("kubeconfig")
        path.write_text(yaml.safe_dump(config))
        yield path
    finally:
        child.terminate()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def system(name: str, cliques: dict[str, tuple[int, int]], required: str = "") -> Json:
    """A set of cliques, each with `pods` pods of `gpus` GPUs."""
    parts = []
    for clique, (replicas, gpus) in cliques.items():
        resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {"requests": {"cpu": "100m"}}
        container = {"name": "c", "image": "registry.example/engine:1", "resources": resources}
        pod = {"containers": [container]}
        parts.append({"name": clique, "spec": {"roleName": clique, "replicas": replicas, "podSpec": pod}})
    template: Json = {"cliques": parts}
    if required:
        template["topologyConstraint"] = {"topologyName": "fake-nodes", "pack": {"required": required}}
    return {"metadata": {"name": name}, "spec": {"replicas": 1, "template": template}}


async def large_cluster() -> dict[str, list[Any]]:
    """A hundred blocks of ten nodes, each with a set of a hundred pods, as operator and scheduler made it once.

    Names, places and uids differ. One more set fits nowhere.
    """
    async with World(shaped(NODES), seed=1, objects=[(ClusterTopologyBinding, binding())]) as world:
        await world.apply(system("s000", {"engine": (60, 1), "front": (PODS - 60, 0)}, "block"))
        assert await world.until(lambda: world.is_settled("s000"))
        await world.until(lambda: False, 60.0)  # a gang that runs has its last status
        block_objects = _stored(world)
        await world.apply(system("wide", {"trainer": (40, 8)}, "rack"))
        await world.until(lambda: False, 30.0)
        both = _stored(world)
    text = json.dumps(block_objects)
    uids = sorted({obj["metadata"]["uid"] for objects in block_objects.values() for obj in objects})
    all_objects: dict[str, list[Any]] = {path: [] for path in both}
    for block in range(BLOCKS):
        copy = text.replace("s000", f"s{block:03d}").replace("z0-b0", f"z{block // 10}-b{block % 10}")
        copy = copy.replace('"z0"', f'"z{block // 10}"')
        for uid in uids:
            copy = copy.replace(uid, f"{uid[:-3]}{block:03d}")
        for path, objects in json.loads(copy).items():
            named = {(obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in all_objects[path]}
            all_objects[path] += [
                o for o in objects if (o["metadata"].get("namespace"), o["metadata"]["name"]) not in named
            ]
    for path, objects in both.items():
        all_objects[path] += [obj for obj in objects if obj["metadata"]["name"].startswith("wide")]
    return all_objects


def _stored(world: World) -> dict[str, list[Any]]:
    kinds: list[Resource] = [kind.resource for kind in BUILT_IN]
    kinds += [kind.RESOURCE for kind in Object.__subclasses__() if kind.RESOURCE.group.endswith("grove.io")]
    by_path: dict[str, list[Any]] = {}
    for resource in {*kinds, QUOTA, Pod.RESOURCE}:
        stored = world.cluster.server.store.collection(resource).objects
        by_path[f"{resource.base_path}/{resource.plural}"] = [stored[key].json for key in sorted(stored)]
    return by_path
