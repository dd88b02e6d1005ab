"""Makes the children of one owner as they are wanted: removes, corrects, creates, and says what happened.

What to do is decided by `diff`; here is only how: in parallel, with preconditions, and with care after a refusal (see
`kube.writes`). A child that is as it was when last found right is not compared again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from grove.api.meta import Json, Key, Object, Resource
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, NotLeader
from grove.kube.writes import Act, Refusals, namespace_ends
from grove.operator.shared.diff import (
    ChildPlan,
    child_patch,
    is_controlled_by,
    is_left_behind,
    is_orphan,
    plan_children,
)

T = TypeVar("T", bound=Object)


class Taken(AlreadyExists):
    """A name we need belongs to an object that is not ours and is not going away."""


@dataclass(slots=True)
class Changes:
    """The writes to the children of one kind, by name, and the writes that failed."""

    created: list[str] = field(default_factory=list)
    patched: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    """Names that wait for an older object to go; its deletion is the event that brings us back."""
    errors: list[tuple[str, str]] = field(default_factory=list)
    """Code and words, for `status.lastErrors`."""
    missing: Resource | None = None
    """The kind itself, when the cluster does not serve it: then nothing was done, and the feature is off."""
    error: KubeError | None = None
    """The first thing that went wrong, for the back-off."""

    @classmethod
    def without(cls, code: str, resource: Resource) -> Changes:
        """Nothing could be done because there is no such kind here; tried again later, it may be installed."""
        changes = cls(missing=resource)
        what = f"the cluster does not serve {resource.plural} of {resource.api_version}"
        changes.failed(code, resource.kind, NotFound(what))
        return changes

    @classmethod
    def after(cls, code: str, what: str, error: KubeError) -> Changes:
        """The error that stopped the work."""
        changes = cls()
        changes.failed(code, what, error)
        return changes

    def failed(self, code: str, what: str, error: KubeError) -> None:
        if self.error is None or isinstance(self.error, Conflict):
            self.error = error
        # A lost race, a lost lease and a namespace that is deleted are no errors to report.
        if not isinstance(error, Conflict | NotLeader) and not namespace_ends(error):
            self.errors.append((code, f"{what}: {error}"))


class _Right(NamedTuple):
    """Children of one kind that were as wanted, by name, with their fingerprints; `settled` if that was all of them."""

    made_from: object
    children: dict[str, Any]
    settled: bool


class ChildrenWriter:
    """Writes to children; remembers whose children were right, and which were refused."""

    def __init__(self, cache: Cache, client: Client) -> None:
        self._cache, self._client = cache, client
        self._right: dict[str, dict[type[Object], _Right]] = {}
        self._refusals = Refusals()

    async def sync(
        self,
        kind: type[Object],
        owner: Object,
        wanted: Callable[[], Sequence[Json]],
        *,
        version: object,
        code: str,
        without: Collection[str] = (),
    ) -> Changes:
        """Brings all children of one kind to what is wanted.

        `version` stands for everything `wanted` is made from: while it and the children stay the same there is nothing
        to do. Children named in `without` are not looked at.
        """
        uid = owner.metadata.uid
        observed = [child for child in self._cache.owned(kind, by=uid) if child.metadata.name not in without]
        fingerprints = {child.metadata.name: _fingerprint(child) for child in observed}
        last = self._right.get(uid, {}).get(kind)
        if last == _Right(version, fingerprints, settled=True):
            return Changes()
        children = wanted()
        observed += self._strangers(kind, owner, children, observed)
        known = last.children if last is not None and last.made_from == version else {}
        same = {name for name, print_ in fingerprints.items() if known.get(name) == print_}
        plan = plan_children(children, observed, owner, unchanged=same)
        changes = Changes(blocked=[name for name in plan.blocked if name not in plan.foreign])
        for name in plan.foreign:
            changes.failed(code, f"create {kind.RESOURCE.kind} {name}", taken(kind, name, owner))
        wrong = {*plan.blocked, *plan.delete, *(name for name, _ in plan.patch)}
        right = {name: print_ for name, print_ in fingerprints.items() if name not in wrong}
        self._right.setdefault(uid, {})[kind] = _Right(version, right, plan.is_settled)
        await self._write(kind, owner, plan, {child.metadata.name: child for child in observed}, changes, code)
        return changes

    def forget(self, uid: str) -> None:
        self._right.pop(uid, None)
        self._refusals.forget(uid)

    def _strangers(
        self, kind: type[Object], owner: Object, children: Iterable[Json], observed: Iterable[Object]
    ) -> list[Object]:
        """Objects of others that stand where we want ours."""
        owned = {child.metadata.name for child in observed}
        names = (child["metadata"]["name"] for child in children)
        strangers = (self._cache.get(kind, Key(owner.metadata.namespace, name)) for name in names if name not in owned)
        return [stranger for stranger in strangers if stranger is not None]

    async def _write(
        self,
        kind: type[Object],
        owner: Object,
        plan: ChildPlan,
        observed: dict[str, Object],
        changes: Changes,
        code: str,
    ) -> None:
        namespace, what = owner.metadata.namespace, kind.RESOURCE.kind

        async def do(doing: str, works: Iterable[tuple[str, Callable[[], Any]]], done: list[str]) -> None:
            acts = {name: act(doing, name, work, done) for name, work in works}
            await self._refusals.in_parallel(owner.metadata.uid, (doing, kind), acts)

        def act(doing: str, name: str, work: Callable[[], Any], done: list[str]) -> Act:
            async def attempt() -> None:
                try:
                    await work()
                except KubeError as error:
                    changes.failed(code, f"{doing} {what} {name}", error)
                    raise
                done.append(name)

            return attempt

        async def update(name: str, patch: Json) -> None:
            try:
                self._cache.wrote(await self._client.patch(kind, name, patch, namespace))
            except NotFound:
                self._cache.removed(observed[name])  # another program deleted it; the next reconcile makes it

        async def adopt(name: str, patch: Json) -> None:
            await check_owner(self._client, owner)
            await update(name, patch)

        async def create(child: Json) -> None:
            try:
                self._cache.wrote(await self._client.create(kind, child))
            except AlreadyExists:
                live = await get_own(self._client, owner, kind, child)
                if patch := child_patch(child, live):
                    live = await self._client.patch(kind, live.metadata.name, patch, namespace)
                self._cache.wrote(live)

        removals = ((name, partial(delete, self._client, self._cache, observed[name])) for name in plan.delete)
        await do("delete", removals, changes.deleted)
        await do("adopt", ((name, partial(adopt, name, patch)) for name, patch in plan.adopt), changes.patched)
        await do("update", ((name, partial(update, name, patch)) for name, patch in plan.patch), changes.patched)
        await do(
            "create", ((child["metadata"]["name"], partial(create, child)) for child in plan.create), changes.created
        )


async def get_own(client: Client, owner: Object, kind: type[T], wanted: Json) -> T:
    """The object with the name of a child that the cache does not show: our own earlier write.

    Raises Conflict if waiting helps, Taken if it belongs to another owner and stays.
    """
    name, what = wanted["metadata"]["name"], kind.RESOURCE.kind
    live = await client.get(kind, name, owner.metadata.namespace)
    if live.metadata.is_deleting or is_left_behind(live, owner):
        raise Conflict(f"{what} {name} is still being deleted")
    if is_orphan(live, wanted):
        raise Conflict(f"{what} {name} has no owner; it is adopted when the cache shows it")
    if not is_controlled_by(live, owner):
        raise taken(kind, name, owner)
    return live


async def delete(client: Client, cache: Cache, obj: Object, **options: Any) -> None:
    """Deletes this object and no other of its name; the cache shows at once that it is gone."""
    meta = obj.metadata
    with suppress(NotFound):  # it is gone already
        await client.delete(type(obj), meta.name, meta.namespace, uid=meta.uid, **options)
    cache.removed(obj)


async def check_owner(client: Client, owner: Object) -> None:
    """Raises Conflict if an object that is about to adopt something terminates or no longer exists.

    It asks the server. If an object is deleted without its children, it loses them before our cache shows the deletion.
    If it adopted something then, the garbage collector would delete that too.
    """
    try:
        now = await client.get(type(owner), owner.metadata.name, owner.metadata.namespace)
    except NotFound:
        raise Conflict(f"{owner.metadata.name} is gone") from None
    if now.metadata.uid != owner.metadata.uid or now.metadata.is_deleting:
        raise Conflict(f"{owner.metadata.name} is being deleted")


def taken(kind: type[Object], name: str, owner: Object) -> Taken:
    return Taken(f"{kind.RESOURCE.kind} {name} exists and does not belong to {owner.metadata.name}")


def _fingerprint(child: Object) -> Any:
    """The parts of a child that a person may have changed. A generation counts all changes but those of metadata."""
    meta = child.metadata
    version = meta.generation or meta.resource_version
    return meta.uid, version, meta.is_deleting, meta.labels, meta.annotations, meta.owner_references
