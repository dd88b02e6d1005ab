from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.asking import World, asking
from tests.support.shell import Shell

from grove.local.controlplane import ControlPlane


@pytest.fixture
async def world(cluster: Any) -> AsyncIterator[World]:
    async with asking(cluster) as found:
        yield found


@pytest.fixture
def shell(real_plane: ControlPlane | None, tmp_path: Path) -> Shell | None:
    """A shell with kubectl on a real API server; None on the simulator."""
    return None if real_plane is None else Shell(real_plane, tmp_path)
