"""PodGang: tells the scheduler which pods belong together, one gang at a time.

Woken by the pods and PodCliques of a gang, by the size of scaling groups, by the set and by the gang itself. A gang is
written when all its pods exist, so that a scheduler meets it complete; one that stays incomplete is written a moment
later, and says what it waits for. Gangs nobody wants any more are removed here.
"""

from __future__ import annotations

from typing import NamedTuple

from grove.api import labels as key
from grove.api.conditions import SCHEDULER_OBJECTS_READY as OBJECTS_READY
from grove.api.conditions import ErrorCode, EventReason
from grove.api.core import Pod
from grove.api.meta import Key, Object, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.backends import Backed, Backend, BackendError, base
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.controller import DONE, Controller, Result
from grove.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from grove.kube.events import Recorder
from grove.operator.podgang.gangs import GangContext, WantedGang, referenced, wanted_gang
from grove.operator.podgang.lookup import find_gang_layout
from grove.operator.podgang.refusal_events import tell_trouble
from grove.operator.podgang.scheduler_objects import Backing
from grove.operator.podgang.status import gang_status
from grove.operator.shared.children_writer import Taken, is_left_behind, taken
from grove.operator.shared.diff import needed_patch
from grove.operator.shared.event_batching import Digest
from grove.operator.shared.latest import Latest
from grove.operator.shared.layout import replica_layouts, replica_of
from grove.operator.shared.reports import Reports
from grove.operator.shared.sets import SET, Sets
from grove.operator.shared.status_batching import FIRST_S, NOTHING_YET_S, PROGRESS_S, SETTLE_S, Patience
from grove.operator.shared.status_writer import StatusWriter
from grove.operator.shared.trouble import namespace_ends
from grove.operator.shared.urgency import gang_news
from grove.operator.topology.levels import topology_name

NO_BINDING = Backed(False, base.NOT_REPRESENTABLE, "the ClusterTopologyBinding that the set names is not there")
NOT_ENFORCED = Backed(
    True,
    base.NOT_ENFORCED,
    "the scheduler bound part of the gang and not the rest: its own feature gates for gangs may be off",
)


