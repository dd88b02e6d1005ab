"""A client of the simulator whose watches fall behind, so that a list shows at once what happened meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from grove.kube.client import WatchEvent
from grove.sim.client import SimClient


class Late(SimClient):
    """Watches of the kind `behind` that are open bring nothing more; those opened afterwards are sound."""

    behind: type | None = None

    async def watch(self, kind: Any, *args: Any, **kwargs: Any) -> AsyncIterator[WatchEvent[Any]]:
        opened_late = self.behind is kind
        async for event in super().watch(kind, *args, **kwargs):
            if self.behind is kind and not opened_late:
                await asyncio.get_running_loop().create_future()
            yield event
