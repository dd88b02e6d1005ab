"""What `explain --scores` says if the place with the higher sum is not the chosen one."""

from __future__ import annotations

import pytest

from grove.cli.terminal import terminal
from grove.scheduler.explain.explanation import ScoredGang, ScoredPlace
from grove.show.scores import scores_tables


def place(total: int, closeness: float | None) -> ScoredPlace:
    return ScoredPlace({"n0": 1}, "rack-0", {"gpuCapability": total}, closeness)


@pytest.mark.parametrize(
    ("runs", "chosen", "other", "want"),
    [
        pytest.param(True, place(320, None), place(340, 1.0), "a gang that runs is not moved", id="it runs there"),
        pytest.param(False, place(320, 1.0), place(340, 0.5), "topology domains (1.00 against 0.50)", id="closer"),
        pytest.param(False, place(320, 1.0), place(340, 1.0), "chooses the domain first", id="by its domain"),
        pytest.param(True, place(340, None), place(320, 1.0), "", id="the higher one"),
    ],
)
def test_a_higher_score_that_is_not_chosen_has_a_reason(
    runs: bool, chosen: ScoredPlace, other: ScoredPlace, want: str
) -> None:
    console = terminal()
    console.width = 200
    with console.capture() as capture:
        console.print(scores_tables([ScoredGang("ns/chat-0", runs, chosen, other, {"gpuCapability": 1})], 200))
    text = capture.get()
    assert ("320" in text, "340" in text) == (True, True)
    assert (want in text) if want else not any(word in text for word in ("counts before", "scores higher", "first"))
