"""CPU time of one coroutine among others."""

from __future__ import annotations

import asyncio
import time

import pytest

from grove.plan.cpu_meter import CpuMeter


def _work(seconds: float) -> None:
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        pass


async def test_only_the_measured_coroutine_counts():
    meter = CpuMeter()

    async def measured() -> None:
        for _ in range(3):
            _work(0.01)
            await asyncio.sleep(0)

    async def other() -> None:
        for _ in range(3):
            _work(0.2)
            await asyncio.sleep(0)

    await asyncio.gather(meter.measured(measured()), other())
    assert 0.03 <= meter.spent_s < 0.3


async def test_a_cancellation_and_an_error_pass_through():
    meter, ended = CpuMeter(), []

    async def waits() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("waits")

    task = asyncio.ensure_future(meter.measured(waits()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["waits"]

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await meter.measured(fails())
