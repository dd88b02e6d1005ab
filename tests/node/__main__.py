"""`make test-node`: install what a node needs, run `tests/node` in namespaces of their own, and leave nothing behind.

Each file of tests has namespaces of its own, for network, mounts and processes. They end with the tests, and with them
every interface, mount, container and file under /var. What the kernel shares with everybody is kept here: cgroups are
removed, kernel settings put back.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from grove.local import gobuild
from grove.local.binaries import BinariesError, cache_root
from tests.node.runtime import CGROUP, PLUGINS, VERSION

ROOT = Path(__file__).parents[2]
PACKAGES = ("containerd", "runc", "containernetworking-plugins", "iproute2", "iptables")
WORDS = f"""\
A real node on this machine: API server, controllers, kubelet, containerd, kube-proxy. In namespaces of their own.
  takes     about 12 minutes on two cores; 10 more the first time, when kubelet, kube-proxy and helm are built
  installs  Debian's {", ".join(PACKAGES)}, where they are missing; they stay
  needs     root, Go, 8 GB of disk the first time and 3 GB of memory
"""
# What a kubelet sets for the whole machine when it starts.
KERNEL_SETTINGS = (
    "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)  # fmt: skip
NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
# /run for sockets and namespaces of the runtime, /var for the places a kubelet cannot be talked out of.
INSIDE = """
set -e
mount -t tmpfs tmpfs /run
mount -t overlay overlay -o lowerdir=/var,upperdir="$1/var",workdir="$1/var-work" /var
ip link set lo up
shift
exec "$@"
"""


def main(arguments: list[str]) -> int:
    if (reason := _why_not()) is not None:
        print(f"test-node is skipped: {reason}")
        return 0
    print(WORDS, flush=True)
    try:
        for program in ("kubelet", "kube-proxy"):
            gobuild.build_also(program, VERSION, cache_root())
        gobuild.build_helm(cache_root())
    except BinariesError as problem:
        print(f"test-node: {problem}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _stop)
    named = [Path(one).resolve() for one in arguments if one.endswith(".py")]
    rest = [one for one in arguments if not one.endswith(".py")]
    return max([_tested(file, rest) for file in named or sorted(Path(__file__).parent.glob("test_*.py"))])


def _tested(file: Path, arguments: list[str]) -> int:
    """The exit code of one file's tests, run in namespaces made for it."""
    with _kernel_settings_kept(), _cgroups(), tempfile.TemporaryDirectory(prefix="grove-node-") as directory:
        for name in ("var", "var-work"):
            (Path(directory) / name).mkdir()
        tests = [sys.executable, "-m", "pytest", "-x", str(file), "--basetemp", f"{directory}/tests", *arguments]
        command = ["unshare", *NAMESPACES, "sh", "-c", INSIDE, "sh", directory, *tests]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, "GROVE_NODE": "1"}, check=False).returncode


def _why_not() -> str | None:
    """The reason why no node can run here, after an attempt to install what is missing; None if one can."""
    if sys.platform != "linux":
        return "a kubelet runs on Linux only"
    if os.geteuid() != 0:
        return "a kubelet needs root"
    tried = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"namespaces cannot be made here ({tried.stderr.strip()})"
    if _missing() and shutil.which("apt-get"):
        print(f"installing {', '.join(PACKAGES)}", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for step in (["update", "--quiet"], ["install", "--quiet", "--yes", "--no-install-recommends", *PACKAGES]):
            subprocess.run(["apt-get", *step], stdout=subprocess.DEVNULL, env=environment, check=False)
    return f"{', '.join(_missing())} not found, and could not be installed" if _missing() else None


def _missing() -> list[str]:
    programs = ("containerd", "ctr", "runc", "ip", "iptables")
    return [name for name in programs if shutil.which(name) is None] + (
        [] if (PLUGINS / "bridge").exists() else [f"{PLUGINS}/bridge"]
    )


@contextmanager
def _kernel_settings_kept() -> Iterator[None]:
    files = [Path("/proc/sys") / name for name in KERNEL_SETTINGS]
    before = {file: file.read_text() for file in files if file.exists()}
    try:
        yield
    finally:
        for file, value in before.items():
            if file.read_text() != value:
                file.write_text(value)


@contextmanager
def _cgroups() -> Iterator[None]:
    """A cgroup for the node in every hierarchy, and none of it afterwards."""
    mounted = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    roots = [Path(where) / CGROUP for _, where, kind, *_ in mounted if kind in ("cgroup", "cgroup2")]
    for root in roots:
        root.mkdir(exist_ok=True)
    try:
        yield
    finally:
        for root in roots:
            for folder, _, _ in os.walk(root, topdown=False):
                _remove(folder)


def _remove(cgroup: str, patience_s: float = 5.0) -> None:
    end = time.monotonic() + patience_s
    while True:
        try:
            os.rmdir(cgroup)
            return
        except OSError as problem:
            # After an interrupt the last processes may still be on their way out.
            if problem.errno != errno.EBUSY or time.monotonic() > end:
                raise
            time.sleep(0.1)


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # an exception, so that everything is put right on the way out


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
