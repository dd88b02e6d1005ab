"""Builds the archive and the manifest by which krew installs `kubectl grove`: `python -m tools.krew https://…/v0.2.0`.

The argument is the address of the published archive. Both files are written to `dist/krew`. The archive
has this project with its dependencies and a launcher, for Linux on the processor of this machine. The dependencies have
compiled parts, so the launcher needs the minor version of Python that the archive was built with.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import yaml
from tools.version import ROOT, current

NAME, BIN = "grove", "kubectl-grove"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of processors in Linux, and in krew."""
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
DESCRIPTION = """\
Shows sets of LLM inference pods as trees, explains why a gang waits, and
follows, pauses, restarts and undoes updates of Grove's PodCliqueSets.
"""


def launcher(python: str = PYTHON) -> str:
    """krew starts it through a symbolic link."""
    return f"""#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}" exec {python} -m grove.cli.kubectl "$@"
"""


def archive(lib: Path) -> bytes:
    """A tar.gz of the installed packages and the launcher; the same bytes for the same files."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        _add(tar, BIN, launcher().encode(), 0o755)
        _add(tar, "LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644)
        for path in sorted(path for path in lib.rglob("*") if path.is_file() and path.suffix != ".pyc"):
            _add(tar, f"lib/{path.relative_to(lib)}", path.read_bytes(), 0o644)
    return gzip.compress(raw.getvalue(), mtime=0)


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def archive_name(arch: str) -> str:
    return f"{BIN}-linux-{arch}.tar.gz"


def manifest(version: str, base: str, sums: dict[str, str], homepage: str) -> dict[str, Any]:
    """The Plugin; `sums` are the SHA-256 sums of the archives by architecture."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": arch}},
            "uri": f"{base.rstrip('/')}/{archive_name(arch)}",
            "sha256": digest,
            "bin": BIN,
        }
        for arch, digest in sorted(sums.items())
    ]
    spec = {
        "version": f"v{version}",
        "homepage": homepage,
        "shortDescription": "Show and explain gangs of inference pods",
        "description": DESCRIPTION,
        "caveats": f"This plugin needs {PYTHON} on your PATH.\n",
        "platforms": platforms,
    }
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": spec,
    }


def main(base: str) -> None:
    if not re.match(r"https://[^/]+/", base):
        sys.exit(f"krew: the address of the archive must begin with https://, not {base}")
    arch, out = ARCHITECTURES[platform.machine()], ROOT / "dist" / "krew"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as lib:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", lib, str(ROOT)], check=True)
        content = archive(Path(lib))
    (out / archive_name(arch)).write_bytes(content)
    plugin = manifest(current(), base, {arch: hashlib.sha256(content).hexdigest()}, base.split("/releases/")[0])
    (out / f"{NAME}.yaml").write_text(yaml.safe_dump(plugin, sort_keys=False))
    print(f"{out / archive_name(arch)}: {len(content) >> 20} MiB\n{out / NAME}.yaml")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("krew: give the address under which the archive will be published")
    main(sys.argv[1])
