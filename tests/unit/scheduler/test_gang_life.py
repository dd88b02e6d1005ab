"""The life of a gang as a table: what happens in which phase, what cannot, and that no other module writes it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import grove.scheduler
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gang_life import (
    ENGAGED,
    AttemptBegan,
    AttemptEnded,
    Event,
    Evicting,
    EvictionEnded,
    HalfBound,
    Impossible,
    Life,
    Looked,
    Nominated,
    NominationDropped,
    Phase,
    Stands,
    TakenBack,
    TakingBack,
    after,
)
from grove.scheduler.policy.gang_state import GangState

READY = Looked(Phase.QUEUED, on_nodes=False, stood=False)
MINIMUM = AttemptBegan(is_minimum=True)
NOMINATED = Nominated(Reason("Preempting"))
BOUND = (AttemptEnded(is_minimum=True), Stands())


def lived(*events: Event) -> Life:
    life = Life()
    for event in events:
        life = after(life, event)
    return life


@pytest.mark.parametrize(
    ("events", "phase", "stood"),
    [
        pytest.param((), Phase.NEW, False, id="nobody looked yet"),
        pytest.param((READY,), Phase.QUEUED, False, id="ready"),
        pytest.param((READY, MINIMUM), Phase.BINDING, False, id="on its way"),
        pytest.param((READY, MINIMUM, *BOUND), Phase.PLACED, True, id="bound"),
        pytest.param((READY, MINIMUM, AttemptEnded(True)), Phase.QUEUED, False, id="the attempt failed"),
        pytest.param(
            (READY, MINIMUM, Looked(Phase.PLACED, True, False)), Phase.BINDING, False, id="reserved is not placed"
        ),
        pytest.param(
            (READY, MINIMUM, *BOUND, Looked(Phase.REPAIRING, True, True)), Phase.REPAIRING, True, id="lost a pod"
        ),
        pytest.param(
            (READY, MINIMUM, *BOUND, Looked(Phase.REPAIRING, True, True), MINIMUM, *BOUND),
            Phase.PLACED,
            True,
            id="repaired",
        ),
        pytest.param(
            (READY, MINIMUM, *BOUND, Looked(Phase.REPAIRING, True, True), MINIMUM, AttemptEnded(True)),
            Phase.REPAIRING,
            True,
            id="the repair failed",
        ),
        pytest.param(
            (READY, MINIMUM, *BOUND, Looked(Phase.WAITING_FOR_PODS, False, False)),
            Phase.WAITING_FOR_PODS,
            False,
            id="lost all its pods, and starts anew",
        ),
        pytest.param((READY, NOMINATED), Phase.NOMINATED, False, id="waits for victims"),
        pytest.param((READY, NOMINATED, NominationDropped()), Phase.QUEUED, False, id="lost its place"),
        pytest.param((READY, NOMINATED, MINIMUM), Phase.BINDING, False, id="the victims are gone"),
        pytest.param(
            (READY, MINIMUM, AttemptBegan(False), *BOUND), Phase.PLACED, True, id="surplus is on its way behind it"
        ),
        pytest.param(
            (READY, MINIMUM, AttemptEnded(True), HalfBound(9.0), TakingBack()),
            Phase.TAKING_BACK,
            False,
            id="half bound",
        ),
        pytest.param(
            (READY, MINIMUM, AttemptEnded(True), TakingBack(), TakenBack()),
            Phase.WAITING_FOR_PODS,
            False,
            id="taken back",
        ),
        pytest.param((READY, MINIMUM, *BOUND, Evicting("for x")), Phase.LEAVING, True, id="a victim"),
        pytest.param(
            (READY, MINIMUM, *BOUND, Evicting("for x"), Looked(Phase.REPAIRING, True, True)),
            Phase.LEAVING,
            True,
            id="a victim that lost a pod is still one",
        ),
        pytest.param(
            (READY, MINIMUM, *BOUND, Evicting("for x"), EvictionEnded(), Looked(Phase.PLACED, True, True)),
            Phase.PLACED,
            True,
            id="spared",
        ),
        pytest.param((Evicting("for x"),), Phase.LEAVING, False, id="an earlier scheduler began to evict it"),
    ],
)
def test_a_gang_lives(events: tuple[Event, ...], phase: Phase, stood: bool) -> None:
    life = lived(*events)
    assert (life.phase, life.stood) == (phase, stood)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param((AttemptEnded(True),), id="an attempt that never began ends"),
        pytest.param((READY, MINIMUM, *BOUND, AttemptEnded(True)), id="an attempt ends twice"),
        pytest.param((READY, MINIMUM, MINIMUM), id="its minimum is bound twice at once"),
        pytest.param((READY, MINIMUM, *BOUND, MINIMUM), id="its minimum is bound again while it stands"),
        pytest.param((READY, MINIMUM, NOMINATED), id="nominated while it is being bound"),
        pytest.param((READY, MINIMUM, *BOUND, TakingBack()), id="taken back after it stood"),
        pytest.param((READY, MINIMUM, Evicting("for x")), id="evicted while it is being bound"),
        pytest.param((READY, NOMINATED, Evicting("for x")), id="evicted while it waits for its own victims"),
        pytest.param((READY, MINIMUM, *BOUND, Evicting("for x"), Evicting("for y")), id="evicted twice"),
        pytest.param((READY, NominationDropped()), id="a place is given back that it never had"),
    ],
)
def test_what_cannot_happen_is_an_error_of_the_caller(events: tuple[Event, ...]) -> None:
    with pytest.raises(Impossible):
        lived(*events)


EVENTS = st.one_of(
    st.builds(
        Looked, st.sampled_from([phase for phase in Phase if phase not in ENGAGED]), st.booleans(), st.booleans()
    ),
    st.builds(AttemptBegan, st.booleans()),
    st.builds(AttemptEnded, st.booleans()),
    st.builds(HalfBound, st.none() | st.floats(0, 100)),
    st.sampled_from(
        [
            NOMINATED,
            NominationDropped(),
            Stands(),
            TakingBack(),
            TakenBack(),
            Evicting("x"),
            EvictionEnded(),
        ]
    ),
)


@given(st.lists(EVENTS, max_size=40))
def test_whatever_happens_the_books_are_in_order(events: list[Event]) -> None:
    life = Life()
    for event in events:
        try:
            life = after(life, event)
        except Impossible:
            continue
        assert life.extra >= 0
        assert (life.nominated is None) or life.phase in (Phase.NOMINATED, Phase.BINDING)
        assert bool(life.victim_of) == (life.phase is Phase.LEAVING)
        assert not (life.stood and life.deadline_s is not None and isinstance(event, Stands | Looked))


def test_no_other_module_writes_a_gangs_state() -> None:
    """Every module reads a GangState and reports events to it; only its own module sets its fields."""
    own = {*GangState.__struct_fields__} - {"name"}
    root = Path(grove.scheduler.__file__).parent
    written = []
    for path in sorted(root.rglob("*.py")):
        if path == root / "policy" / "gangs.py" or "GangState" not in path.read_text():
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            flat = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
            written += [
                f"{path.relative_to(root)}:{one.lineno} {ast.unparse(one)}"
                for one in flat
                if isinstance(one, ast.Attribute)
                and one.attr in own
                and not (isinstance(one.value, ast.Name) and one.value.id == "self")
            ]
    assert written == []
