"""Puts the CRDs into a cluster, or brings those that are there up to date.

It uses server-side apply, because the schemas are too large for the annotation of a client-side apply. Then it waits
until the API server serves the kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from grove import crds
from grove.api.core import CustomResourceDefinition
from grove.api.meta import find_condition
from grove.kube.client import Client
from grove.kube.errors import Forbidden, Gone, KubeError, Unauthorized

FIELD_MANAGER = "grove"


class InstallError(KubeError):
    """The CRDs are not installed, and trying again by itself will not help."""


async def install(client: Client, say: Callable[[str], None], timeout_s: float = 60, *, dialects: bool = False) -> None:
    """Applies all CRDs and returns when all are Established; `say` gets one line for each."""
    waiting = {}
    for document in crds.load(dialects=dialects):
        name = document["metadata"]["name"]
        try:
            await client.apply(CustomResourceDefinition.RESOURCE, document, field_manager=FIELD_MANAGER)
        except (Forbidden, Unauthorized) as error:
            raise InstallError(f"not allowed to install {name}: {error}; a cluster administrator can") from error
        waiting[name] = "no answer yet"
    try:
        async with asyncio.timeout(timeout_s):
            while waiting:
                await _until_established(client, waiting, say)
    except TimeoutError:
        missing = ", ".join(f"{name} ({why})" for name, why in waiting.items())
        raise InstallError(f"not established after {timeout_s:g} s: {missing}") from None


async def _until_established(client: Client, waiting: dict[str, str], say: Callable[[str], None]) -> None:
    """Takes out of `waiting` what is served; returns when nothing is left or the watch has to start over."""
    page = await client.list(CustomResourceDefinition)
    _cross_off(page.items, waiting, say)
    if not waiting:
        return
    try:
        async for event in client.watch(CustomResourceDefinition, resource_version=page.resource_version):
            if event.object is not None:
                _cross_off([event.object], waiting, say)
            if not waiting:
                return
    except Gone:
        return  # too much happened since the list; the next one shows it


def _cross_off(
    definitions: Iterable[CustomResourceDefinition], waiting: dict[str, str], say: Callable[[str], None]
) -> None:
    for definition in definitions:
        name = definition.metadata.name
        if name not in waiting:
            continue
        if definition.is_established:
            del waiting[name]
            say(f"{name} is served")
        else:
            waiting[name] = _obstacle(definition)


def _obstacle(definition: CustomResourceDefinition) -> str:
    names = find_condition(definition.status.conditions or (), "NamesAccepted")
    if names is not None and names.status == "False":
        return names.message  # another CRD has one of the names; this one waits until it goes
    return "waiting for the API server"
