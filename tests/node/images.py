"""Images for containers of these tests, made of one static program each: there is no registry to pull others from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tools.image.oci import Tree, write_archive

from grove.local import gobuild
from grove.local.binaries import cache_root, to_stderr

HERE = Path(__file__).parent
NOBODY = "65532:65532"
PORT = 8080
"""Where serve.go listens."""


def program_image(source: str, name: str, directory: Path) -> Path:
    """The archive of an image, known by `name`, that runs one Go file of this folder as nobody."""
    program = Path(source).stem
    built = directory / program
    go = gobuild.find_go(cache_root(), to_stderr)
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local"}
    command = [str(go), "build", "-trimpath", "-ldflags=-s -w", "-o", str(built), str(HERE / source)]
    subprocess.run(command, env=environment, cwd=HERE, check=True)
    tree = Tree()
    tree.add(program, built.read_bytes(), 0o755)
    built.unlink()
    archive = directory / f"{program}.tar"
    write_archive(archive, name, [tree.layer()], {"Entrypoint": [f"/{program}"], "User": NOBODY}, "amd64")
    return archive
