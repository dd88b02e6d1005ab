"""`python -m chaos.skewed SECONDS operator …`: a process of ours whose wall clock is wrong by SECONDS."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from grove.cli.main import main
from grove.kube.clock import SystemClock


def wrong_by(seconds: float) -> None:
    shift = timedelta(seconds=seconds)
    SystemClock.now = lambda self: datetime.now(UTC) + shift  # type: ignore[method-assign]


if __name__ == "__main__":
    wrong_by(float(sys.argv.pop(1)))
    main()
