"""The five CRDs of Grove, as installed files.

`generate` makes the files from `grove.api`, `install` puts them into a cluster; who only wants them calls `load`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec
import yaml

from grove.api.meta import Json

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load() -> list[Json]:
    """The CustomResourceDefinition objects, sorted by file name; fresh copies each time."""
    crds: list[Json] = msgspec.json.decode(_encoded())
    return crds


@cache
def _encoded() -> bytes:
    """As JSON: reading the YAML takes 70 ms, and whoever makes many simulated clusters would do little else."""
    return msgspec.json.encode([yaml.load(text, Loader=_LOADER) for text in _texts()])


def load_text() -> str:
    """All of them as one YAML stream, ready for `kubectl apply --server-side -f -`."""
    return "---\n".join(_texts())


def _texts() -> list[str]:
    found = (file for file in files(__name__).iterdir() if file.name.endswith(".yaml"))
    return [file.read_text(encoding="utf-8") for file in sorted(found, key=lambda file: file.name)]
