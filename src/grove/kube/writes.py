"""Many writes at once, within a limit, and slowly after a failure. Also: errors that are no fault.

A first attempt runs `width` writes at a time and stops at the first error that the others would get too. An attempt
after a failure starts slowly: one write, then two, then four. So a full quota costs one request for each attempt and
not a thousand. `Refusals` records what failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from grove.kube.controller import DONE, Result
from grove.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError

Act = Callable[[], Awaitable[None]]

WIDTH = 16


async def in_parallel(acts: Sequence[Act], *, width: int = WIDTH, careful: bool = False) -> list[KubeError]:
    """Runs the acts and returns what went wrong, in no particular order; acts behind an error may not have run."""
    errors: list[KubeError] = []
    for batch in _batches(acts, careful):
        await _run(batch, width, errors)
        if any(_concerns_others(error) for error in errors):
            break
    return errors


async def _run(acts: Sequence[Act], width: int, errors: list[KubeError]) -> None:
    waiting = iter(acts)
    if len(acts) == 1:
        await _work(waiting, errors)
        return
    async with asyncio.TaskGroup() as group:
        for _ in range(min(width, len(acts))):
            group.create_task(_work(waiting, errors))


async def _work(waiting: Iterator[Act], errors: list[KubeError]) -> None:
    for act in waiting:
        try:
            await act()
        except KubeError as error:
            errors.append(error)
            if _concerns_others(error):
                for _ in waiting:  # no task may start another
                    pass
                return


def _concerns_others(error: KubeError) -> bool:
    """True if the next write would fail too, for example with a full quota or without a server.

    A wrong object, or one whose name or version is taken, tells nothing about the next one.
    """
    return not isinstance(error, Invalid | AlreadyExists | Conflict)


def _batches(acts: Sequence[Act], careful: bool) -> Iterable[Sequence[Act]]:
    if not careful:
        yield acts
        return
    start, size = 0, 1
    while start < len(acts):
        yield acts[start : start + size]
        start, size = start + size, size * 2


class Refusals:
    """The failed writes of each owner, by step.

    While an owner has failed writes, its writes are made one at a time, and failed ones come last, the oldest first. A
    refusal does not say which other objects it concerns, and a permanent refusal must not stop the others.
    """

    def __init__(self) -> None:
        self._failed: dict[str, dict[Hashable, dict[str, None]]] = {}

    async def in_parallel(
        self, owner: str, doing: Hashable, acts: Mapping[str, Act], *, in_order: bool = False
    ) -> list[KubeError]:
        """Runs the acts, which have names, as `in_parallel` does; `in_order` if what failed keeps its place."""
        failed = self._failed.get(owner, {}).pop(doing, {})
        if not acts:
            return []
        still = {name: None for name in failed if name in acts}

        def noting(name: str) -> Act:
            async def attempt() -> None:
                still.pop(name, None)
                try:
                    await acts[name]()
                except KubeError:
                    still[name] = None
                    raise

            return attempt

        order = acts if in_order or not still else [*(name for name in acts if name not in still), *still]
        errors = await in_parallel([noting(name) for name in order], careful=bool(failed))
        if still:
            self._failed.setdefault(owner, {})[doing] = still
        return errors

    def forget(self, owner: str) -> None:
        self._failed.pop(owner, None)


K = TypeVar("K")


def namespace_ends(error: KubeError) -> bool:
    """True if the server refused a create because it is deleting the namespace."""
    causes = error.details.get("causes") or () if isinstance(error, Forbidden) else ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


def unless_namespace_ends(reconcile: Callable[[K], Awaitable[Result]]) -> Callable[[K], Awaitable[Result]]:
    """The same reconcile, content with a refusal that only says that everything here goes away."""

    async def look(key: K) -> Result:
        try:
            result = await reconcile(key)
        except Forbidden as error:
            if namespace_ends(error):
                return DONE
            raise
        return DONE if isinstance(result.error, Forbidden) and namespace_ends(result.error) else result

    return look
