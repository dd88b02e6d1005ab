"""Policies learn before every turn what waiting units ask for, by their own accounts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from tests.support.scheduler.kit import GPU, pod

from grove.api.podgang import PodGang
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.loop.state.unit import Units
from grove.scheduler.loop.state.waiting_demand import WaitingDemand
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.seams import Policy
from grove.scheduler.policy.gang_state import GangState


class Counting(Policy):
    name = "counting"

    def __init__(self, account: str) -> None:
        self._account = account
        self.asked: dict[str, dict[str, int]] = {}

    def account(self, pod: PodFacts) -> str | None:
        return f"{self._account}/{pod.namespace}"

    def note_demand(self, snapshot: Snapshot, asked: Mapping[str, Mapping[str, int]]) -> None:
        self.asked = {account: dict(amounts) for account, amounts in asked.items()}


class Silent(Policy):
    name = "silent"


class Waits:
    """A view of units with one pod each."""

    def __init__(self, *policies: Policy) -> None:
        self.snapshot = Snapshot()
        self.snapshot.use(self.snapshot.seams.joined(policies=policies))
        self.changes = SimpleNamespace(demand_changed=False)
        self.units = Units()
        self.facts: dict[str, PodFacts] = {}
        self.counted = SimpleNamespace(node_of=lambda pod: "")
        self.reader = SimpleNamespace(facts=lambda pod: pod.facts)

    def wait(self, **facts: PodFacts) -> None:
        """These units wait, and no others."""
        self.facts = facts
        for name in facts:
            self.units.gangs[name] = GangState(name, PodGang())

    def members(self, gang: GangState) -> Iterator[tuple[Any, str]]:
        yield SimpleNamespace(metadata=SimpleNamespace(is_deleting=False), facts=self.facts[gang.name]), ""


def gpus(asked: Mapping[str, Mapping[str, int]], account: str) -> int:
    return asked.get(account, {}).get(GPU, 0)


def demand(view: Waits) -> WaitingDemand:
    return WaitingDemand(view)  # type: ignore[arg-type]


def test_each_policy_gets_the_sums_of_its_own_accounts() -> None:
    one, other = Counting("one"), Counting("other")
    view = Waits(one, Silent(), other)
    view.wait(a=pod("a", gpu=2), b=pod("b", gpu=3))
    demand(view).begin_turn(view.facts, ())
    namespace = view.facts["a"].namespace
    assert gpus(one.asked, f"one/{namespace}") == 5
    assert gpus(other.asked, f"other/{namespace}") == 5


def test_a_unit_that_stops_to_wait_or_asks_for_something_else_changes_the_demand() -> None:
    policy = Counting("q")
    view = Waits(policy)
    view.wait(a=pod("a", gpu=2), b=pod("b", gpu=3))
    found = demand(view)
    found.begin_turn(view.facts, ())
    assert not view.changes.demand_changed
    view.facts["a"] = pod("a", gpu=1)
    found.begin_turn(view.facts, ["a"])
    assert view.changes.demand_changed
    view.changes.demand_changed = False
    del view.facts["b"]
    found.begin_turn(view.facts, ())
    assert view.changes.demand_changed
    assert gpus(policy.asked, f"q/{view.facts['a'].namespace}") == 1


def test_a_new_policy_counts_again_by_its_own_accounts() -> None:
    view = Waits(Counting("old"))
    view.wait(a=pod("a", gpu=2))
    found = demand(view)
    found.begin_turn(view.facts, ())
    new = Counting("new")
    view.snapshot.use(view.snapshot.seams.with_policies([new]))
    found.begin_turn(view.facts, ())
    assert list(new.asked) == [f"new/{view.facts['a'].namespace}"]
