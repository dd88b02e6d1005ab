"""Makes the children of one owner as they are wanted: removes, corrects, creates, and says what happened.

What to do is decided by `diff`; here is only how: in parallel, with preconditions, and with the knowledge
that the cache lags. An owner whose last writes failed is written to carefully (see `parallel`), and
one whose children are as they were when last found right is not looked at again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from grove.api.meta import Json, Key, Object, Resource
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from grove.operator.shared.diff import ChildPlan, needed_patch, plan_children
from grove.operator.shared.latest import Latest
from grove.operator.shared.parallel import Act, in_parallel
from grove.operator.shared.trouble import namespace_ends

UNSEEN_S = 30.0
"""How long a child we made may stay out of the cache's sight before it is taken for lost."""


class Taken(KubeError):
    """A name we need belongs to an object that is not ours and is not going away."""


@dataclass(slots=True)
class Changes:
    """What was written to the children of one kind, by name, and what could not be."""

    created: list[str] = field(default_factory=list)
    patched: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    """Names that wait for an older object to go; its deletion is the event that brings us back."""
    unseen: list[str] = field(default_factory=list)
    """Names that were made before and that the cache has not shown yet."""
    errors: list[tuple[str, str]] = field(default_factory=list)
    """Code and words, for `status.lastErrors`."""
    missing: Resource | None = None
    """The kind itself, when the cluster does not serve it: then nothing was done, and the feature is off."""
    error: KubeError | None = None
    """The first thing that went wrong, for the back-off."""

    @property
    def look_again_s(self) -> float | None:
        """When to see whether what was made is there: it may have been deleted before the cache ever showed it."""
        return UNSEEN_S + 1.0 if self.created or self.unseen else None

    @classmethod
    def without(cls, code: str, resource: Resource) -> Changes:
        """Nothing could be done because there is no such kind here; tried again later, it may be installed."""
        changes = cls(missing=resource)
        what = f"the cluster does not serve {resource.plural} of {resource.api_version}"
        changes.failed(code, resource.kind, NotFound(what))
        return changes

    def failed(self, code: str, what: str, error: KubeError) -> None:
        if self.error is None or isinstance(self.error, Conflict):
            self.error = error
        if not isinstance(error, Conflict) and not namespace_ends(error):  # a lost race is no news to anybody
            self.errors.append((code, f"{what}: {error}"))


