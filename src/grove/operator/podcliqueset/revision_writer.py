"""Writes the history of a set's templates, and goes back in it if an annotation of the set asks for that.

Nothing else depends on it: without rights to ControllerRevisions there is only no history.
"""

from __future__ import annotations

from functools import partial

import structlog

from grove.api import labels
from grove.api.conditions import EventReason
from grove.api.core import ControllerRevision
from grove.api.fields import mapping
from grove.api.hashes import generation_hash
from grove.api.meta import Json, Key
from grove.api.podcliqueset import PodCliqueSet
from grove.api.undo import PREVIOUS, CannotUndo, restored, undo_target
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.controller import DONE, Controller, Result
from grove.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from grove.kube.events import Recorder
from grove.kube.wakes import Wake, forgetting, own_key
from grove.operator.podcliqueset.rollout import next_revisions
from grove.operator.shared.cluster.children_writer import check_owner
from grove.operator.shared.cluster.sets import differ
from grove.operator.shared.diff import adoption, is_controlled_by, is_left_behind, is_orphan

PAGE = 500
LONGEST_NUMBER = 9
SETTLE_S = 1.0
"""A revision is not urgent; the objects that a set needs to run come first."""

log = structlog.get_logger(__name__)


class RevisionWriter:
    def __init__(self, cache: Cache, client: Client, events: Recorder, *, namespace: str = "") -> None:
        self._cache, self._client, self._events, self._namespace = cache, client, events, namespace
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
        try:
            if self._kept.get(pcs.metadata.uid) != wanted:
                await self._keep(pcs)
            if asked := pcs.metadata.annotations.get(labels.ROLLOUT_UNDO):
                await self._undo(pcs, asked)
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

    async def _undo(self, pcs: PodCliqueSet, asked: str) -> None:
        """Brings an earlier template back and removes the annotation, in one write for the version that was read."""
        meta = pcs.metadata
        raw: Json = await self._client.get(PodCliqueSet.RESOURCE, meta.name, meta.namespace)
        if raw["metadata"].get("generation") != meta.generation:
            raise Conflict(f"{meta.name} changed meanwhile")
        if mapping(raw["metadata"].get("annotations")).get(labels.ROLLOUT_UNDO) != asked:
            return
        try:
            number = _revision_number(asked)
            target = undo_target(pcs, await self._there(pcs), number)
        except CannotUndo as err:
            target = None
            self._events.warn(pcs, EventReason.UNDO_REFUSED, str(err))
        patch: Json = {"metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]}}
        if target is not None:
            patch = restored(raw, target.kept)
        patch["metadata"]["annotations"] = {labels.ROLLOUT_UNDO: None}
        await self._client.patch(PodCliqueSet, meta.name, patch, meta.namespace)
        if target is not None:
            self._events.normal(pcs, EventReason.UPDATE_UNDONE, f"the template of revision {target.revision} is back")

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
            log.info("a revision of that name belongs to another owner", set=str(pcs.key))

    async def _there(self, pcs: PodCliqueSet) -> list[ControllerRevision]:
        """The revisions of a set. The first call reads those of all sets: after a restart each set needs its own."""
        kind = f"{labels.COMPONENT}={labels.REVISION_COMPONENT}"
        if self._first is None:
            first: dict[str, list[ControllerRevision]] = {}
            page = ""
            while True:
                got = await self._client.list(
                    ControllerRevision, self._namespace, labels=kind, limit=PAGE, next_page=page
                )
                for revision in got.items:
                    for ref in revision.metadata.owner_references:
                        first.setdefault(ref.uid, []).append(revision)
                if not (page := got.next_page):
                    break
            self._first = first
        meta = pcs.metadata
        if (known := self._first.pop(meta.uid, None)) is not None:
            return known
        mine = f"{kind},{labels.PART_OF}={meta.name}"
        revisions = (await self._client.list(ControllerRevision, meta.namespace, labels=mine)).items
        return [
            revision for revision in revisions if any(ref.uid == meta.uid for ref in revision.metadata.owner_references)
        ]


def _revision_number(asked: str) -> int | None:
    """The number in the annotation; None for the revision before the present one."""
    if asked == PREVIOUS:
        return None
    if not asked.isdecimal() or len(asked) > LONGEST_NUMBER:
        raise CannotUndo(f"annotation {labels.ROLLOUT_UNDO} is neither {PREVIOUS!r} nor the number of a revision")
    return int(asked)


def _is_edited(old: PodCliqueSet | None, new: PodCliqueSet | None) -> bool:
    if old is None or new is None:
        return old is None
    return differ(old, new, "uid", "generation") or labels.ROLLOUT_UNDO in new.metadata.annotations
