"""Figures of a run that are computed from others."""

from __future__ import annotations

import pytest

from grove.fleet.figures import SERVING, WAITING, Figures
from grove.fleet.file import Team
from grove.fleet.results import _team


@pytest.mark.parametrize(
    ("quota", "serving", "waiting", "due", "fairness"),
    [
        pytest.param(8, 8, 0, 8.0, 1.0, id="it gets its quota"),
        pytest.param(8, 4, 12, 8.0, 0.5, id="it asks for more than its quota and gets half of it"),
        pytest.param(8, 2, 2, 4.0, 0.5, id="it asks for less than its quota: that is due"),
        pytest.param(8, 16, 0, 8.0, 2.0, id="it borrows"),
        pytest.param(None, 3, 1, 4.0, 0.75, id="without a quota everything it asks for is due"),
        pytest.param(8, 0, 0, 0.0, None, id="it asks for nothing"),
    ],
)
def test_what_is_due_to_a_team(quota, serving, waiting, due, fairness):
    figures = Figures({})
    figures.gpu_seconds_by_set["web"].update({SERVING: serving * 3600.0, WAITING: waiting * 3600.0})
    found = _team(Team("chat", quota=quota), figures, {"web": "chat"}, lasted_s=3600.0)
    assert (found["due"], found["fairness"]) == (due, fairness)
