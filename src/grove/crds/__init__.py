"""The five CRDs of Grove and the three of its dialects, as installed files.

`make crds` writes the files from `grove.api`. `install` puts them into a cluster. `load` only returns them.
"""

from __future__ import annotations

from importlib.resources import files

import msgspec

from grove.api.meta import Json

ALL = "all.json"
"""The same as the YAML files. Reading those takes 70 ms, and a simulated cluster would do little else."""
DIALECTS_FOLDER = "dialects"


def load(*, dialects: bool = False) -> list[Json]:
    """The CustomResourceDefinition objects, sorted by file name, those of the dialects last; fresh copies each time."""
    names = (ALL, f"{DIALECTS_FOLDER}/{ALL}") if dialects else (ALL,)
    return [crd for name in names for crd in msgspec.json.decode(files(__name__).joinpath(name).read_bytes())]


def load_text(*, dialects: bool = False) -> str:
    """All of them as one YAML stream, ready for `kubectl apply --server-side -f -`."""
    here = files(__name__)
    folders = (here, here.joinpath(DIALECTS_FOLDER)) if dialects else (here,)
    sorted_files = (
        sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
        for folder in folders
    )
    return "---\n".join(file.read_text(encoding="utf-8") for folder in sorted_files for file in folder)
