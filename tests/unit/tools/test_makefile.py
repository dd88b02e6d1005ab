"""Commands that take long say so before they begin, and what they put on the machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = (
    "answer",
    "audit-rbac",
    "bench",
    "chaos",
    "coverage",
    "engines",
    "image",
    "scale",
    "soak",
    "test-browser",
    "test-failover",
    "test-gitops",
    "test-image",
    "test-karpenter",
    "test-helm",
    "test-kueue",
    "test-keda",
    "test-node",
    "test-vpa",
)


def recipe(target: str) -> str:
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None, target
    return found[1]


def announced(target: str) -> str:
    """What the target says itself, or the program that it starts."""
    lines = recipe(target)
    said = "".join(re.findall(r'^\t@echo "(.*)"', lines, re.MULTILINE))
    module = re.search(r"-m ((?:tests|bench|chaos)[\w.]*)", lines)
    if said or module is None:
        return said
    file = ROOT / module[1].replace(".", "/")
    return (file / "__main__.py" if file.is_dir() else file.with_suffix(".py")).read_text()


@pytest.mark.parametrize("target", HEAVY)
def test_it_says_how_long_it_takes_and_what_it_installs(target: str) -> None:
    said = announced(target)
    assert re.search(r"minute|hour", said), said
    assert re.search(r"installs|is installed", said), said


def test_every_command_is_known_to_be_quick_or_heavy() -> None:
    quick = {
        "help",
        "demo",
        "test",
        "unit",
        "lint",
        "audit",
        "crds",
        "charts",
        "docs",
        "docs-site",
        "kube-bin",
        "clean",
    }
    listed = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(listed) == quick | set(HEAVY)
