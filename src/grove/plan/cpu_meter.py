"""Measures the CPU time that one coroutine uses while others run beside it."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any


class CpuMeter:
    """`spent_s` is the CPU time of every coroutine that `measured` wraps. Tasks that they start are not included."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    @coroutine
    def measured(self, work: Coroutine[Any, Any, None]) -> Generator[Any, None, None]:
        error: BaseException | None = None
        while True:
            began_s = time.process_time()
            try:
                awaited = work.send(None) if error is None else work.throw(error)
            except StopIteration:
                return
            finally:
                self.spent_s += time.process_time() - began_s
            error = None
            try:
                yield awaited
            except BaseException as raised:  # a cancellation belongs to the work as well
                error = raised
