"""OCI images as files: reproducible layers, and the archive that container runtimes import.

Everything that could differ between two builds of the same content is fixed: order of files, owners, times, modes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
EPOCH = "1970-01-01T00:00:00Z"


@dataclass
class Tree:
    """Files of a layer by their path: contents with a mode, or where a link points."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)

    def add(self, path: str, content: bytes, mode: int = 0o644) -> None:
        self.files[path] = (content, mode)

    def unpack(self, root: Path) -> None:
        """The files on disk, below a folder, with the same modes and links as in the layer."""
        for path, mode in sorted(self._every_folder().items()):
            (root / path).mkdir(parents=True, exist_ok=True)
            (root / path).chmod(mode)
        for path, (content, mode) in self.files.items():
            (root / path).write_bytes(content)
            (root / path).chmod(mode)
        for path, target in self.links.items():
            (root / path).symlink_to(target)

    def _every_folder(self) -> dict[str, int]:
        """Those named, and those that files and links are in."""
        folders = dict(self.folders)
        for path in (*self.files, *self.links):
            parts = path.split("/")
            for depth in range(1, len(parts)):
                folders.setdefault("/".join(parts[:depth]), 0o755)
        return folders

    def layer(self) -> bytes:
        """The layer as an uncompressed tar: every path once, folders before what is in them, all times zero."""
        folders = self._every_folder()
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted({*folders, *self.files, *self.links}):
                entry = tarfile.TarInfo(path)
                if path in self.links:
                    entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, self.links[path], 0o777
                    tar.addfile(entry)
                elif path in self.files:
                    content, entry.mode = self.files[path]
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
                else:
                    entry.type, entry.mode = tarfile.DIRTYPE, folders[path]
                    tar.addfile(entry)
        return out.getvalue()


@dataclass(frozen=True)
class Image:
    digest: str
    compressed: int
    """Bytes of all layers as they are pulled."""


def write_archive(target: Path, name: str, layers: Sequence[bytes], config: Mapping[str, Any], arch: str) -> Image:
    """An image as a tar that `ctr images import`, `podman load`, `skopeo` and `crane` read; `name` is its reference.

    Kubelets ask containerd for an image by its full name, so a short one is written out for it: `grove:1` is
    `docker.io/library/grove:1`.
    """
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    packed = [blob(gzip.compress(layer, 9, mtime=0), LAYER) for layer in layers]
    described = {
        "created": EPOCH,
        "architecture": arch,
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob(_json(described), CONFIG),
        "layers": packed,
    }
    top = blob(_json(manifest), MANIFEST)
    digest = str(top["digest"])
    top["annotations"] = {"io.containerd.image.name": full_name(name), "org.opencontainers.image.ref.name": name}
    archive = Tree()
    for key, content in blobs.items():
        archive.add(f"blobs/sha256/{key}", content)
    archive.add("index.json", _json({"schemaVersion": 2, "manifests": [top]}))
    archive.add("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    target.write_bytes(archive.layer())
    return Image(digest, sum(layer["size"] for layer in packed))


def full_name(name: str) -> str:
    """A reference with its registry, as `docker pull` reads it."""
    first, _, rest = name.partition("/")
    if not rest:
        return f"docker.io/library/{name}"
    is_host = "." in first or ":" in first or first == "localhost"
    return name if is_host else f"docker.io/{name}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
