"""Tests of the simulator run on its own loop, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from grove.sim.cluster import SimCluster
from grove.sim.loop import VirtualLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualLoop}


@pytest.fixture
async def cluster() -> AsyncIterator[SimCluster]:
    """An empty cluster: Grove's kinds, the usual namespaces, no nodes."""
    async with SimCluster() as found:
        yield found
