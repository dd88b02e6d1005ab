"""PodClique: keeps a clique's pods equal, in number and template, to its spec, and its status equal to its pods.

`PodCliqueController.wakes` lists what wakes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from grove.api import conditions, kueue, labels
from grove.api.conditions import ErrorCode, EventReason
from grove.api.core import Node, Pod, ResourceClaim
from grove.api.meta import Json, Key, is_true
from grove.api.podclique import PodClique, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.controller import DONE, Result, earliest
from grove.kube.errors import Conflict, KubeError, NotFound, NotLeader
from grove.kube.wakes import Wake, changed, forgetting, is_gone, latest, own_key
from grove.kube.writes import in_parallel, namespace_ends
from grove.operator.pod.controller import PARENT
from grove.operator.podclique.plan import CliquePlan, plan_clique, plan_turn
from grove.operator.podclique.pod_facts import ParentWaits, PodLoads, VanishedNodes
from grove.operator.podclique.pod_writer import PodWriter
from grove.operator.podclique.pods import surplus
from grove.operator.podclique.rollout import CliqueStep, is_due, pauses_halfway
from grove.operator.podclique.status import ObservedClique
from grove.operator.podgang.gangs import find_gang_layout, is_scheduled
from grove.operator.shared.children import wanted_clique
from grove.operator.shared.claims import clique_claims
from grove.operator.shared.cluster.claim_writer import is_claim_edited
from grove.operator.shared.cluster.deps import Deps
from grove.operator.shared.cluster.pod_cleanup import delete_ahead_of_clique, release
from grove.operator.shared.cluster.sets import ON_NODE, SET, by_node, owner_keys, set_key
from grove.operator.shared.diff import needed_patch
from grove.operator.shared.former import clique_before
from grove.operator.shared.kueue import KueueGroup, is_admitted, kueue_group
from grove.operator.shared.layout import Unit, pod_index, replica_of, unit_of
from grove.operator.shared.outcome import COMPLETE, Outcome
from grove.operator.shared.readiness import stalls_in_s
from grove.operator.shared.rollout import concerned_replicas
from grove.operator.shared.startup import parent_minimums
from grove.operator.shared.status_batching import SETTLE_S

HIGH_PRIORITY = 1
"""Priority of a clique with a pod that turned ready. Where hundreds of pods start at once, their status is written
before more pods are created.
"""
BASE_GANG = "base-gang"
"""Index: PodCliques by (namespace, base gang) whose own gang waits for that base gang."""

OWNERS = owner_keys(PodClique)


def by_base_gang(clique: PodClique) -> tuple[Key, ...]:
    base = clique.metadata.labels.get(labels.BASE_POD_GANG)
    return (Key(clique.metadata.namespace, base),) if base else ()


class PodCliqueController:
    """Keeps PodCliques: reads, has `plan_clique` decide, carries it out."""

    def __init__(self, deps: Deps) -> None:
        self._deps, self._cache, self._sets, self._queue = deps, deps.cache, deps.sets, deps.queues.cliques
        self._nodes = VanishedNodes(deps.cache, deps.client, deps.clock)
        self._writer = PodWriter(deps.cache, deps.client, deps.clock, salt=deps.pod_name_salt)
        self._waits, self._loads = ParentWaits(deps.client), PodLoads(deps.client)
        self._cache.add_index(Pod, ON_NODE, by_node)
        self._cache.add_index(PodClique, BASE_GANG, by_base_gang)
        self._cache.on_event(PodClique, forgetting(self.forget))
        deps.follow(self.wakes())

    def wakes(self) -> tuple[Wake[Any, Key], ...]:
        """The table of what wakes the controller: source, keys, and the changes that count."""
        now, settled, hurry = self._queue.add, partial(self._queue.add, after_s=SETTLE_S), self._queue.hurry
        ready, ready_settled = partial(hurry, priority=HIGH_PRIORITY), partial(settled, priority=HIGH_PRIORITY)
        return (
            Wake(PodClique, own_key, now, self._cache.is_news),
            Wake(PodClique, latest(self._children_of), settled, _is_shrunk),
            Wake(PodClique, latest(self._in_kueue_group), settled, changed(_is_scaled)),
            Wake(Pod, OWNERS, settled, lambda old, new: not _turned_ready(old, new)),
            Wake(Pod, OWNERS, ready_settled, _turned_ready, hurry=ready, urgent=self._is_whole),
            Wake(Pod, latest(self._scaled_beside), settled, changed(_is_placed)),
            Wake(Pod, latest(self._of_base_gang), settled, changed(_is_admitted)),
            Wake(Node, latest(self._cliques_on), settled, is_gone),
            Wake(PodGang, latest(self._cliques_of_gang), settled, self._opens_gates),
            Wake(PodCliqueSet, self._followers, settled, changed(lambda *_: True)),
            Wake(PodCliqueSet, self._chosen, hurry, changed(lambda *_: True)),
            Wake(PodCliqueScalingGroup, latest(self._members), hurry, changed(_is_restarted)),
            Wake(ResourceClaim, OWNERS, now, is_claim_edited),
        )

    async def reconcile(self, key_: Key) -> Result:
        clique = self._cache.get(PodClique, key_)
        if clique is None:
            return DONE
        if clique.metadata.is_deleting:
            return await self._finish(clique)
        pcs = self._sets.find_of(clique)
        unit = unit_of(pcs, clique) if pcs is not None else None
        if pcs is None or unit is None:
            return DONE  # it is not wanted any more; its owner deletes it
        observed = await self._observe(clique, pcs, unit)
        if is_due(observed):
            observed = await self._hand_over(observed)
        if pauses_halfway(observed):
            observed = await self._with_former(observed)
        plan = plan_clique(observed, self._deps.clock.now(), self._writer.names_for(clique))
        return await self._apply(plan)

    # Reading

    async def _with_former(self, observed: ObservedClique) -> ObservedClique:
        former = await self._deps.former.find(observed.pcs)
        if former is None:
            return observed
        every = self._cache.by_index(PodClique, SET, observed.pcs.key)
        return replace(observed, former=clique_before(observed.pcs, former, observed.clique, every))

    async def _observe(self, clique: PodClique, pcs: PodCliqueSet, unit: Unit) -> ObservedClique:
        uid, namespace = clique.metadata.uid, clique.metadata.namespace
        replicas = self._sets.parent_replicas(pcs, unit.replica, clique)
        short: Mapping[str, int] = {}
        if replicas:
            minimums = dict(parent_minimums(pcs, unit, clique.spec.starts_after))  # of parents that were not scaled
            short = {name: count for name, count in replicas.items() if count < minimums.get(name, 0)}
        # Asked before the pods are read: what is read below is of one moment.
        await self._nodes.confirm(self._cache.owned(Pod, by=uid))
        stuck = await self._waits.in_vain(uid, self._cache.owned(Pod, by=uid), short)
        # Members leave with their replica of the group; only among pods of a standalone clique there is a choice.
        chooses = unit.group is None and clique.spec.replicas > 0
        chooses = chooses and surplus(clique, self._cache.owned(Pod, by=uid)) > 0
        loads = await self._loads.of(clique) if chooses else {}
        hidden = await self._hidden_pods(clique)
        group, pods = clique.metadata.labels.get(labels.SCALING_GROUP), [*self._cache.owned(Pod, by=uid), *hidden]
        gang = self._cache.get(PodGang, Key(namespace, unit.gang))
        is_gated = any(pod.has_gate(labels.POD_GANG_GATE) for pod in pods)
        return ObservedClique(
            self._cache.get(PodClique, clique.key) or clique,
            self._cache.get(PodCliqueSet, pcs.key) or pcs,
            unit,
            pods,
            self._sets.backend_of(pcs),
            self._sets.hashes_of(pcs)[unit.template.name],
            recorded=self._sets.is_recorded(pcs),
            group=self._cache.get(PodCliqueScalingGroup, Key(namespace, group)) if group else None,
            gang=gang,
            base_scheduled=not is_gated or self._is_base_scheduled(namespace, unit),
            parent_replicas=replicas,
            stuck=frozenset(stuck),
            loads=loads,
            core_nodes=self._core_nodes(gang) if is_gated and gang is not None else (),
            gone_since=self._nodes.gone_since(pods),
            startup_image=self._deps.startup_image,
            surge_wait_s=self._deps.surge_wait_s,
            kueue=self._kueue_group(pcs, unit),
            binding=self._sets.binding_of(pcs),
        )

    def _kueue_group(self, pcs: PodCliqueSet, unit: Unit) -> KueueGroup | None:
        """Computed only for a set that names a Kueue queue: every pod of the gang is looked at."""
        queue, namespace = kueue.queue_of(pcs), pcs.metadata.namespace
        layout = find_gang_layout(pcs, unit.gang, partial(self._sets.group_replicas, pcs)) if queue else None
        if layout is None:
            return None
        asked = {other.fqn: self._asked_for(namespace, other) for other in layout.units}
        pods = [pod for other in layout.units for pod in self._sets.pods_of(namespace, other.fqn)]
        base = self._cache.by_index(Pod, SET, pcs.key) if unit.is_scaled else ()
        is_first = not unit.is_scaled or any(
            is_admitted(pod) for pod in base if pod.metadata.labels.get(labels.POD_GANG) == unit.base_gang
        )
        return kueue_group(queue, unit.gang, asked, pods, may_queue=is_first)

    def _asked_for(self, namespace: str, unit: Unit) -> int:
        clique = self._cache.get(PodClique, Key(namespace, unit.fqn))
        return clique.spec.replicas if clique is not None else unit.template.spec.replicas

    async def _hidden_pods(self, clique: PodClique) -> list[Pod]:
        """Pods of a clique that the cache does not show, because another client changed their label.

        The API server is asked only where fewer pods are seen than the status last counted. Without this a second pod
        with the same host name would be made.
        """
        shown = self._cache.owned(Pod, by=clique.metadata.uid)
        if len(shown) >= clique.status.replicas:
            return []
        seen = {pod.metadata.uid for pod in shown}
        selector = f"{labels.POD_CLIQUE}={clique.metadata.name},{labels.MANAGED_BY}!={labels.OPERATOR}"
        page = await self._deps.client.list(Pod, clique.metadata.namespace, labels=selector)
        return [
            pod
            for pod in page.items
            if (owner := pod.metadata.controller) is not None
            and owner.uid == clique.metadata.uid
            and pod.metadata.uid not in seen
        ]

    def _core_nodes(self, gang: PodGang) -> list[Mapping[str, str]]:
        mappings: list[Mapping[str, str]] = []
        for group in gang.spec.podgroups:
            for pod in self._sets.pods_of(gang.metadata.namespace, group.name):
                if pod.is_bound and pod.is_active and (pod_index(pod) or 0) < group.min_replicas:
                    node_labels = self._sets.node_labels(pod.spec.node_name)
                    mappings += [node_labels] if node_labels is not None else []
        return mappings

    def _is_base_scheduled(self, namespace: str, unit: Unit) -> bool:
        """Reckoned only while a pod waits for it: every pod of the base gang is looked at."""
        if not unit.is_scaled:
            return True
        base = self._cache.get(PodGang, Key(namespace, unit.base_gang))
        return base is not None and is_scheduled(base, lambda fqn: self._sets.pods_of(namespace, fqn))

    # Writing

    async def _hand_over(self, observed: ObservedClique) -> ObservedClique:
        """Gives the clique the template of now; its pods are made from that from now on.

        What the update takes of it is recorded at the same time: both must be written before a pod is deleted.
        """
        clique, wanted = observed.clique, wanted_clique(observed.pcs, observed.unit)
        patch = needed_patch(wanted, clique)
        if patch is None:
            return observed
        turn, acts = plan_turn(observed, wanted, self._deps.clock.now()), [partial(self._give, observed, patch)]
        if (chosen := turn.recorded_first) is not None:
            acts.append(partial(self._record, turn, chosen))
        for error in await in_parallel(acts):
            raise error
        return replace(observed, clique=self._cache.get(PodClique, clique.key) or clique)

    async def _record(self, plan: CliquePlan, chosen: PodCliqueStatus) -> None:
        await self._write_status(plan, chosen)

    async def _give(self, observed: ObservedClique, patch: Json) -> None:
        """Writes a template, and reports why that failed."""
        clique = observed.clique
        try:
            answer = await self._deps.client.patch(PodClique, clique.metadata.name, patch, clique.metadata.namespace)
        except (Conflict, NotFound, NotLeader):
            raise
        except KubeError as error:
            self._deps.events.warn(clique, EventReason.POD_CLIQUE_CREATE_OR_UPDATE_FAILED, str(error))
            outcome = Outcome(errors=((ErrorCode.CREATE_OR_UPDATE_POD_CLIQUE, str(error)),))
            plan = CliquePlan(
                observed,
                self._deps.clock.now(),
                CliqueStep(clique.status.update_progress, incarnation=clique.status.incarnation),
            )
            await self._write_status(plan, plan.status(outcome))
            raise
        self._cache.wrote(answer, echo=True)

    async def _apply(self, plan: CliquePlan) -> Result:
        if (first := plan.recorded_first) is not None:
            await self._record(plan, first)
        if plan.refused is not None:
            return Result(after_s=await self._write_status(plan, plan.status(plan.refused)))
        errors = await self._write_claims(plan) or await self._writer.carry_out(plan.observed.clique, plan.pods)
        if errors:
            return await self._failed(plan, errors)
        self._deps.tell(plan.events)
        if not plan.pods.is_settled:
            return Result(after_s=plan.next_look_s)  # the echo of what was done brings us back to write the status
        wait_s = await self._write_status(plan, plan.status(COMPLETE))
        return Result(after_s=earliest(plan.next_look_s, wait_s))

    async def _write_claims(self, plan: CliquePlan) -> list[tuple[str, KubeError]]:
        seen, code = plan.observed, ErrorCode.SYNC_CLIQUE_RESOURCE_CLAIM
        claims = clique_claims(seen.pcs, seen.clique, seen.unit, plan.pods.indexes)
        changes = await self._deps.claims.sync(claims, code=code)
        return [(code, changes.error)] if changes.error is not None else []

    async def _failed(self, plan: CliquePlan, errors: list[tuple[str, KubeError]]) -> Result:
        if namespace_ends(errors[0][1]):
            return DONE
        clique = plan.observed.clique
        reported = [(code, error) for code, error in errors if not isinstance(error, Conflict | NotLeader)]
        for code, error in reported:
            if code != ErrorCode.REMOVE_GATE:
                failed = (
                    EventReason.POD_DELETE_FAILED if code == ErrorCode.DELETE_POD else EventReason.POD_CREATE_FAILED
                )
                self._deps.events.warn(clique, failed, str(error))
        wait_s = stalls_s = None
        if reported:
            after = plan.status(Outcome(errors=tuple((code, str(error)) for code, error in reported)))
            wait_s, stalls_s = await self._write_status(plan, after), stalls_in_s(after, plan.now)
        return Result(earliest(plan.next_look_s, wait_s, stalls_s), errors[0][1])

    async def _write_status(self, plan: CliquePlan, after: PodCliqueStatus) -> float | None:
        """Writes the status, or returns the seconds that it may still wait."""
        before = plan.observed.clique
        clique = self._cache.get(PodClique, before.key) or before  # with what was recorded first
        news, limit_s = plan.is_news(after), plan.may_wait_s(after)
        wait_s = await self._deps.statuses.write(clique, after, news=news, wait_s=limit_s)
        if wait_s is None:
            self._deps.tell(plan.warnings(after))
        return wait_s

    async def _finish(self, clique: PodClique) -> Result:
        """Lets a clique go; its pods follow it by their owner reference."""
        self.forget(clique.metadata.uid)
        if labels.CLIQUE_FINALIZER in clique.metadata.finalizers:
            pods = self._cache.owned(Pod, by=clique.metadata.uid)
            if not self._goes_with_set(clique) and not all(pod.metadata.is_deleting for pod in pods):
                await delete_ahead_of_clique(self._cache, self._deps.client, clique)
            await release(self._cache, self._deps.client, clique, labels.CLIQUE_FINALIZER)
        return DONE

    def _goes_with_set(self, clique: PodClique) -> bool:
        """True if the set is being deleted too. The set's controller then deletes the pods."""
        pcs_key = set_key(clique)
        pcs = self._cache.get(PodCliqueSet, pcs_key) if pcs_key is not None else None
        return pcs is not None and pcs.metadata.is_deleting

    def forget(self, uid: str) -> None:
        self._deps.statuses.forget(uid)
        self._writer.forget(uid)
        self._waits.forget(uid)

    # Waking: mappings and predicates

    def _children_of(self, clique: PodClique) -> list[Key]:
        """Cliques that start after this one."""
        return [child.key for child in self._cache.by_index(PodClique, PARENT, clique.key)]

    def _is_whole(self, old: Pod | None, new: Pod | None) -> bool:
        """True if every pod of the clique is ready, so its status needs no further event."""
        return any(self._sets.is_whole(owner, ready=True) for owner in OWNERS(old, new))

    def _cliques_on(self, node: Node) -> set[Key]:
        pods = self._cache.by_index(Pod, ON_NODE, node.metadata.name)
        return {key_ for pod in pods for key_ in OWNERS(None, pod)}

    def _cliques_of_gang(self, gang: PodGang) -> list[Key]:
        """Cliques of a gang, and cliques whose gangs wait for it."""
        own = [Key(gang.metadata.namespace, group.name) for group in gang.spec.podgroups]
        return own + [clique.key for clique in self._cache.by_index(PodClique, BASE_GANG, gang.key)]

    def _opens_gates(self, old: PodGang | None, new: PodGang | None) -> bool:
        """True if a gang became complete or lists other pods. Its gated pods may be ungated then."""
        if new is None or not self._sets.uses_gate(new):
            return False
        return old is None or _gates(old) != _gates(new) or old.spec != new.spec

    def _scaled_beside(self, pod: Pod) -> list[Key]:
        """Cliques of the gangs that wait for the base gang of a pod: gated pods of them may go when it is placed."""
        base = Key(pod.metadata.namespace, pod.metadata.labels.get(labels.POD_GANG, ""))
        gang = self._cache.get(PodGang, base)
        return self._of_base_gang(pod) if gang is not None and self._sets.uses_gate(gang) else []

    def _of_base_gang(self, pod: Pod) -> list[Key]:
        """Cliques of the gangs that wait for the base gang of a pod."""
        base = Key(pod.metadata.namespace, pod.metadata.labels.get(labels.POD_GANG, ""))
        return [clique.key for clique in self._cache.by_index(PodClique, BASE_GANG, base)]

    def _in_kueue_group(self, clique: PodClique) -> list[Key]:
        """Cliques of one pod group of Kueue: while it is not admitted, its size follows them."""
        pcs, gang = self._sets.find_of(clique), clique.metadata.labels.get(labels.POD_GANG)
        if pcs is None or not kueue.queue_of(pcs):
            return []
        every = self._cache.by_index(PodClique, SET, pcs.key)
        return [other.key for other in every if other.metadata.labels.get(labels.POD_GANG) == gang]

    def _members(self, group: PodCliqueScalingGroup) -> list[Key]:
        return [clique.key for clique in self._cache.owned(PodClique, by=group.metadata.uid)]

    def _concerned(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> Iterator[tuple[Key, bool]]:
        """Cliques of which the set asks something else now, each with whether its own turn has come.

        Otherwise its template, or its group, is about to change too.
        """
        concerned = concerned_replicas(old, new) if old is not None and new is not None else frozenset()
        if old is not None and new is not None and kueue.queue_of(old) != kueue.queue_of(new):
            concerned = None
        if new is None or (concerned is not None and not concerned):
            return
        for clique in self._cache.by_index(PodClique, SET, new.key):
            if concerned is None or replica_of(clique.metadata) in concerned:
                yield clique.key, concerned is not None and labels.SCALING_GROUP not in clique.metadata.labels

    def _followers(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> list[Key]:
        return [key_ for key_, is_its_turn in self._concerned(old, new) if not is_its_turn]

    def _chosen(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> list[Key]:
        return [key_ for key_, is_its_turn in self._concerned(old, new) if is_its_turn]


def _is_shrunk(old: PodClique | None, new: PodClique | None) -> bool:
    return old is not None and (new is None or new.spec.replicas < old.spec.replicas)


def _is_scaled(old: PodClique, new: PodClique) -> bool:
    return old.spec.replicas != new.spec.replicas


def _is_admitted(old: Pod, new: Pod) -> bool:
    """True if Kueue admitted the pod."""
    return kueue.waits(old) and not kueue.waits(new)


def _turned_ready(old: Pod | None, new: Pod | None) -> bool:
    return new is not None and new.is_ready and not (old is not None and old.is_ready)


def _is_placed(old: Pod, new: Pod) -> bool:
    return new.is_scheduled and not old.is_scheduled


def _is_restarted(old: PodCliqueScalingGroup, new: PodCliqueScalingGroup) -> bool:
    """The group says which of its replicas were restarted, and which drain."""
    before, after = old.status, new.status
    return before.replica_restarts != after.replica_restarts or before.draining != after.draining


def _gates(gang: PodGang) -> tuple[bool, ...]:
    """The conditions of a gang that decide if its pods may be ungated."""
    kinds = (conditions.INITIALIZED, conditions.SCHEDULER_OBJECTS_READY, conditions.SCHEDULED)
    return tuple(is_true(gang.status.conditions, kind) for kind in kinds)
