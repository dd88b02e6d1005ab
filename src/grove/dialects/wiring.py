"""The dialects, built and wired: what the operator runs when they are switched on.

Their kinds have a cache of their own. The kinds may be absent when the operator starts, be installed later, or be
removed while it runs. Then the dialects have nothing to translate, and the rest of the operator works as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from grove.api import labels
from grove.api.core import Pod
from grove.api.dynamo import PlacementPodClique, PodGangSet
from grove.api.koordset import KoordPodCliqueSet
from grove.api.meta import Key, Object, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.dialects.controller import DialectReconciler, Source, SourceKey
from grove.dialects.placement_controller import PlacementReconciler, Placements
from grove.dialects.status import NAME_CONFLICT, TRANSLATED
from grove.kube.cache import Cache
from grove.kube.controller import Controller
from grove.kube.writes import unless_namespace_ends
from grove.operator.shared.cluster.deps import Deps
from grove.operator.shared.cluster.status_writer import StatusWriter

WORKERS = 5
SETTLE_S = 0.05
"""What a look waits for more news of the same set: its parts change in bursts."""
COUNT_S = 1.0
"""What a rule waits for more pods to change before it counts them again."""


class Dialects:
    """Both controllers of the dialects. They read the operator's cache and add their own writes of sets to it."""

    def __init__(self, deps: Deps) -> None:
        cache, client, namespace = deps.cache, deps.client, deps.namespace
        self._cache, self._sources = cache, (sources := Cache(client))
        self._statuses = statuses = StatusWriter(sources, client, deps.status_batches)
        for kind in (PodGangSet, KoordPodCliqueSet, PlacementPodClique):
            sources.add(kind, namespace=namespace)
        placements = Placements(cache, sources, topology_enabled=deps.sets.topology_enabled)
        sets = DialectReconciler(cache, sources, client, placements, statuses, deps.events, deps.clock)
        rules = PlacementReconciler(cache, sources, placements, statuses, deps.clock)
        self._sets = Controller[SourceKey]("dialect", unless_namespace_ends(sets.reconcile), workers=WORKERS)
        self._rules = Controller[Key]("dialect-placement", unless_namespace_ends(rules.reconcile))
        sources.on_event(PodGangSet, self._on_source)
        sources.on_event(KoordPodCliqueSet, self._on_source)
        sources.on_event(PlacementPodClique, self._on_rule)
        cache.on_event(PodCliqueSet, self._on_set)
        for part in (PodClique, PodCliqueScalingGroup, PodGang):
            cache.on_event(part, self._on_part)
        cache.on_event(Pod, self._on_pod)

    @property
    def controllers(self) -> tuple[Controller[Any], ...]:
        return (self._sets, self._rules)

    async def run(self) -> None:
        """Follows the dialects' kinds until cancelled."""
        async with self._sources:
            await asyncio.Event().wait()

    def wake_all(self, after_s: Callable[[], float]) -> None:
        """Has every object of the dialects looked at again, each after its own time."""
        for kind in _KINDS.values():
            for source in self._sources.list(kind):
                self._sets.add(SourceKey(kind, source.key), after_s=after_s())
        for rule in self._sources.list(PlacementPodClique):
            self._rules.add(rule.key, after_s=after_s())

    def _on_source(self, old: Source | None, new: Source | None) -> None:
        if new is None:
            if old is not None:
                self._statuses.forget(old.metadata.uid)
                self._wake_rules(old)
            return
        if not self._sources.is_echo(new):
            self._sets.add(SourceKey(type(new), new.key))
        if old is None or old.metadata.generation != new.metadata.generation:
            self._wake_rules(new)

    def _on_rule(self, old: PlacementPodClique | None, new: PlacementPodClique | None) -> None:
        rule = new or old
        if rule is None or (new is not None and self._sources.is_echo(new)):
            return
        if new is None:
            self._statuses.forget(rule.metadata.uid)
        self._rules.add(rule.key)
        if old is None or new is None or _said(old) != _said(new):
            for source in self._sources.list(PodGangSet, rule.metadata.namespace):
                self._sets.add(SourceKey(PodGangSet, source.key))
            for other in self._sources.list(PlacementPodClique, rule.metadata.namespace):
                self._rules.add(other.key, after_s=SETTLE_S)

    def _on_set(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        pcs = new or old
        if pcs is None:
            return
        if new is None:
            self._wake_refused(pcs.metadata.namespace)
        self._wake(pcs)
        self._wake_rules(pcs)

    def _on_part(self, old: Object | None, new: Object | None) -> None:
        part = new or old
        name = part.metadata.labels.get(labels.PART_OF) if part is not None else None
        pcs = self._cache.get(PodCliqueSet, Key(part.metadata.namespace, name)) if part is not None and name else None
        if pcs is not None:
            self._wake(pcs, after_s=SETTLE_S)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is None or new is None or old.spec.node_name != new.spec.node_name:
            pod = new or old
            if pod is not None:
                self._wake_rules(pod)

    def _wake(self, pcs: PodCliqueSet, after_s: float = 0.0) -> None:
        kind = _KINDS.get(pcs.metadata.labels.get(labels.TRANSLATED_FROM, ""))
        name = pcs.metadata.annotations.get(labels.TRANSLATED_NAME)
        if kind is not None and name:
            self._sets.add(SourceKey(kind, Key(pcs.metadata.namespace, name)), after_s=after_s)

    def _wake_refused(self, namespace: str) -> None:
        """Objects whose set's name was taken: it may be free now."""
        for kind in _KINDS.values():
            for source in self._sources.list(kind, namespace):
                translated = find_condition(source.status.conditions, TRANSLATED)
                if translated is not None and translated.reason == NAME_CONFLICT:
                    self._sets.add(SourceKey(kind, source.key))

    def _wake_rules(self, near: Object) -> None:
        for rule in self._sources.list(PlacementPodClique, near.metadata.namespace):
            self._rules.add(rule.key, after_s=COUNT_S if isinstance(near, Pod) else SETTLE_S)


_KINDS: dict[str, type[PodGangSet] | type[KoordPodCliqueSet]] = {
    kind.RESOURCE.group: kind for kind in (PodGangSet, KoordPodCliqueSet)
}


def _said(rule: PlacementPodClique) -> tuple[Any, ...]:
    meta = rule.metadata
    return (rule.spec, meta.annotations, meta.is_deleting)
