"""The one function that decides a state: a row a rule, and the exit code and colour of every state."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from grove.diagnosis.states import CODES, SHORT, STYLES, WORST_FIRST, Facts, brief, code_of, state_of


@pytest.mark.parametrize(
    ("facts", "want"),
    [
        pytest.param({"serves": True, "whole": True, "placed": True}, "running", id="every pod is ready"),
        pytest.param({"wanted": 0}, "stopped", id="0 replicas"),
        pytest.param({"wanted": 0, "deleting": True}, "deleting", id="deleted while at 0 replicas"),
        pytest.param({"serves": True, "trouble": True, "placed": True}, "degraded", id="a surplus pod failed"),
        pytest.param({"serves": True, "waits": True, "placed": True}, "degraded", id="a surplus instance waits"),
        pytest.param({"serves": True, "whole": True, "astray": True}, "degraded", id="a required topology is not kept"),
        pytest.param({"trouble": True, "placed": True}, "broken", id="below the minimum after it had nodes"),
        pytest.param({"waits": True, "placed": True}, "broken", id="its pods lost their nodes and wait"),
        pytest.param({"trouble": True}, "waiting", id="no node was ever found"),
        pytest.param({"waits": True}, "waiting", id="it waits for its turn"),
        pytest.param({}, "starting", id="its pods are created"),
        pytest.param({"placed": True}, "starting", id="its pods start"),
        pytest.param({"serves": True, "placed": True}, "starting", id="a surplus pod starts"),
        pytest.param({"serves": True, "rollout": "updating"}, "updating", id="an update"),
        pytest.param({"waits": True, "placed": True, "rollout": "updating"}, "updating", id="new pods wait"),
        pytest.param({"trouble": True, "placed": True, "rollout": "updating"}, "broken", id="new pods fail"),
        pytest.param({"trouble": True, "serves": True, "rollout": "updating"}, "degraded", id="some new pods fail"),
        pytest.param({"serves": True, "whole": True, "behind": True}, "updating", id="a change that was not taken up"),
        pytest.param({"serves": True, "behind": True, "waits": True}, "degraded", id="a surplus instance waits before"),
        pytest.param({"serves": True, "whole": True, "rollout": "paused"}, "paused", id="a paused update"),
        pytest.param({"trouble": True, "placed": True, "rollout": "paused"}, "broken", id="a pod fails meanwhile"),
    ],
)
def test_the_state_follows_from_the_facts(facts: dict[str, Any], want: str) -> None:
    assert state_of(Facts(**facts)) == want


def test_every_combination_of_facts_has_a_state_with_an_exit_code_and_a_colour() -> None:
    names = ("serves", "whole", "placed", "trouble", "waits", "astray", "behind", "deleting")
    for values in product((False, True), repeat=len(names)):
        for wanted, rollout in product((0, 1), ("", "updating", "paused")):
            state = state_of(Facts(wanted=wanted, rollout=rollout, **dict(zip(names, values, strict=True))))
            assert state in WORST_FIRST
    assert set(CODES) == set(STYLES) == set(WORST_FIRST)


def test_degraded_has_an_exit_code_of_its_own() -> None:
    assert [one for one in CODES if CODES[one] == CODES["degraded"]] == ["degraded"]


@pytest.mark.parametrize(
    ("states", "want"),
    [
        pytest.param([], 0, id="no sets"),
        pytest.param(["running", "stopped"], 0, id="all is well"),
        pytest.param(["running", "starting"], 3, id="one starts"),
        pytest.param(["starting", "degraded"], 5, id="degraded is worse than starting"),
        pytest.param(["degraded", "broken"], 4, id="broken is worse than degraded"),
    ],
)
def test_the_worst_state_decides_the_exit_code(states: list[str], want: int) -> None:
    assert code_of(states) == want


@pytest.mark.parametrize(
    ("text", "lead", "fate", "want"),
    [
        pytest.param("no room", "", "", "no room", id="short already"),
        pytest.param(f"no room; {'x' * 80}", "", "", "no room", id="only the clauses that fit"),
        pytest.param("c: crashed", "x-1: ", "left as it is", "x-1: c: crashed; left as it is", id="with its fate"),
        pytest.param(
            "c: CrashLoopBackOff, ended with exit code 1, 1 restart",
            "",
            "will be restarted whole at 15:57 UTC",
            "c: CrashLoopBackOff, ended with exit code 1; will be restarted whole at 15:57",
            id="its fate instead of its last detail",
        ),
        pytest.param(
            f"{'x' * 60}, 1 restart",
            "",
            "will be restarted whole at 15:57 UTC",
            f"{'x' * 60}, 1 restart",
            id="no space for its fate",
        ),
        pytest.param("word " * 30, "", "", f"{('word ' * 15).strip()}…", id="whole words of a long clause"),
        pytest.param(
            "main: ended with exit code 1, 5 restarts: lookup kubernetes.default.svc.cluster.local on 10.96.0.10:53",
            "",
            "",
            "main: ended with exit code 1, 5 restarts: lookup kubernetes.default.svc.cluster…",
            id="a part of a long name",
        ),
        pytest.param("a\nb", "", "", "a", id="the first line"),
        pytest.param(
            "chat-0-w: 0/32 nodes can take one of its pods (31 insufficient nvidia.com/gpu, 1 with taint team)",
            "",
            "",
            "chat-0-w: 0/32 nodes fit (31 insufficient nvidia.com/gpu, 1 with taint team)",
            id="what rules the nodes out is kept",
        ),
    ],
)
def test_a_reason_in_a_list_is_short(text: str, lead: str, fate: str, want: str) -> None:
    assert brief(text, lead, fate) == want
    assert len(want) <= SHORT
