"""Time at a pace: what a spectator waits for ends when he does."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from grove.demo.pace import PacedLoop, run_paced


def test_ctrl_c_ends_a_rest_at_once() -> None:
    async def reading() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PacedLoop)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        loop.rest(120.0)
        await asyncio.sleep(1.0)

    begun_s = time.monotonic()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background has it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            run_paced(reading())
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun_s < 60
