"""Images for containers of these tests, made of one static program each: there is no registry to pull others from."""

from __future__ import annotations

import hashlib
from pathlib import Path

from grove import __version__
from grove.local import gobuild
from grove.local.binaries import cache_root
from grove.local.oci import Tree, write_archive

HERE = Path(__file__).parent
USER = "65532:65532"
PORT = 8080
"""Where serve.go listens."""
SERVE = "docker.io/library/grove-serve:test"
"""The server that stands for engines, see serve.go."""
STARTUP = f"docker.io/library/grove-initc:{__version__}"
"""The init container's image in full; the operator's configuration names it `grove-initc`."""


def program_image(source: str, name: str, directory: Path) -> Path:
    """The archive of an image with this `name`, that runs one Go file of this folder without rights."""
    text, program = (HERE / source).read_text(), Path(source).stem
    version = hashlib.sha256(text.encode()).hexdigest()[:8]
    tree = Tree()
    tree.add(program, gobuild.build_main(program, version, text, cache_root()).read_bytes(), 0o755)
    archive = directory / f"{program}.tar"
    write_archive(archive, name, [tree.layer()], {"Entrypoint": [f"/{program}"], "User": USER}, "amd64")
    return archive
