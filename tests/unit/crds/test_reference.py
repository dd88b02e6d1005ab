"""The API reference is what its generator makes, and every link in it leads somewhere."""

from __future__ import annotations

import re

from tools.crds.reference import FILE, rendered


def test_the_committed_reference_is_up_to_date() -> None:
    assert FILE.read_text() == rendered(), "run make docs"


def test_every_type_is_reported_once_and_every_link_has_its_heading() -> None:
    text = rendered()
    headings = re.findall(r"^##+ (\w+)$", text, re.MULTILINE)
    assert len(headings) == len(set(headings))
    assert {name.lower() for name in headings} >= set(re.findall(r"\(#(\w+)\)", text))


def test_a_field_is_reported_with_its_type_its_meaning_and_its_facts() -> None:
    lines = rendered().splitlines()
    want = (
        "| `type` | string | Who replaces pods after a change, and how. "
        "One of `RollingRecreate`, `OnDelete`, `Coherent`. "
        "Default `RollingRecreate`. |"
    )
    assert want in lines
    assert "| `cliques` | list of [CliqueTemplate](#cliquetemplate) | Cliques of one replica. **(required)** |" in lines
