"""The five CRDs of Grove, as installed files.

`make crds` writes the files from `grove.api`, `install` puts them into a cluster; who only wants them calls `load`.
"""

from __future__ import annotations

from importlib.resources import files

import msgspec

from grove.api.meta import Json

ALL = "all.json"
"""The same as the YAML files. Reading those takes 70 ms, and a simulated cluster would do little else."""


def load() -> list[Json]:
    """The CustomResourceDefinition objects, sorted by file name; fresh copies each time."""
    crds: list[Json] = msgspec.json.decode(files(__name__).joinpath(ALL).read_bytes())
    return crds


def load_text() -> str:
    """All of them as one YAML stream, ready for `kubectl apply --server-side -f -`."""
    found = (file for file in files(__name__).iterdir() if file.name.endswith(".yaml"))
    return "---\n".join(file.read_text(encoding="utf-8") for file in sorted(found, key=lambda file: file.name))