class Children:
    """Writes to children; remembers whose children were right, and whose gave trouble."""

    def __init__(self, cache: Cache, client: Client) -> None:
        self._cache, self._client, self._latest = cache, client, Latest()
        self._right: dict[str, dict[type[Object], Any]] = {}
        self._troubled: dict[str, set[type[Object]]] = {}
        self._unseen: dict[tuple[type[Object], Key], float] = {}
        self._followed: set[type[Object]] = set()

    async def sync(
        self,
        kind: type[Object],
        owner: Object,
        wanted: Callable[[], Sequence[Json]],
        *,
        version: object,
        code: str,
        frozen: Collection[str] = (),
        without: Collection[str] = (),
    ) -> Changes:
        """Brings all children of one kind to what is wanted.

        `version` stands for everything `wanted` is made from: while it and the children stay the same there is nothing
        to do. `frozen` children are left as they are, those named in `without` are not looked at.
        """
        observed = [
            self._latest.of(one)  # else a second look before the echo of a patch would write it again
            for one in self._cache.owned(kind, by=owner.metadata.uid)
            if one.metadata.name not in without
        ]
        uid = owner.metadata.uid
        self._follow(kind)
        state = (version, frozenset(frozen), {one.metadata.name: _fingerprint(one) for one in observed})
        if self._right.get(uid, {}).get(kind) == state:
            return Changes()
        children = wanted()
        observed += self._strangers(kind, owner, children, observed)
        plan = plan_children(children, observed, uid, owner_name=owner.metadata.name, frozen=frozen)
        unseen = [one for one in plan.create if self._is_unseen(kind, owner, one["metadata"]["name"])]
        plan.create[:] = [one for one in plan.create if one not in unseen]
        changes = Changes(
            blocked=[name for name in plan.blocked if name not in plan.foreign],
            unseen=[one["metadata"]["name"] for one in unseen],
        )
        for name in plan.foreign:
            changes.failed(code, f"create {kind.RESOURCE.kind} {name}", taken(kind, name, owner))
        if plan.is_settled and not unseen:
            self._right.setdefault(uid, {})[kind] = state
        else:
            self._right.get(uid, {}).pop(kind, None)
            await self._write(
                kind, owner, plan, {one.metadata.name: one.metadata.uid for one in observed}, changes, code
            )
        if changes.error is not None:
            self._troubled.setdefault(uid, set()).add(kind)
        else:
            self._troubled.get(uid, set()).discard(kind)
        return changes

    def forget(self, uid: str) -> None:
        self._right.pop(uid, None)
        self._troubled.pop(uid, None)

    def _follow(self, kind: type[Object]) -> None:
        if kind not in self._followed:
            self._followed.add(kind)
            self._cache.on_event(kind, lambda old, new: self._see(kind, old, new))

    def _see(self, kind: type[Object], old: Object | None, new: Object | None) -> None:
        obj = new or old
        if obj is not None and self._unseen:
            self._unseen.pop((kind, obj.metadata.key), None)
        if obj is not None and new is None:
            self._latest.forget(obj.metadata.uid)

    def _is_unseen(self, kind: type[Object], owner: Object, name: str) -> bool:
        """Whether we made this child and the cache has not shown it yet; given up after a while, lest it be missed."""
        return _now() < self._unseen.get((kind, Key(owner.metadata.namespace, name)), 0.0)

    def _strangers(
        self, kind: type[Object], owner: Object, children: Iterable[Json], observed: Iterable[Object]
    ) -> list[Object]:
        """Objects of others that stand where we want ours."""
        owned = {one.metadata.name for one in observed}
        names = (child["metadata"]["name"] for child in children)
        found = (self._cache.get(kind, Key(owner.metadata.namespace, name)) for name in names if name not in owned)
        return [one for one in found if one is not None]

    async def _write(
        self, kind: type[Object], owner: Object, plan: ChildPlan, uids: dict[str, str], changes: Changes, code: str
    ) -> None:
        namespace, what = owner.metadata.namespace, kind.RESOURCE.kind

        def act(doing: str, name: str, work: Callable[[], Any], done: list[str]) -> Act:
            async def attempt() -> None:
                try:
                    await work()
                except KubeError as error:
                    changes.failed(code, f"{doing} {what} {name}", error)
                    raise
                done.append(name)

            return attempt

        async def delete(name: str) -> None:
            try:
                await self._client.delete(kind, name, namespace, uid=uids[name])
            except NotFound:
                pass

        async def update(name: str, patch: Json) -> None:
            self._latest.wrote(await self._client.patch(kind, name, patch, namespace))

        async def create(child: Json) -> None:
            # Noted before: the cache may be quicker than the answer, and may even have shown the end of it by then.
            place = kind, Key(namespace, child["metadata"]["name"])
            self._unseen[place] = _now() + UNSEEN_S
            try:
                await self._client.create(kind, child)
            except KubeError as error:
                self._unseen.pop(place, None)
                if not isinstance(error, AlreadyExists):
                    raise
                await self._adopt(kind, owner, child)

        steps = (
            [act("delete", name, partial(delete, name), changes.deleted) for name in plan.delete],
            [act("update", name, partial(update, name, patch), changes.patched) for name, patch in plan.patch],
            [act("create", one["metadata"]["name"], partial(create, one), changes.created) for one in plan.create],
        )
        for step in steps:
            await in_parallel(step, careful=kind in self._troubled.get(owner.metadata.uid, ()))

    async def _adopt(self, kind: type[Object], owner: Object, child: Json) -> None:
        """The name is taken although the cache does not show it: by our own earlier write, or by somebody else."""
        name, namespace = child["metadata"]["name"], owner.metadata.namespace
        live = await self._client.get(kind, name, namespace)
        controller = live.metadata.controller
        if live.metadata.is_deleting or is_left_behind(live, owner):
            raise Conflict(f"{kind.RESOURCE.kind} {name} is still being deleted")
        if controller is None or controller.uid != owner.metadata.uid:
            raise taken(kind, name, owner)
        if patch := needed_patch(child, live):
            await self._client.patch(kind, name, patch, namespace)


def _now() -> float:
    return asyncio.get_running_loop().time()


def is_left_behind(live: Object, owner: Object) -> bool:
    """Whether this belonged to an earlier object of the owner's name; then the garbage collector will come to it."""
    controller = live.metadata.controller
    return (
        controller is not None
        and (controller.kind, controller.name) == (owner.RESOURCE.kind, owner.metadata.name)
        and controller.uid != owner.metadata.uid
    )


def taken(kind: type[Object], name: str, owner: Object) -> Taken:
    return Taken(f"{kind.RESOURCE.kind} {name} exists and does not belong to {owner.metadata.name}")


def _fingerprint(child: Object) -> Any:
    """What of a child may have been changed by hand. Kinds that count generations do so for all but their metadata."""
    meta = child.metadata
    version = meta.generation or meta.resource_version
    return meta.uid, version, meta.is_deleting, meta.labels, meta.annotations, meta.owner_references
