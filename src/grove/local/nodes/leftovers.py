"""One cluster of real nodes at a time on a machine, and what it leaves behind when it is killed.

The kernel ends its processes, mounts and interfaces. Its cgroups, the kernel settings that a kubelet changes and its
files remain. A record in /run names them before anything starts. The record is locked as long as the cluster lives, so
whoever gets the lock and finds a record cleans up first. A reboot clears /run, cgroups and kernel settings alike.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from grove.local.binaries import Say
from grove.local.nodes.layout import HOLDS, READY
from grove.local.nodes.preflight import KERNEL_SETTINGS, CannotRun

RECORD = Path("/run/grove-real-nodes.json")
CGROUP = "grove-nodes"
"""All cgroups of the nodes are below this one."""
_PATIENCE_S = 15.0


@dataclass(frozen=True)
class Record:
    """What a cluster changes outside of its namespaces: its folder, and the kernel settings as they were."""

    directory: str
    settings: dict[str, str]


class Claim:
    """The right to run real nodes on this machine: the lock on the record. `inside` inherits `descriptor`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def write(self, directory: Path) -> None:
        settings = {name: _setting(name).read_text() for name in KERNEL_SETTINGS if _setting(name).exists()}
        content = json.dumps(asdict(Record(str(directory), settings))).encode()
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, content, 0)

    def found(self) -> Record | None:
        """What an earlier cluster left; None if it ended in order."""
        content = os.pread(self.descriptor, 1 << 20, 0)
        try:
            return Record(**json.loads(content)) if content else None
        except (ValueError, TypeError):
            return Record("", {})  # killed while it wrote, so nothing had started

    def clean(self, say: Say) -> bool:
        """Removes what an earlier cluster left; False if there was nothing."""
        record = self.found()
        if record is None:
            return False
        remove_cgroups()
        changed = [name for name, value in record.settings.items() if _restore(name, value)]
        if record.directory:
            remove_files(Path(record.directory))
        os.ftruncate(self.descriptor, 0)
        said = f"; kernel settings restored: {', '.join(changed)}" if changed else ""
        say(f"removed: cgroups {CGROUP}, files of the nodes in {record.directory or 'no folder'}{said}")
        return True

    def release(self) -> None:
        """Gives up this process' hold. The lock stays if another process inherited it."""
        os.close(self.descriptor)


def recorded() -> Record | None:
    """What a cluster of real nodes changes, or changed, on this machine; None if there is none."""
    try:
        descriptor = os.open(RECORD, os.O_RDONLY)
    except OSError:
        return None
    try:
        return Claim(descriptor).found()
    finally:
        os.close(descriptor)


def claim(say: Say, *, wait_s: float = 0.0) -> Claim:
    """The claim, after at most `wait_s`. Raises CannotRun while another cluster of real nodes runs."""
    descriptor = os.open(RECORD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    end, told = time.monotonic() + wait_s, False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Claim(descriptor)
        except BlockingIOError:
            other = Claim(descriptor).found()
            where = f" in {other.directory}" if other else ""
            if time.monotonic() > end:
                os.close(descriptor)
                raise CannotRun(f"another cluster of real nodes runs on this machine{where}") from None
            if not told:
                say(f"another cluster of real nodes runs on this machine{where}; waiting for its end")
                told = True
            time.sleep(0.5)


def cgroup_roots() -> list[Path]:
    """The nodes' cgroup in every hierarchy that is mounted here."""
    mounted = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(where) / CGROUP for _, where, kind, *_ in mounted if kind in ("cgroup", "cgroup2")]


def remove_cgroups() -> None:
    for root in cgroup_roots():
        for folder, _, _ in os.walk(root, topdown=False):
            _remove(folder)


def remove_files(directory: Path) -> None:
    """The nodes' folders with images and volumes. Certificates and logs of the control plane stay."""
    for folder in [*directory.glob("node-*"), directory / HOLDS]:
        shutil.rmtree(folder, ignore_errors=True)
    (directory / READY).unlink(missing_ok=True)


def _remove(cgroup: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with suppress(FileNotFoundError):
                os.rmdir(cgroup)
            return
        except OSError as problem:
            # The last processes may still be on their way out.
            if problem.errno != errno.EBUSY or time.monotonic() > end:
                raise
            time.sleep(0.1)


def _setting(name: str) -> Path:
    return Path("/proc/sys") / name


def _restore(name: str, value: str) -> bool:
    if _setting(name).read_text() == value:
        return False
    _setting(name).write_text(value)
    return True
