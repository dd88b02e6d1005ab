"""Every claim of docs/security.md names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/security.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| Claim", "| Token of"))]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:60])
def test_a_claim_is_shown_by_a_test(row: str) -> None:
    shown_by = row.strip().strip("|").split("|")[-1].strip()
    found = re.fullmatch(r"(tests/[\w/]+\.py)(?:::(test_\w+))?", shown_by)
    assert found is not None, f"no test in the last column: {shown_by}"
    source = (ROOT / found[1]).read_text()
    assert not found[2] or re.search(rf"^(?:async )?def {found[2]}\(", source, re.MULTILINE), shown_by


def test_there_are_claims() -> None:
    assert len(ROWS) > 25
