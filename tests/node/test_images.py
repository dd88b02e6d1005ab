"""The image of an engine, built again: the same bytes. `make test-node` built the first one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tools.engines.__main__ import default_cache
from tools.engines.assemble import write_image
from tools.engines.recipe import SAMPLES, Recipe

from tests.node.conftest import IMAGES


@pytest.mark.parametrize("name", ["mpi", "dynamo"])
def test_an_image_that_is_built_again_has_the_same_digest(name: str, tmp_path: Path) -> None:
    again, image = write_image(Recipe.of(SAMPLES / name), tmp_path, default_cache())
    before = IMAGES / "engines" / again.name
    print(f"\n{again.name} {image.digest}")
    assert _digest(again) == _digest(before)


def _digest(archive: Path) -> str:
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
