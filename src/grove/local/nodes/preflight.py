"""What real nodes need of a machine, what they cost, and how to get what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from grove.local.binaries import cache_root
from grove.local.nodes.layout import PLUGINS

PACKAGES = ("containerd", "runc", "containernetworking-plugins", "iptables", "nftables", "iproute2", "util-linux")
_PROGRAMS = ("containerd", "ctr", "runc", "ip", "iptables", "nft", "nsenter", "unshare", "mount")
NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
HIDDEN = ("/run", "/var/lib", "/var/log")
"""A node has these folders for itself; the cluster's files may not be below them."""
LONGEST_DIRECTORY = 107 - len("/node-1/kubelet/pod-resources/4294967295")
"""The kubelet has sockets below the directory, and Linux limits the path of a socket to 107 characters."""
DISK_GB, FIRST_DISK_GB, MEMORY_GB = 6, 14, 3
INSTALL = f"apt-get update && apt-get install --no-install-recommends {' '.join(PACKAGES)}"


class CannotRun(RuntimeError):
    """Real nodes cannot run here; the message names everything that is missing and how to get it."""


def words(count: int) -> str:
    """The text that `grove up --real-nodes` prints first: what it starts, what it needs, and how long that takes."""
    return f"""\
{count} real nodes on this machine: kubelet, containerd, kube-proxy on each; CoreDNS; in namespaces of their own.
  needs     root, {DISK_GB} GB of disk ({FIRST_DISK_GB} GB and Go the first time), {MEMORY_GB} GB of memory
  takes     about half a minute; 10 to 20 minutes the first time, when the programs are built from source
  packages  {", ".join(PACKAGES)}
  changes   kernel settings ({", ".join(KERNEL_SETTINGS)}); the end restores them
"""


LEAST = {"fs/inotify/max_user_instances": 1024}
"""Settings that are raised to this. A kubelet and its pods need dozens; the usual 128 are for all programs of root."""
# A kubelet sets the others for the whole machine when it starts.
KERNEL_SETTINGS = (
    *LEAST,
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


def check(directory: Path) -> None:
    """Raises CannotRun with every reason at once."""
    if sys.platform != "linux":
        raise CannotRun("a kubelet runs on Linux only")
    reasons = [*_rights(), *_missing(), *_space(directory)]
    hidden = [folder for folder in HIDDEN if directory.is_relative_to(folder)]
    if hidden:
        reasons.append(
            f"the directory {directory} is below {hidden[0]}, which nodes have for themselves: choose another"
        )
    if len(str(directory)) > LONGEST_DIRECTORY:
        long = f"the path of the directory {directory} has {len(str(directory))} characters"
        reasons.append(f"{long}, and {LONGEST_DIRECTORY} are possible: choose a shorter one")
    if reasons:
        raise CannotRun("real nodes cannot run here:\n" + "\n".join(f"  - {reason}" for reason in reasons))


def _rights() -> list[str]:
    if os.geteuid() != 0:
        return ["a kubelet needs root: run this with sudo or as root"]
    tried = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, check=False)
    return [f"namespaces cannot be made here ({tried.stderr.strip()})"] if tried.returncode else []


def missing_programs() -> list[str]:
    """The programs that are not installed. An administrator's folders count, also when PATH lacks them."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in _PROGRAMS if shutil.which(name, path=path) is None]
    return absent + [str(PLUGINS / name) for name in ("ptp", "host-local") if not (PLUGINS / name).exists()]


def _missing() -> list[str]:
    absent = missing_programs()
    return [f"not installed: {', '.join(absent)}. On Debian and Ubuntu: {INSTALL}"] if absent else []


def _space(directory: Path) -> list[str]:
    reasons = []
    for folder, needed in ((directory, DISK_GB), (cache_root(), DISK_GB)):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(there).free / 1e9
        if free < needed:
            reasons.append(f"the disk of {folder} has {free:.1f} GB free, {needed} GB are needed")
    return reasons
