"""Which pinned wheels an image takes, and that the pins for traces are those that the tests run with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.image import __main__ as image
from tools.image.sources import AMD64, Machine

REQUIREMENTS = Path(__file__).parents[3] / "requirements"


def pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w-]+)==(\S+)", (REQUIREMENTS / name).read_text(), re.MULTILINE))


@pytest.mark.parametrize("other", ["dev.txt", "runtime.txt"])
def test_the_pins_for_traces_agree(other: str) -> None:
    others = pins(other)
    assert {name: version for name, version in pins("otel.txt").items() if others.get(name, version) != version} == {}


def test_the_pins_for_traces_are_those_of_the_tests() -> None:
    assert pins("otel.txt").keys() <= pins("dev.txt").keys() | pins("runtime.txt").keys()


@pytest.mark.parametrize(
    ("has_otel", "names"),
    [
        pytest.param(False, ["a-1.whl", "idna-3.whl"], id="without traces"),
        pytest.param(True, ["a-1.whl", "b-1.whl", "idna-3.whl"], id="with traces, and none twice"),
    ],
)
def test_wheels_of_the_image(monkeypatch: pytest.MonkeyPatch, has_otel: bool, names: list[str]) -> None:
    def found(requirements: Path, cache: Path, machine: Machine) -> list[Path]:
        each = {"runtime.txt": ["a-1.whl", "idna-3.whl"], "otel.txt": ["b-1.whl", "idna-3.whl"]}
        return [cache / requirements.stem / name for name in each[requirements.name]]

    monkeypatch.setattr(image, "wheels", found)
    assert [one.name for one in image.pinned_wheels(Path("cache"), AMD64, has_otel=has_otel)] == names
