"""The one door to a cluster: the protocol that controllers, scheduler and tools are written against.

`grove.kube.http.HttpClient` speaks it to an API server, `grove.sim` answers it from memory. A kind is named by its
Struct class, which carries the URL (`await client.get(Pod, "web-0", "default")`), or by a bare `Resource` when the
whole JSON object is wanted. Errors are those of `grove.kube.errors`, whichever cluster answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, overload

from grove.api.meta import Json, Object, Resource

T = TypeVar("T", bound=Object)
Item = TypeVar("Item", covariant=True)

Propagation = Literal["Background", "Foreground", "Orphan"]
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
Patch = Json | Sequence[Json]
"""A mapping is a JSON merge patch, a sequence of operations a JSON patch."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """One page of a list; `next_page` is empty on the last one."""

    items: Sequence[Item]
    resource_version: str
    next_page: str = ""


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[Item]):
    """One change. A BOOKMARK carries no object, only how far the stream has come (`resource_version`).

    `initial_done` is set on the bookmark that ends the initial events of a streamed list.
    """

    type: EventType
    object: Item | None
    resource_version: str
    initial_done: bool = False


class Client(Protocol):
    """The calls to a cluster. Each can raise `KubeError`, and each lets cancellation pass."""

    @overload
    async def get(self, kind: type[T], name: str, namespace: str = "") -> T: ...
    @overload
    async def get(self, kind: Resource, name: str, namespace: str = "") -> Json: ...

    @overload
    async def list(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        next_page: str = "",
        resource_version: str = "",
    ) -> Page[T]: ...
    @overload
    async def list(
        self,
        kind: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        next_page: str = "",
        resource_version: str = "",
    ) -> Page[Json]: ...

    @overload
    def watch(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        initial_events: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncIterator[WatchEvent[T]]: ...
    @overload
    def watch(
        self,
        kind: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        initial_events: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncIterator[WatchEvent[Json]]: ...

    @overload
    async def create(self, kind: type[T], obj: Json, *, subresource: str = "", dry_run: bool = False) -> T: ...
    @overload
    async def create(self, kind: Resource, obj: Json, *, subresource: str = "", dry_run: bool = False) -> Json: ...

    @overload
    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Patch,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> T: ...
    @overload
    async def patch(
        self,
        kind: Resource,
        name: str,
        patch: Patch,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Json: ...

    async def apply(self, kind: Resource, obj: Json, *, field_manager: str, force: bool = True) -> Json:
        """Server-side apply; only for installing CRDs (see docs/design.md), never in a controller."""
        ...

    async def delete(
        self,
        kind: type[Any] | Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Background",
        grace_period_s: int | None = None,
    ) -> None:
        """Deletes one object; `uid` and `resource_version` are preconditions. NotFound is raised, not hidden."""
        ...

    async def delete_collection(
        self,
        kind: type[Any] | Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        propagation: Propagation = "Background",
    ) -> None: ...

    async def bind(self, namespace: str, pod: str, node: str, *, uid: str = "") -> None:
        """Binds a pod to a node; Conflict if it is bound already, deleted, gated, or another pod by uid."""
        ...

    async def evict(self, namespace: str, pod: str, *, uid: str = "", dry_run: bool = False) -> None:
        """Asks for a pod's eviction; TooManyRequests when a disruption budget forbids it now."""
        ...

    async def serves(self, kind: type[Any] | Resource) -> bool:
        """True if discovery of the server lists this kind. A missing group is False, not an error."""
        ...

    async def close(self) -> None: ...
