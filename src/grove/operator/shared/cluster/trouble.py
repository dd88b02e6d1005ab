"""Errors that are nobody's trouble: in a namespace that is going away nothing can be made, and nothing needs to be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from grove.kube.controller import DONE, Result
from grove.kube.errors import Forbidden, KubeError

K = TypeVar("K")


def namespace_ends(error: KubeError) -> bool:
    """Whether a create was refused because its namespace is being deleted."""
    causes = error.details.get("causes") or () if isinstance(error, Forbidden) else ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


def unless_namespace_ends(reconcile: Callable[[K], Awaitable[Result]]) -> Callable[[K], Awaitable[Result]]:
    """The same reconcile, content with a refusal that only says that everything here goes away."""

    async def look(key: K) -> Result:
        try:
            return await reconcile(key)
        except Forbidden as error:
            if namespace_ends(error):
                return DONE
            raise

    return look
