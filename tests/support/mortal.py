"""A client that dies of its writes, for operators that must be able to stop after any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from grove.api.meta import Resource
from grove.kube.errors import ConnectionLost
from grove.sim.crash import MortalClient

WRITES = ("create", "patch", "delete", "apply")


class DyingClient(MortalClient):
    """Dies after this number of writes: the last one is done, and its answer is lost. `kinds`: only these count."""

    def __init__(self, inner: Any, lives: int | None = None, kinds: Collection[str] = ()) -> None:
        super().__init__(inner)
        self.lives, self.written, self._kinds = lives, 0, kinds
        self.died = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)
        if name not in WRITES or self.lives is None:
            return call

        async def counted(kind: Any, *args: Any, **kw: Any) -> Any:
            answer = await call(kind, *args, **kw)
            resource: Resource = kind if isinstance(kind, Resource) else kind.RESOURCE
            if not kw.get("dry_run") and (not self._kinds or resource.kind in self._kinds):
                self.written += 1
                if self.lives is not None and self.written >= self.lives:
                    self.is_dead = True
                    self.died.set()
                    raise ConnectionLost("this process died of its last write")
            return answer

        return counted