class GangKey(NamedTuple):
    """A PodGang that is there or should be, and the set it is of."""

    namespace: str
    pcs: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PodGangReconciler:
    """Keeps one PodGang equal to the pods that belong to it."""

    def __init__(
        self, cache: Cache, client: Client, sets: Sets, latest: Latest, patience: Patience, statuses: StatusWriter,
        backing: Backing, reports: Reports, events: Recorder, digest: Digest, clock: Clock,
    ) -> None:  # fmt: skip
        self._cache, self._client, self._sets, self._latest = cache, client, sets, latest
        self._patience, self._statuses, self._backing = patience, statuses, backing
        self._reports, self._events, self._digest, self._clock = reports, events, digest, clock

    async def reconcile(self, key_: GangKey) -> Result:
        pcs = self._cache.get(PodCliqueSet, Key(key_.namespace, key_.pcs))
        if pcs is None or pcs.metadata.is_deleting:
            self._patience.done(key_)
            return DONE  # its gangs go with it
        try:
            result = await self._look(key_, self._latest.of(pcs))
        except (KubeError, BackendError) as error:
            if not isinstance(error, Conflict) and not (isinstance(error, KubeError) and namespace_ends(error)):
                message = f"PodGang {key_.name}: {error}"
                self._report(pcs, key_, (ErrorCode.CREATE_OR_PATCH_POD_GANG, message))
                self._events.warn(pcs, EventReason.POD_GANG_CREATE_OR_UPDATE_FAILED, message)
            raise
        self._report(pcs, key_)
        return result

    async def _look(self, key_: GangKey, pcs: PodCliqueSet) -> Result:
        gang = self._cache.get(PodGang, Key(key_.namespace, key_.name))
        if gang is not None:
            gang = self._latest.of(gang)
            if gang.metadata.is_deleting or is_left_behind(gang, pcs):
                return DONE  # when it is gone, its deletion brings us back
        backend = self._sets.backend_of(pcs)
        if backend is None:
            return DONE  # the set's own pass says so
        layout = find_gang_layout(pcs, key_.name, lambda fqn, config: self._sets.group_replicas(pcs, fqn, config))
        context = self._sets.gang_context(pcs, backend, layout) if layout is not None else None
        wanted = wanted_gang(context, layout, gang) if context is not None and layout is not None else None
        if gang is not None and not _is_owned(gang, pcs):
            if wanted is None:
                return DONE
            raise taken(PodGang, key_.name, pcs)
        if wanted is None:
            self._patience.done(key_)
            await self._remove(pcs, gang)
            return DONE

        patch = needed_patch(wanted.object, gang) if gang is not None else None
        if (gang is None or patch) and wanted.incomplete:
            wait_s = self._patience.wait_s(key_, _patience_s(gang, wanted, context))
            if wait_s:
                return Result(after_s=wait_s)  # its last pod may be on its way; then one write says it all
        self._patience.done(key_)
        if gang is None:
            gang, is_new = await self._create(pcs, wanted)
            patch = None if is_new else needed_patch(wanted.object, gang)
        if patch:
            gang = await self._client.patch(PodGang, key_.name, patch, key_.namespace)
            self._latest.wrote(gang)
        written = gang
        if context is not None and _lacks_topology(context) and not is_true(gang.status.conditions, OBJECTS_READY):
            # What is told now may be told for good; its levels will be known when the binding is.
            backed: Backed | None = NO_BINDING
        else:
            backed = await self._backing.sync(gang, pcs, backend, lambda: self._pods_of(written))
        doubt_s = backend.doubt_s(gang, self._pods_of(gang), self._clock.now()) if backed is not None else None
        if doubt_s == 0.0:
            backed, doubt_s = NOT_ENFORCED, None
        result = await self._write_status(gang, wanted, backend, key_.namespace, backed)
        if result.after_s is None:
            tell_trouble(self._events, pcs, gang, backend, backed)
        if doubt_s is not None:
            result = Result(after_s=doubt_s if result.after_s is None else min(doubt_s, result.after_s))
        if backed is not None and backed.retry:
            raise Taken(backed.message)
        return result

    def _pods_of(self, gang: PodGang) -> list[Pod]:
        namespace = gang.metadata.namespace
        found = (self._sets.pods_of(namespace, group.name) for group in gang.spec.podgroups)
        return [pod for pods in found for pod in referenced(pods, gang.metadata.name)]

    async def _create(self, pcs: PodCliqueSet, wanted: WantedGang) -> tuple[PodGang, bool]:
        """The gang, and whether it was made now; it may be there already and the cache not have shown it."""
        try:
            gang, is_new = await self._client.create(PodGang, wanted.object), True
            self._digest.add(pcs, EventReason.POD_GANG_CREATE_OR_UPDATE_SUCCESSFUL, "created PodGang", wanted.name)
        except AlreadyExists:
            gang, is_new = await self._client.get(PodGang, wanted.name, pcs.metadata.namespace), False
            if gang.metadata.is_deleting or is_left_behind(gang, pcs):
                raise Conflict(f"PodGang {wanted.name} is still being deleted") from None
            if not _is_owned(gang, pcs):
                raise taken(PodGang, wanted.name, pcs) from None
        self._latest.wrote(gang)
        return gang, is_new

    async def _write_status(
        self, gang: PodGang, wanted: WantedGang, backend: Backend, namespace: str, backed: Backed | None
    ) -> Result:
        now = self._clock.now()
        status = gang_status(gang, wanted, backend, lambda fqn: self._sets.pods_of(namespace, fqn), now, backed)
        news = gang_news(gang.status, status) and not wanted.incomplete
        return Result(after_s=await self._statuses.write(gang, status, news=news, conditional=True))

    async def _remove(self, pcs: PodCliqueSet, gang: PodGang | None) -> None:
        if gang is None:
            return
        try:
            await self._client.delete(PodGang, gang.metadata.name, gang.metadata.namespace, uid=gang.metadata.uid)
        except NotFound:
            return
        self._digest.add(pcs, EventReason.POD_GANG_DELETE_SUCCESSFUL, "deleted PodGang", gang.metadata.name)

    def _report(self, pcs: PodCliqueSet, key_: GangKey, *errors: tuple[str, str]) -> None:
        self._reports.put(pcs.key, pcs.metadata.uid, f"PodGang {key_.name}", errors)


