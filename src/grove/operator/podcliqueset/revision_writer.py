"""Writes the history of a set's templates. Nothing else depends on it: without rights to ControllerRevisions there is
only no history.
"""

from __future__ import annotations

from functools import partial

import structlog

from grove.api import labels
from grove.api.core import ControllerRevision
from grove.api.hashes import generation_hash
from grove.api.meta import Json, Key
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.controller import DONE, Controller, Result
from grove.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from grove.kube.wakes import Wake, forgetting, own_key
from grove.operator.podcliqueset.rollout import next_revisions
from grove.operator.shared.cluster.children_writer import check_owner
from grove.operator.shared.cluster.sets import differ
from grove.operator.shared.diff import adoption, is_controlled_by, is_left_behind, is_orphan

PAGE = 500
SETTLE_S = 1.0
"""A revision is not urgent; the objects that a set needs to run come first."""

log = structlog.get_logger(__name__)


class RevisionWriter:
    def __init__(self, cache: Cache, client: Client, *, namespace: str = "") -> None:
        self._cache, self._client, self._namespace = cache, client, namespace
        self._first: dict[str, list[ControllerRevision]] | None = None
        self._kept: dict[str, str] = {}
        """By uid of the set: the hash whose revision is the newest, as far as we know."""
        self.controller = Controller[Key]("podcliqueset-revisions", self.reconcile)
        add = partial(self.controller.add, after_s=SETTLE_S)
        cache.on_event(PodCliqueSet, forgetting(lambda uid: self._kept.pop(uid, None)))
        cache.on_event(PodCliqueSet, Wake(PodCliqueSet, own_key, add, _is_edited))

    async def reconcile(self, key: Key) -> Result:
        pcs = self._cache.get(PodCliqueSet, key)
        if pcs is None or pcs.metadata.is_deleting:
            return DONE
        wanted = generation_hash(pcs.spec.template)
        if self._kept.get(pcs.metadata.uid) == wanted:
            return DONE
        try:
            await self._keep(pcs)
        except Forbidden as error:
            log.info("no history of templates is kept for lack of rights", set=str(key), error=str(error))
        except NotFound:
            return DONE  # the set or its namespace is going
        self._kept[pcs.metadata.uid] = wanted
        return DONE

    async def _keep(self, pcs: PodCliqueSet) -> None:
        meta = pcs.metadata
        steps = next_revisions(pcs, await self._there(pcs))
        if steps.create is not None:
            try:
                await self._client.create(ControllerRevision, steps.create)
            except AlreadyExists:
                await self._take_on(pcs, steps.create)
        if steps.renumber is not None:
            name, number = steps.renumber
            await self._client.patch(ControllerRevision, name, {"revision": number}, meta.namespace)
        for name in steps.delete:
            await self._client.delete(ControllerRevision, name, meta.namespace)

    async def _take_on(self, pcs: PodCliqueSet, wanted: Json) -> None:
        """The name of a revision is taken: by our own write, or by what an earlier set of the name left."""
        name, namespace = wanted["metadata"]["name"], pcs.metadata.namespace
        try:
            there = await self._client.get(ControllerRevision, name, namespace)
        except NotFound:
            raise Conflict(f"revision {name} is gone by now") from None
        if there.metadata.is_deleting or is_left_behind(there, pcs):
            raise Conflict(f"revision {name} is still being deleted")
        if is_orphan(there, wanted):
            await check_owner(self._client, pcs)
            await self._client.patch(ControllerRevision, name, adoption(wanted, there), namespace)
        elif not is_controlled_by(there, pcs):
            log.info("a revision of that name belongs to somebody else", set=str(pcs.key))

    async def _there(self, pcs: PodCliqueSet) -> list[ControllerRevision]:
        """What is kept of a set. The first question reads all sets' at once: after a restart everybody is asked for."""
        kind = f"{labels.COMPONENT}={labels.REVISION_COMPONENT}"
        if self._first is None:
            first: dict[str, list[ControllerRevision]] = {}
            page = ""
            while True:
                got = await self._client.list(
                    ControllerRevision, self._namespace, labels=kind, limit=PAGE, next_page=page
                )
                for one in got.items:
                    for ref in one.metadata.owner_references:
                        first.setdefault(ref.uid, []).append(one)
                if not (page := got.next_page):
                    break
            self._first = first
        meta = pcs.metadata
        if (known := self._first.pop(meta.uid, None)) is not None:
            return known
        mine = f"{kind},{labels.PART_OF}={meta.name}"
        found = (await self._client.list(ControllerRevision, meta.namespace, labels=mine)).items
        return [one for one in found if any(ref.uid == meta.uid for ref in one.metadata.owner_references)]


def _is_edited(old: PodCliqueSet | None, new: PodCliqueSet | None) -> bool:
    return old is None or (new is not None and differ(old, new, "uid", "generation"))
