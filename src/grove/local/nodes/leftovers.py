"""What a cluster of real nodes leaves behind when it is killed, and who removes it.

The kernel ends its processes, mounts and interfaces. Its cgroups, the kernel settings that a kubelet changes and its
files remain. A record in /run names them before anything starts. The cluster holds a lock on its record as long as it
lives, so a record without a lock is that of a killed cluster. A reboot clears /run, cgroups and kernel settings alike.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from grove.local.binaries import Say
from grove.local.nodes.layout import HOLDS, READY
from grove.local.nodes.preflight import KERNEL_SETTINGS, LEAST, CannotRun

RECORDS = Path("/run/grove-real-nodes")
_PATIENCE_S = 15.0


@dataclass(frozen=True)
class Record:
    """The changes of a cluster outside of its namespaces: its folder, and the earlier kernel settings."""

    directory: str
    settings: dict[str, str]


class Claim:
    """A cluster's record, locked. The lock lives as long as a process that inherited `descriptor`."""

    def __init__(self, file: Path, descriptor: int) -> None:
        self.file, self.descriptor = file, descriptor

    def write(self, directory: Path) -> None:
        """Records the kernel settings, and then raises those that are too low for nodes.

        Another cluster may have changed the settings already. Its record has the values of before.
        """
        with _settings_locked():
            others = [record for file in _files() if file != self.file and (record := _read(file)) is not None]
            settings = {name: _setting(name).read_text() for name in KERNEL_SETTINGS if _setting(name).exists()}
            for record in others:
                settings |= record.settings
            self.file.write_text(json.dumps(asdict(Record(str(directory), settings))))
            for name, least in LEAST.items():
                if name in settings and int(_setting(name).read_text()) < least:
                    _setting(name).write_text(f"{least}\n")

    def clean(self, say: Say) -> bool:
        """Removes what an earlier cluster of this directory left; False if there was nothing."""
        record = _read(self.file)
        if record is None:
            return False
        remove_cgroups(Path(record.directory))
        remove_files(Path(record.directory))
        with _settings_locked():
            self.file.write_text("")
            alone = not any(_read(file) for file in _files() if file != self.file)
            changed = [name for name, value in record.settings.items() if alone and _restore(name, value)]
        restored = f"; kernel settings restored: {', '.join(changed)}" if changed else ""
        say(f"removed: cgroups {cgroup(Path(record.directory))}, files of the nodes in {record.directory}{restored}")
        return True

    def release(self) -> None:
        """Gives up this process' hold. The lock stays if another process inherited it."""
        if _read(self.file) is None:
            self.file.unlink(missing_ok=True)
        os.close(self.descriptor)


def claim(directory: Path, *, wait_s: float = 0.0) -> Claim:
    """The claim to run, or to clean up after, a cluster in that directory. Raises CannotRun while one runs there.

    `wait_s`: the last process of a cluster that was stopped may hold the lock for a moment.
    """
    end = time.monotonic() + wait_s
    while (found_claim := _claim(_record_file(directory))) is None:
        if time.monotonic() > end:
            raise CannotRun(f"a cluster of real nodes runs in {directory}")
        time.sleep(0.1)
    return found_claim


@contextmanager
def claimed(directory: Path, *, wait_s: float = 0.0) -> Iterator[Claim]:
    own_claim = claim(directory, wait_s=wait_s)
    try:
        yield own_claim
    finally:
        own_claim.release()


def clean_dead(say: Say) -> None:
    """Removes what clusters of any directory left that were killed; those that run are not touched."""
    for file in _files():
        if _read(file) is not None and (dead := _claim(file)) is not None:
            dead.clean(say)
            dead.release()


def is_recorded(directory: Path) -> bool:
    """True if a cluster of real nodes ran in that directory and was not cleaned up."""
    return _read(_record_file(directory)) is not None


def cgroup(directory: Path) -> str:
    """The cgroup of a cluster's nodes. Each has its own: a kubelet ends pods below its cgroup that it did not start."""
    return f"grove-nodes-{_mark(directory)}"


def cgroup_roots(directory: Path) -> list[Path]:
    """The nodes' cgroup in every hierarchy that is mounted here."""
    mounted = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(where) / cgroup(directory) for _, where, kind, *_ in mounted if kind in ("cgroup", "cgroup2")]


def remove_cgroups(directory: Path) -> None:
    for root in cgroup_roots(directory):
        for folder, _, _ in os.walk(root, topdown=False):
            _remove(folder)


def remove_files(directory: Path) -> None:
    """The nodes' folders with images and volumes. Certificates and logs of the control plane stay."""
    for folder in [*directory.glob("node-*"), directory / HOLDS]:
        shutil.rmtree(folder, ignore_errors=True)
    (directory / READY).unlink(missing_ok=True)


@contextmanager
def _settings_locked() -> Iterator[None]:
    """Only one cluster at a time records or restores the kernel settings; a process that ends gives the lock up."""
    descriptor = os.open(RECORDS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _claim(file: Path) -> Claim | None:
    file.parent.mkdir(mode=0o700, exist_ok=True)
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                return Claim(file, descriptor)
        os.close(descriptor)  # its former owner removed the file between our two calls


def _files() -> list[Path]:
    return sorted(RECORDS.glob("*.json"))


def _record_file(directory: Path) -> Path:
    return RECORDS / f"{_mark(directory)}.json"


def _mark(directory: Path) -> str:
    return hashlib.sha256(str(directory).encode()).hexdigest()[:8]


def _read(file: Path) -> Record | None:
    """None for no record, an empty one, and one that was cut off: then nothing had started."""
    try:
        return Record(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _remove(folder: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with suppress(FileNotFoundError):
                os.rmdir(folder)
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