class PodGangWakes:
    """Which events wake which gangs."""

    def __init__(
        self, cache: Cache, sets: Sets, latest: Latest, statuses: StatusWriter, controller: Controller[GangKey]
    ) -> None:
        self._cache, self._sets, self._latest, self._statuses = cache, sets, latest, statuses
        self._controller = controller
        cache.on_event(Pod, self.on_pod)
        cache.on_event(PodClique, self.on_clique)
        cache.on_event(PodCliqueScalingGroup, self.on_group)
        cache.on_event(PodGang, self.on_gang)

    def of_set(self, pcs: PodCliqueSet) -> None:
        """All gangs a set has or should have; for whoever saw the set change."""
        for replica in range(pcs.spec.replicas):
            self._of_replica(pcs, replica)
        for gang in self._cache.by_index(PodGang, SET, pcs.key):
            self._add(GangKey(pcs.metadata.namespace, pcs.metadata.name, gang.metadata.name))

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None or (old is not None and new is not None and not _matters(old, new)):
            return
        self._wake(pod)
        if old is not None and _gang_of(old) != _gang_of(pod):
            self._wake(old)

    def on_clique(self, old: PodClique | None, new: PodClique | None) -> None:
        clique = new or old
        if clique is None:
            return
        if old is None or new is None or old.spec.replicas != new.spec.replicas or _is_leaving(old, new):
            self._wake(clique)
        elif new.status.last_errors and not old.status.last_errors:
            self._wake(clique)  # its pods may be long in coming

    def on_group(self, old: PodCliqueScalingGroup | None, new: PodCliqueScalingGroup | None) -> None:
        group = new or old
        if group is None or (
            old is not None and new is not None and old.spec == new.spec and not _is_leaving(old, new)
        ):
            return
        pcs, replica = self._sets.find_of(group), replica_of(group.metadata)
        if pcs is None or replica is None:
            return
        self._of_replica(pcs, replica)
        if old is not None:  # gangs of copies that were scaled in
            prefix = f"{group.metadata.name}-"
            for gang in self._cache.by_index(PodGang, SET, pcs.key):
                if gang.metadata.name.startswith(prefix):
                    self._add(GangKey(pcs.metadata.namespace, pcs.metadata.name, gang.metadata.name))

    def on_gang(self, old: PodGang | None, new: PodGang | None) -> None:
        """A gang that appears, changes or goes without our doing may need repair."""
        gang = new or old
        if gang is None or (new is not None and self._latest.is_echo(new)):
            return
        if new is None:
            self._statuses.forget(gang.metadata.uid)
        # By its old labels too: somebody may have taken off the one that says whose it is.
        for one in (old, new):
            if one is not None:
                self._add(_key_of(one), after_s=SETTLE_S if new is not None else 0.0)

    def _of_replica(self, pcs: PodCliqueSet, replica: int) -> None:
        for layout in replica_layouts(pcs, replica, lambda fqn, config: self._sets.group_replicas(pcs, fqn, config)):
            self._add(GangKey(pcs.metadata.namespace, pcs.metadata.name, layout.name))

    def _wake(self, obj: Object) -> None:
        found = obj.metadata.labels
        if key.POD_GANG in found and key.PART_OF in found:
            gang_key = GangKey(obj.metadata.namespace, found[key.PART_OF], found[key.POD_GANG])
            self._add(gang_key, after_s=SETTLE_S)

    def _add(self, gang_key: GangKey | None, after_s: float = 0.0) -> None:
        if gang_key is not None:
            self._controller.add(gang_key, after_s=after_s)


def _key_of(gang: PodGang) -> GangKey | None:
    pcs = gang.metadata.labels.get(key.PART_OF)
    return GangKey(gang.metadata.namespace, pcs, gang.metadata.name) if pcs else None


def _patience_s(gang: PodGang | None, wanted: WantedGang, context: GangContext | None) -> float:
    """How long an incomplete gang may wait for its last pod: longest before its first, when its turn has not come.

    Not long where a clique met trouble: people look at the gang then, and its last pod may never come.
    """
    if gang is not None or (context is not None and any(one.status.last_errors for one in context.cliques.values())):
        return PROGRESS_S
    has_pods = any(group["podReferences"] for group in wanted.object["spec"]["podgroups"])
    return FIRST_S if has_pods else NOTHING_YET_S


def _gang_of(obj: Object) -> str:
    return obj.metadata.labels.get(key.POD_GANG, "")


def _lacks_topology(context: GangContext) -> bool:
    """Whether another scheduler must not be told yet, because what levels mean here is not known."""
    wants = context.backend.needs_gate and context.topology_enabled and context.binding is None
    return wants and bool(topology_name(context.pcs))


def _is_owned(gang: PodGang, pcs: PodCliqueSet) -> bool:
    controller = gang.metadata.controller
    return controller is not None and controller.uid == pcs.metadata.uid


def _is_leaving(old: Object, new: Object) -> bool:
    return new.metadata.is_deleting and not old.metadata.is_deleting


def _matters(old: Pod, new: Pod) -> bool:
    return (
        old.is_scheduled != new.is_scheduled
        or old.is_ready != new.is_ready
        or old.status.phase != new.status.phase
        or old.metadata.labels != new.metadata.labels
        or old.is_gated != new.is_gated
        or _is_leaving(old, new)
    )
