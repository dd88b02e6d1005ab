from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.asking import World, asking


@pytest.fixture
async def world(cluster: Any) -> AsyncIterator[World]:
    async with asking(cluster) as found:
        yield found
