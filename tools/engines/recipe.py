"""What an image of a sample is made of, as its image.toml says it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

SAMPLES = Path(__file__).parents[2] / "samples" / "engines"
NAME = "image.toml"


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Debian packages, wheels, programs, models and files, and how the image is run."""

    reference: str
    """The name that manifests use."""
    entry: list[str]
    debian: list[str] = []
    """Packages by name; tools/engines/debian.lock has their versions and hashes."""
    wheels: str = ""
    """A requirements file beside the recipe that pins every wheel by its hash."""
    programs: list[Literal["llama.cpp"]] = []
    """Software that is built from source, into /usr/bin."""
    models: list[Literal["tiny-a.gguf", "tiny-b.gguf", "tiny"]] = []
    """Models with random weights, made from a fixed seed, into /models."""
    files: dict[str, str] = {}
    """Path in the image: a file beside the recipe."""
    folders: list[str] = []
    """Empty folders that everyone may write to."""
    env: dict[str, str] = {}
    user: int = 65532
    shell: str = "/nologin"
    """The login shell of the image's user."""
    folder: Path = Path()
    """Where the recipe is."""

    @classmethod
    def of(cls, folder: Path) -> Recipe:
        """The recipe of a sample's folder; raises msgspec.ValidationError for a field that does not exist."""
        fields = tomllib.loads((folder / NAME).read_text())
        return msgspec.structs.replace(msgspec.convert(fields, cls), folder=folder)

    def path(self, name: str) -> Path:
        """A file beside the recipe."""
        return self.folder / name


def with_image(samples: Path = SAMPLES) -> list[str]:
    """The samples that have an image of their own, by name."""
    return sorted(file.parent.name for file in samples.glob(f"*/{NAME}"))
