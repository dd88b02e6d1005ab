"""A rate of requests: how many at once, how fast afterwards, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from grove.kube.rate import Rate
from grove.sim.loop import VirtualLoop


async def turns(rate: Rate, count: int) -> list[float]:
    """When each of `count` requests that were asked for at once may go, from now."""
    began = asyncio.get_running_loop().time()

    async def one() -> float:
        await rate.turn()
        return round(asyncio.get_running_loop().time() - began, 6)

    return list(await asyncio.gather(*(one() for _ in range(count))))


@pytest.mark.parametrize(
    ("per_s", "burst", "want"),
    [
        pytest.param(10.0, 1, [0.0, 0.1, 0.2, 0.3], id="one by one"),
        pytest.param(10.0, 3, [0.0, 0.0, 0.0, 0.1], id="a burst, then evenly"),
        pytest.param(0.5, 0, [0.0, 2.0, 4.0, 6.0], id="no burst is a burst of one"),
    ],
)
def test_turns(per_s: float, burst: int, want: list[float]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(turns(Rate(per_s, burst), 4)) == want


def test_a_pause_earns_a_burst_and_no_more() -> None:
    async def run() -> list[float]:
        rate = Rate(10.0, 2)
        await turns(rate, 5)
        await asyncio.sleep(60.0)
        return await turns(rate, 4)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(run()) == [0.0, 0.0, 0.1, 0.2]


def test_a_request_that_is_given_up_gives_its_turn_back() -> None:
    async def run() -> list[float]:
        rate = Rate(10.0, 1)
        await rate.turn()
        given_up = [asyncio.ensure_future(rate.turn()) for _ in range(100)]
        await asyncio.sleep(0.01)
        for one in given_up:
            one.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        return await turns(rate, 3)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(run()) == [0.09, 0.19, 0.29]
