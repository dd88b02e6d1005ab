"""The quick start names what is there, and every command of it is run by a test or says what it needs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from tests.support import quickstart

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_commands_that_no_test_runs_need_kind_k3s_or_a_registry() -> None:
    assert {block.needs for block in quickstart.blocks()} == {"", "kind", "k3s", "registry"}
    programs = {
        block.needs: {line.removeprefix("sudo ").split()[0] for line in block.commands}
        for block in quickstart.blocks()
        if block.needs
    }
    assert programs == {"kind": {"kind"}, "k3s": {"k3s"}, "registry": {"skopeo"}}


def test_make_test_node_builds_what_the_page_builds() -> None:
    (command,) = quickstart.built()
    targets = command.split()[1:]
    (recipe,) = re.findall(r"^test-node:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert f"--no-print-directory {' '.join(targets)}\n" in recipe
    assert "ARCH=arm64" in MAKEFILE


@pytest.mark.parametrize("command", [one for one in quickstart.run_here() if one.startswith("helm install")])
def test_charts_and_values_exist(command: str) -> None:
    words = shlex.split(command)
    assert (ROOT / words[3] / "Chart.yaml").is_file()
    for values in (words[at + 1] for at, word in enumerate(words) if word == "--values"):
        assert (ROOT / values).is_file()


def test_names_on_the_page_are_those_of_the_values() -> None:
    page = quickstart.PAGE.read_text()
    values = yaml.safe_load((ROOT / "charts/inference/values/llamacpp-rpc.yaml").read_text())
    assert f'"model": "{values["servedModelName"]}"' in page
    assert values["image"].rpartition("/")[2] in page
    example = (ROOT / "charts/inference/examples/llamacpp-rpc.yaml").read_text()
    assert "  - name: engine\n" in example, "kubectl scale podcliquescalinggroup/chat-0-engine"
    recipe = (ROOT / "samples/engines/llama-cpp-rpc/image.toml").read_text()
    assert f'reference = "{values["image"]}"' in recipe
