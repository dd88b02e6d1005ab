"""The values that docs/quickstart.md gives for a registry: Helm renders every image from it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from grove import __version__
from tests.helm.build import HELM
from tests.support import quickstart

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[2]
REGISTRY = "registry.example.com/team"


def installs() -> list[list[str]]:
    """The two `helm install` commands of the page, each with the values for a registry."""
    said = re.findall(r"`(--set [^`]*\$REGISTRY[^`]*)`", quickstart.PAGE.read_text())
    commands = [one for one in quickstart.run_here() if one.startswith("helm install")]
    return [
        shlex.split(f"{command} {values}".replace("$REGISTRY", REGISTRY))
        for command, values in zip(commands, said, strict=True)
    ]


def images(command: list[str], home: Path) -> set[str]:
    """Images in the objects that a command would install, with those that the operator puts into pods."""
    if not HELM.is_built:
        pytest.skip(f"Helm 4 is not in {HELM.directory}; `make test-helm` builds it")
    words = [str(HELM.directory / "helm"), "template", *command[2:]]
    homes = {f"HELM_{kind}_HOME": str(home / kind) for kind in ("CACHE", "CONFIG", "DATA")}
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **homes}, capture_output=True, text=True, check=True, timeout=60
    )
    assert list(yaml.safe_load_all(done.stdout))
    named = re.findall(r"^ *(?:- )?image: \"?([^\s\"]+)", done.stdout, re.MULTILINE)
    given = re.findall(r"GROVE_INIT_CONTAINER_IMAGE\n *value: \"?([^\s\"]+)", done.stdout)
    return {*named, *given}


def test_every_image_comes_from_the_registry(tmp_path: Path) -> None:
    grove, chat = installs()
    assert images(grove, tmp_path) == {f"{REGISTRY}/grove:{__version__}", f"{REGISTRY}/grove-initc"}
    assert images(chat, tmp_path) == {f"{REGISTRY}/llama-cpp-rpc:0.3.36"}
