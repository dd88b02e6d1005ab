from collections.abc import AsyncIterator

import pytest
from tests.unit.kube.api import FakeApi, serving


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving(FakeApi()) as running:
        yield running
