"""The pictures in the README: made by the program, and the committed ones show what it still draws."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from tools.pictures import PICTURES, pictures

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return pictures()


def words(svg: str) -> set[str]:
    """What is written in a drawing, without what the dice decide: names of pods, and how far they are."""
    texts = [(one.text or "").strip() for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    named = {text for text in texts if re.fullmatch(r"[a-z][a-z-]*[a-z](-\d+)*( \d\.\d\d)?", text)}
    return {text for text in named if not re.fullmatch(r"[bcdfghjklmnpqrstvwxz2456789]{5}", text)}


def test_the_same_pictures_are_drawn_again(drawn: dict[str, str]) -> None:
    assert pictures() == drawn


@pytest.mark.parametrize("name", ["tree.svg", "topology.svg"])
def test_the_committed_picture_shows_what_is_drawn_today(drawn: dict[str, str], name: str) -> None:
    committed = (PICTURES / name).read_text()
    assert words(committed) == words(drawn[name]), "run make docs"
    assert len(committed) < 40_000


def test_the_tree_names_every_role_and_the_topology_every_gang(drawn: dict[str, str]) -> None:
    roles = {"router", "decode-leader", "decode-worker", "prefill-leader", "prefill-worker"}
    assert roles <= words(drawn["tree.svg"])
    assert {"agents-0", "chat-0", "deepseek-0", "deepseek-1"} <= words(drawn["topology.svg"])


def test_no_shape_of_the_topology_lies_across_another(drawn: dict[str, str]) -> None:
    frames = [
        (float(one.attrib["x"]), float(one.attrib["y"]), float(one.attrib["width"]), float(one.attrib["height"]))
        for one in ElementTree.fromstring(drawn["topology.svg"]).iter(f"{SVG}rect")
        if one.attrib["fill"].startswith("rgb")
    ]
    assert len(frames) == 1 + 2 + 4 + 16
    assert all(_apart(a, b) or _within(a, b) or _within(b, a) for a in frames for b in frames)


Frame = tuple[float, float, float, float]


def _within(a: Frame, b: Frame) -> bool:
    return a[0] >= b[0] and a[1] >= b[1] and a[0] + a[2] <= b[0] + b[2] and a[1] + a[3] <= b[1] + b[3]


def _apart(a: Frame, b: Frame) -> bool:
    return a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0] or a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1]
