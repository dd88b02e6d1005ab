"""Container images without a registry: OCI archives written from what is on this machine.

Two of them: a pause program, and the local Python with `grove.startup` and the tests' server in it, which stands for
the image that the Dockerfile's target `initc` makes.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src"
HERE = Path(__file__).parent
NOBODY = "65532:65532"
UNUSED = frozenset({"test", "tests", "site-packages", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"})

Fill = Callable[[tarfile.TarFile], None]


def pause_image(name: str, program: Path, archive: Path) -> None:
    def fill(layer: tarfile.TarFile) -> None:
        _add(layer, program, "pause", mode=0o755)

    _write_archive(archive, name, [fill], {"Entrypoint": ["/pause"], "User": NOBODY})


def python_image(name: str, archive: Path) -> None:
    """As the Dockerfile's `initc`: runs `python -m grove.startup` as nobody. `/opt/serve.py` is for main containers."""
    config = {
        "Entrypoint": ["/usr/local/bin/python", "-m", "grove.startup"],
        "User": NOBODY,
        "Env": [
            "PATH=/usr/local/bin", "PYTHONHOME=/usr/local", "LD_LIBRARY_PATH=/usr/local/lib",
            "PYTHONPATH=/opt/grove", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1",
        ],
    }  # fmt: skip
    _write_archive(archive, name, [_python, _grove], config)


def _python(layer: tarfile.TarFile) -> None:
    interpreter = Path(sys.executable).resolve()
    standard = Path(sysconfig.get_path("stdlib"))
    extensions = sorted((standard / "lib-dynload").glob("*.so"))
    _add(layer, interpreter, "usr/local/bin/python", mode=0o755)
    layer.add(standard, f"usr/local/lib/{standard.name}", filter=_wanted)
    for asked, found in sorted(_libraries([interpreter, *extensions]).items()):
        # The loader has a fixed place in every program; all else is found through LD_LIBRARY_PATH.
        place = asked.lstrip("/") if asked.startswith("/") else f"usr/local/lib/{asked}"
        _add(layer, found, place, mode=0o755)


def _grove(layer: tarfile.TarFile) -> None:
    _add(layer, SOURCE / "grove" / "__init__.py", "opt/grove/grove/__init__.py")
    for module in sorted((SOURCE / "grove" / "startup").glob("*.py")):
        _add(layer, module, f"opt/grove/grove/startup/{module.name}")
    _add(layer, HERE / "serve.py", "opt/serve.py")


def _libraries(programs: Sequence[Path]) -> dict[str, Path]:
    """Shared libraries these programs load: by the name they ask for, where it is on this machine."""
    told = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    named = dict(re.findall(r"^\s+(\S+) => (/\S+) \(", told, re.MULTILINE))
    loaders = set(re.findall(r"^\s+(/\S+/ld-\S+) \(", told, re.MULTILINE))
    return {name: Path(at).resolve() for name, at in (named | {one: one for one in loaders}).items()}


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = Path(entry.name).parts[4:]
    if parts and (parts[0] in UNUSED or parts[0].startswith("config-")):
        return None
    return _plain(entry, 0o755 if entry.isdir() or entry.name.endswith(".so") else 0o644)


def _add(layer: tarfile.TarFile, file: Path, place: str, mode: int = 0o644) -> None:
    content = file.read_bytes()
    entry = tarfile.TarInfo(place)
    entry.size = len(content)
    layer.addfile(_plain(entry, mode), io.BytesIO(content))


def _plain(entry: tarfile.TarInfo, mode: int) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = mode
    return entry


def _write_archive(archive: Path, name: str, fills: Sequence[Fill], config: dict[str, Any]) -> None:
    """An OCI image layout as a tar file; `name` is what the container runtime will know the image by."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    with tarfile.open(archive, "w") as out:
        layers = []
        for fill in fills:
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as layer:
                fill(layer)
            layers.append(_blob(out, buffer.getvalue(), "application/vnd.oci.image.layer.v1.tar"))
        described = {
            "architecture": architecture, "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        }  # fmt: skip
        manifest = {
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _blob(out, _json(described), "application/vnd.oci.image.config.v1+json"), "layers": layers,
        }  # fmt: skip
        described_by = _blob(out, _json(manifest), manifest["mediaType"])
        described_by["annotations"] = {"io.containerd.image.name": name}
        _member(out, "index.json", _json({"schemaVersion": 2, "manifests": [described_by]}))
        _member(out, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))


def _blob(out: tarfile.TarFile, content: bytes, media_type: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    _member(out, f"blobs/sha256/{digest}", content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _member(out: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    out.addfile(entry, io.BytesIO(content))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
