"""Keeps a PodCliqueSet for every PodGangSet and every PodCliqueSet of `grove.ai`, and their status as the set's.

Labels on the set and a finalizer on the object link the two. An owner reference would not do: a scheduler that searches
for the top of a workload must end at the set. The pure modules beside this one make all decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import structlog
from msgspec import structs

from grove.admission.rules.lookups import Known
from grove.admission.rules.update import update_faults
from grove.admission.rules.view import SetView
from grove.api import names
from grove.api.conditions import FALSE, TRUE, with_condition
from grove.api.core import CustomResourceDefinition
from grove.api.dynamo import PodGangSet
from grove.api.faults import Fault
from grove.api.fields import mapping
from grove.api.hashes import is_taken_up
from grove.api.koordset import KoordPodCliqueSet
from grove.api.labels import DIALECT_FINALIZER
from grove.api.meta import Json, Key, Object, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.dialects import dynamo, koord
from grove.dialects.placement import NO_PLACEMENT
from grove.dialects.placement_controller import Placements, as_json
from grove.dialects.record import CLIQUES, Record, Scaling, merged_set, record_of, set_patch, with_record
from grove.dialects.status import (
    INVALID_SPEC,
    NAME_CONFLICT,
    NOT_ALLOWED,
    SET_IS_GOING,
    TRANSLATED,
    gang_set_status,
    koord_set_status,
)
from grove.dialects.translation import Translation, is_made_from
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.controller import DONE, Result
from grove.kube.errors import AlreadyExists, Forbidden, Invalid, KubeError, NotFound
from grove.kube.events import Recorder
from grove.kube.writes import namespace_ends
from grove.operator.shared.cluster.pod_cleanup import ORPHAN
from grove.operator.shared.cluster.sets import SET
from grove.operator.shared.cluster.status_writer import StatusWriter
from grove.operator.shared.diff import finalizer_patch

log = structlog.get_logger(__name__)

Source = PodGangSet | KoordPodCliqueSet


class SourceKey(NamedTuple):
    """An object that is translated: its kind and its key."""

    kind: type[PodGangSet] | type[KoordPodCliqueSet]
    key: Key

    def __str__(self) -> str:
        return f"{self.kind.RESOURCE} {self.key}"


class Outcome(NamedTuple):
    """The result of a translation: our set if there is one, and the fields of the condition."""

    pcs: PodCliqueSet | None
    status: str
    reason: str
    message: str
    error: KubeError | None = None
    """An error that was reported; the controller tries again after a while."""


class DialectReconciler:
    """Keeps the set of an object as its translation says, and the object's status as the set says."""

    def __init__(
        self,
        cache: Cache,
        sources: Cache,
        client: Client,
        placements: Placements,
        statuses: StatusWriter,
        events: Recorder,
        clock: Clock,
    ) -> None:
        self._cache, self._sources, self._client, self._placements = cache, sources, client, placements
        self._statuses, self._events, self._clock = statuses, events, clock
        self._settled: dict[str, Any] = {}
        self._orphaning: set[str] = set()
        """UIDs of objects that are deleted without their set. Kubernetes takes its finalizer off soon after."""
        sources.on_event(PodGangSet, self._on_source)
        sources.on_event(KoordPodCliqueSet, self._on_source)

    def _on_source(self, old: Source | None, new: Source | None) -> None:
        if new is None and old is not None:
            self._orphaning.discard(old.metadata.uid)
        elif new is not None and new.metadata.is_deleting and ORPHAN in new.metadata.finalizers:
            self._orphaning.add(new.metadata.uid)

    async def reconcile(self, key: SourceKey) -> Result:
        source: Source | None = self._sources.get(key.kind, key.key)
        if source is None:
            return DONE
        if source.metadata.is_deleting:
            await self._finish(source)
            return DONE
        source = await self._with_finalizer(source)
        outcome = await self._translate(source)
        result = await self._tell(source, outcome)
        if outcome.error is not None:
            raise outcome.error
        return result

    # The set

    async def _translate(self, source: Source) -> Outcome:
        translation, record, pcs = self._translated(source)
        if pcs is not None and not _is_own(source, pcs):
            message = f"PodCliqueSet {pcs.metadata.name} exists and was not made from this object; rename one of them"
            return Outcome(None, FALSE, NAME_CONFLICT, message)
        if translation.faults:
            return Outcome(pcs, FALSE, INVALID_SPEC, _listed(translation.faults))
        if pcs is not None and pcs.metadata.is_deleting:
            message = f"PodCliqueSet {pcs.metadata.name} is being deleted and is made again when it is gone"
            return Outcome(pcs, FALSE, SET_IS_GOING, message)
        fine = Outcome(pcs, TRUE, TRANSLATED, f"kept as PodCliqueSet {translation.name}")
        if pcs is not None and not record.scaling and self._settled.get(source.metadata.uid) == _state(pcs, record):
            return fine
        try:
            if pcs is None:
                made = await self._client.create(PodCliqueSet, with_record(translation.manifest, record))
                self._events.normal(source, "PodCliqueSetCreated", f"created PodCliqueSet {made.metadata.name}")
            else:
                changed = await self._update(source, pcs, translation, record)
                if isinstance(changed, Outcome):
                    return changed
                made = changed
        except AlreadyExists:
            return Outcome(None, FALSE, SET_IS_GOING, f"PodCliqueSet {translation.name} is there, but not read yet")
        except Invalid as error:
            return Outcome(pcs, FALSE, INVALID_SPEC, _refusal(translation, error))
        except Forbidden as error:
            if namespace_ends(error):
                raise
            return Outcome(pcs, FALSE, NOT_ALLOWED, f"the operator may not write the set: {error}", error)
        self._cache.wrote(made)
        self._settled[source.metadata.uid] = _state(made, record)
        return fine._replace(pcs=made)

    def _translated(self, source: Source) -> tuple[Translation, Record, PodCliqueSet | None]:
        """The translation, what will be remembered of it, and the set of its name."""
        obj = as_json(source)
        levels = self._placements.levels()
        translation = dynamo.to_set(obj, levels=levels) if isinstance(source, PodGangSet) else koord.to_set(obj)
        # A set keeps its name, whatever would be chosen by now.
        translation = translation.called(source.status.pod_clique_set_name or translation.name)
        pcs = self._cache.get(PodCliqueSet, Key(source.metadata.namespace, translation.name))
        last = Record.of(pcs.metadata.annotations) if pcs is not None else None
        placement, rollout = NO_PLACEMENT, ""
        if isinstance(source, PodGangSet):
            rollout = dynamo.rollout_of(translation, last.rollout if last is not None else "")
            placement = self._placements.in_effect(obj, last, rollout)
            translation = dynamo.to_set(obj, placement, levels).called(translation.name)
        return translation, record_of(translation.manifest, placement.to_json(), last, rollout=rollout), pcs

    async def _update(
        self, source: Source, pcs: PodCliqueSet, translation: Translation, record: Record
    ) -> PodCliqueSet | Outcome:
        meta = pcs.metadata
        try:
            live = await self._client.get(PodCliqueSet.RESOURCE, meta.name, meta.namespace)
        except NotFound:
            return Outcome(None, FALSE, SET_IS_GOING, f"PodCliqueSet {meta.name} has just gone")
        last = Record.of(mapping(mapping(live.get("metadata")).get("annotations"))) or Record()
        wanted = merged_set(live, translation.manifest, last, record)
        faults = [translation.in_source_words(fault) for fault in _fixed(wanted, live)]
        if faults and source.metadata.annotations.get(dynamo.RECREATE) == "true":
            await self._delete(pcs)
            message = f"PodCliqueSet {meta.name} is deleted and created again"
            self._events.normal(source, "PodCliqueSetRecreated", f"{message}, because {faults[0].path} changed")
            return Outcome(pcs, FALSE, SET_IS_GOING, f"{message}: {_listed(faults)}")
        if faults:
            hint = f"; annotation {dynamo.RECREATE}: true deletes the set and creates it again"
            hint = hint if isinstance(source, PodGangSet) else ""
            return Outcome(pcs, FALSE, INVALID_SPEC, _listed(faults) + hint)
        patch = set_patch(live, wanted)
        if patch is not None:
            pcs = await self._client.patch(PodCliqueSet, meta.name, patch, meta.namespace)
            self._cache.wrote(pcs)
        return await self._scale(pcs, record)

    async def _scale(self, pcs: PodCliqueSet, record: Record) -> PodCliqueSet:
        """Scales the PodCliques and groups that exist: a template counts only when a PodClique or group is created."""
        scaling, errors = list[Scaling](), list[KubeError]()
        for scale in record.scaling:
            scaled_uids = set(scale.done)
            for part in self._parts(pcs, scale):
                if part.metadata.uid in scaled_uids:
                    continue  # a later change of the scale counts from now on
                try:
                    if part.spec.replicas != scale.replicas:  # type: ignore[attr-defined]
                        patch = {"spec": {"replicas": scale.replicas}}
                        await self._client.patch(type(part), part.metadata.name, patch, part.metadata.namespace)
                    scaled_uids.add(part.metadata.uid)
                except KubeError as error:
                    errors.append(error)
            scaling.append(scale._replace(done=tuple(sorted(scaled_uids))))
        if not errors and is_taken_up(pcs):
            scaling = []  # until then the operator may make parts from the old template; the next look scales those
        if scaling != record.scaling:
            noted = with_record({"metadata": {"annotations": {}}}, replace(record, scaling=scaling))
            pcs = await self._client.patch(PodCliqueSet, pcs.metadata.name, noted, pcs.metadata.namespace)
        if errors:
            raise errors[0]
        return pcs

    def _parts(self, pcs: PodCliqueSet, scale: Scaling) -> list[Object]:
        if scale.part == CLIQUES:
            cliques = self._cache.by_index(PodClique, SET, pcs.key)
            return [clique for clique in cliques if clique.spec.role_name == scale.name]
        fqns = {names.scaling_group(pcs.metadata.name, index, scale.name) for index in pcs.indexes}
        groups = self._cache.by_index(PodCliqueScalingGroup, SET, pcs.key)
        return [group for group in groups if group.metadata.name in fqns]

    # The end

    async def _finish(self, source: Source) -> None:
        """The set goes first. If the kind itself is being removed the set stays: an uninstall stops no system."""
        if DIALECT_FINALIZER not in source.metadata.finalizers:
            return
        _, _, pcs = self._translated(source)
        if source.metadata.uid in self._orphaning:
            log.info("a set stays: its object is deleted without it", object=str(source.key))
        elif pcs is not None and _is_own(source, pcs):
            if not await self._kind_goes(source):
                if not pcs.metadata.is_deleting:
                    await self._delete(pcs)
                return  # its deletion is the event that brings us back
            message = f"{source.RESOURCE} is removed from the cluster; this set stays, but no longer follows it"
            self._events.warn(pcs, "TranslationEnded", message)
            log.warning("a translated set stays alone, its kind is removed", set=str(pcs.key))
        meta = source.metadata
        patch = finalizer_patch(meta.finalizers, meta.resource_version, DIALECT_FINALIZER, present=False)
        if patch is not None:
            try:
                await self._client.patch(type(source), meta.name, patch, meta.namespace)
            except NotFound:
                pass
        self._settled.pop(meta.uid, None)

    async def _kind_goes(self, source: Source) -> bool:
        try:
            definition = await self._client.get(CustomResourceDefinition, str(source.RESOURCE))
        except NotFound:
            return True
        except Forbidden:
            return False  # unknown, so the object counts as it is
        return definition.metadata.is_deleting

    async def _delete(self, pcs: PodCliqueSet) -> None:
        try:
            await self._client.delete(PodCliqueSet, pcs.metadata.name, pcs.metadata.namespace, uid=pcs.metadata.uid)
        except NotFound:
            pass

    async def _with_finalizer(self, source: Source) -> Source:
        meta = source.metadata
        patch = finalizer_patch(meta.finalizers, meta.resource_version, DIALECT_FINALIZER, present=True)
        if patch is None:
            return source
        answer: Source = await self._client.patch(type(source), meta.name, patch, meta.namespace)
        return self._sources.wrote(answer, echo=True)

    # The status

    async def _tell(self, source: Source, outcome: Outcome) -> Result:
        now, before = self._clock.now(), source.status
        generation = source.metadata.generation
        conditions = with_condition(
            before.conditions, TRANSLATED, outcome.status, outcome.reason, outcome.message, now, generation
        )
        status: Any = structs.replace(before, observed_generation=generation, conditions=conditions)
        if outcome.pcs is not None:
            pcs = self._cache.get(PodCliqueSet, outcome.pcs.key) or outcome.pcs
            if outcome.status == TRUE and pcs.status.observed_generation != pcs.metadata.generation:
                # The counts below are those of the generation before, until the set has carried out this one.
                status = structs.replace(status, observed_generation=before.observed_generation)
            cliques, gangs = self._sorted(PodClique, pcs), self._sorted(PodGang, pcs)
            if isinstance(source, PodGangSet):
                status = gang_set_status(status, pcs, cliques, gangs, now)
            else:
                groups = self._sorted(PodCliqueScalingGroup, pcs)
                status = koord_set_status(status, as_json(source), pcs, cliques, groups, gangs, now)
        turned = _verdicts(before) != _verdicts(status)
        wait_s = await self._statuses.write(source, status, news=turned)
        old = find_condition(before.conditions, TRANSLATED)
        if outcome.status == FALSE and wait_s is None and (old is None or old.reason != outcome.reason):
            self._events.warn(source, outcome.reason, outcome.message)
        return Result(after_s=wait_s)

    def _sorted(self, kind: type[Any], pcs: PodCliqueSet) -> list[Any]:
        return sorted(self._cache.by_index(kind, SET, pcs.key), key=lambda obj: obj.metadata.name)


def _is_own(source: Source, pcs: PodCliqueSet) -> bool:
    meta = pcs.metadata
    return is_made_from(meta.labels, meta.annotations, source.RESOURCE.group, source.metadata.name)


def _state(pcs: PodCliqueSet, record: Record) -> Any:
    """The state of a set and its translation. While it stays the same, there is nothing to write."""
    meta = pcs.metadata
    return (meta.uid, meta.generation, meta.labels, meta.annotations, record)


def _verdicts(status: Any) -> list[tuple[str, str, str]]:
    return [(condition.type, condition.status, condition.reason) for condition in status.conditions]


def _fixed(wanted: Json, live: Json) -> list[Fault]:
    """Changes that a set which exists cannot take."""
    return list(update_faults(SetView(wanted), SetView(live), topology_enabled=True, lookups=Known()))


def _listed(faults: Sequence[Fault]) -> str:
    return "; ".join(map(str, faults))


def _refusal(translation: Translation, error: Invalid) -> str:
    """The API server's refusal of the set, with the field paths of the source object."""
    causes = error.details.get("causes") or ()
    causes_text = [f"{translation.spelled(cause.get('field', ''))}: {cause.get('message', '')}" for cause in causes]
    return "; ".join(causes_text) or str(error)
