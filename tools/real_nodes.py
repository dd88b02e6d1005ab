"""The first step of `make answer` and `make test-node`: what they need, before anything is built.

It installs the Debian packages that are missing. If it may not, it names everything that is missing and ends with 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.engines import llama

from grove.local.nodes import preflight

ROOT = Path(__file__).parents[1]
PROGRAMS = {**llama.TOOLS, "ssh-keygen": "openssh-client", "curl": "curl"}
"""Programs that builds and tests use beside those of the nodes, each with the Debian package that has it."""

OTHER_APT_S = 600
"""How long apt-get waits for another one, such as the unattended upgrades of a new machine."""


def main() -> int:
    print(preflight.words(2), flush=True)
    install(missing_packages())
    problems = []
    try:
        preflight.check(ROOT / "build")
    except preflight.CannotRun as problem:
        problems.append(str(problem))
    if absent := missing_programs():
        packages = " ".join(PROGRAMS[name] for name in absent)
        problems.append(f"not installed: {', '.join(absent)}. On Debian and Ubuntu: apt-get install {packages}")
    print("".join(f"{problem}\n" for problem in problems), end="", file=sys.stderr)
    return 1 if problems else 0


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name) is None]


def missing_packages() -> list[str]:
    """The packages of real nodes if one of their programs is missing, and those of the other missing programs."""
    nodes = preflight.PACKAGES if preflight.missing_programs() else ()
    return [*nodes, *(PROGRAMS[name] for name in missing_programs())]


def install(packages: list[str]) -> None:
    """Installs packages where this is possible: with root rights and apt-get. The check afterwards reports the rest."""
    if not packages or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    print(f"installing {', '.join(packages)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update", "--quiet"], ["install", "--quiet", "--yes", "--no-install-recommends", *packages]):
        command = ["apt-get", "-o", f"DPkg::Lock::Timeout={OTHER_APT_S}", *step]
        subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=False)


if __name__ == "__main__":
    raise SystemExit(main())
