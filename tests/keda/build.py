"""KEDA's operator and metrics server, built once from their public Go module, with KEDA's CRDs beside them.

About twenty minutes on two cores: the module brings the clients of everything that KEDA can read.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from grove.local.binaries import cache_root, to_stderr
from grove.local.gobuild import find_go

MODULE, VERSION = "github.com/kedacore/keda/v2", "2.21.0"
PROGRAMS = {"keda-operator": "./cmd/operator", "keda-adapter": "./cmd/adapter"}
CRDS = "crds"


def directory() -> Path:
    """Where the programs are or will be; GROVE_KEDA names another place."""
    return Path(os.environ.get("GROVE_KEDA") or cache_root().parent / "keda" / VERSION)


def is_built() -> bool:
    return all(os.access(directory() / name, os.X_OK) for name in PROGRAMS) and (directory() / CRDS).is_dir()


def build() -> None:
    root = directory()
    root.mkdir(parents=True, exist_ok=True)
    go = str(find_go(cache_root(), to_stderr))
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false", "GOWORK": "off"}

    def run(*command: str, cwd: Path) -> str:
        return subprocess.run(
            [go, *command], cwd=cwd, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    told = json.loads(run("mod", "download", "-json", f"{MODULE}@v{VERSION}", cwd=root))
    source = root / "source"
    shutil.rmtree(source, ignore_errors=True)
    # Its own go.mod has replace directives, which count only where it is the main module.
    shutil.copytree(told["Dir"], source, copy_function=shutil.copy)
    for path in (source, *source.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)  # the module cache is read-only
    for name, package in PROGRAMS.items():
        begun = time.monotonic()
        to_stderr(f"building {name} {VERSION} …")
        run("build", "-trimpath", "-ldflags", "-s -w", "-o", str(root / name), package, cwd=source)
        to_stderr(f"building {name} {VERSION} … {time.monotonic() - begun:.0f} s")
    shutil.rmtree(root / CRDS, ignore_errors=True)
    shutil.copytree(source / "config" / "crd" / "bases", root / CRDS)
    shutil.rmtree(source)


if __name__ == "__main__":
    if not is_built():
        try:
            build()
        except subprocess.CalledProcessError as error:
            sys.exit(f"KEDA could not be built: {error}")
    print(directory())
