"""Which fault comes when: a pure function of the seed.

A round has every fault once, in its own order. So a run of one round (about three minutes) has all of them. Between two
faults there is time to recover, or not, because the pause is random too. Meanwhile sets are made, scaled, updated and
deleted, about one change in two seconds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

FAULTS = (
    "kill_operator",
    "kill_scheduler",
    "restart_apiserver",
    "kill_apiserver",
    "pause_etcd",
    "fill_etcd",
    "cut_watches",
    "bad_line",
    "revoke_tokens",
    "spoil_certificate",
    "remove_webhooks",
    "remove_crd",
    "delete_nodes",
    "delete_pods",
    "lose_rack",
    "skew_clock",
    "edit_children",
    "delete_children",
)
CHANGES = ("create", "create", "scale_set", "scale_group", "scale_clique", "update", "update", "delete")
CHANGE_EVERY_S = 2.0
FIRST_FAULT_S = 20.0
"""The first sets stand by then."""
PAUSES_S = (2.0, 12.0)


@dataclass(frozen=True, slots=True)
class Step:
    at_s: float
    action: str
    dice: int
    """Seeds what the action itself draws: which process, which pods, for how long."""


def timetable(seed: int, minutes: float, faults: tuple[str, ...] = FAULTS) -> list[Step]:
    """All steps in order of time; the last fault begins before `minutes` are over."""
    return sorted(
        [*_faults(random.Random(f"faults {seed}"), minutes * 60, faults), *_changes(seed, minutes * 60)],
        key=lambda step: (step.at_s, step.action),
    )


def _faults(rng: random.Random, seconds: float, faults: tuple[str, ...]) -> list[Step]:
    steps, at_s, deck = list[Step](), FIRST_FAULT_S, list[str]()
    while at_s < seconds:
        if not deck:
            deck = rng.sample(faults, len(faults))
        steps.append(Step(at_s, deck.pop(), rng.getrandbits(32)))
        at_s += rng.uniform(*PAUSES_S)
    return steps


def _changes(seed: int, seconds: float) -> list[Step]:
    rng = random.Random(f"changes {seed}")
    count = int(seconds / CHANGE_EVERY_S)
    begin = ["create"] * 4
    return [
        Step(number * CHANGE_EVERY_S, begin.pop() if begin else rng.choice(CHANGES), rng.getrandbits(32))
        for number in range(count)
    ]
