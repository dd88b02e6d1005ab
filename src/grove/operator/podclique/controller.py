"""PodClique: keeps a clique's pods equal, in number and template, to its spec, and its status equal to its pods.

Woken by the clique, by its pods, by the nodes they stand on, and by the gangs and sets that let them go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from grove.api import conditions as words
from grove.api import labels as key
from grove.api.conditions import ErrorCode, EventReason
from grove.api.core import Node, Pod
from grove.api.meta import Key, find_condition, is_true
from grove.api.podclique import PodClique, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.backends import Backend, BackendError
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.controller import DONE, Controller, Result
from grove.kube.errors import Conflict, KubeError, NotFound
from grove.kube.events import Recorder
from grove.kube.expectations import Expectations
from grove.operator.podclique.nodes import ON_NODE, Nodes
from grove.operator.podclique.pod import PodBlueprint
from grove.operator.podclique.pod_loads import PodLoads
from grove.operator.podclique.pod_writer import PodWriter
from grove.operator.podclique.pods import PodPlan, plan_pods, pod_index, surplus
from grove.operator.podclique.rollout import CliqueTurn, clique_turn
from grove.operator.podclique.startup_controller import PARENT
from grove.operator.podclique.startup_waits import Waits
from grove.operator.podclique.status import SCALING_LIMITED, clique_status, lost_all_scheduled
from grove.operator.podgang.gangs import is_scheduled, releasable
from grove.operator.shared.claim_writer import SharedClaims
from grove.operator.shared.claims import wanted_clique_claims
from grove.operator.shared.diff import finalizer_patch
from grove.operator.shared.latest import Latest
from grove.operator.shared.layout import Unit, replica_of, unit_of
from grove.operator.shared.outcome import Outcome
from grove.operator.shared.pod_cleanup import send_pods_ahead
from grove.operator.shared.rollout import concerned_replicas
from grove.operator.shared.sets import SET, Sets
from grove.operator.shared.status_batching import FIRST_S, PROGRESS_S, SETTLE_S
from grove.operator.shared.status_writer import StatusWriter
from grove.operator.shared.termination import with_clique_memory
from grove.operator.shared.trouble import namespace_ends
from grove.operator.shared.urgency import clique_news

BASE_GANG = "base-gang"
"""Index: PodCliques by (namespace, base gang) whose own gang waits for that base gang."""


def by_base_gang(clique: PodClique) -> tuple[Key, ...]:
    base = clique.metadata.labels.get(key.BASE_POD_GANG)
    return (Key(clique.metadata.namespace, base),) if base else ()


class PodCliqueReconciler:
    """Keeps a PodClique's pods equal, in number and template, to its spec."""

    def __init__(
        self, cache: Cache, client: Client, sets: Sets, nodes: Nodes, claims: SharedClaims, expect: Expectations,
        writer: PodWriter, latest: Latest, statuses: StatusWriter, events: Recorder, clock: Clock, *,
        startup_image: str,
    ) -> None:  # fmt: skip
        self._cache, self._client, self._sets, self._nodes, self._claims = cache, client, sets, nodes, claims
        self._expect, self._writer, self._latest, self._statuses = expect, writer, latest, statuses
        self._events, self._clock, self._startup_image = events, clock, startup_image
        self._waits, self._loads = Waits(client), PodLoads(client)

    async def reconcile(self, key_: Key) -> Result:
        cached = self._cache.get(PodClique, key_)
        if cached is None:
            return DONE
        clique = self._latest.of(cached)
        if clique.metadata.is_deleting:
            return await self._finish(clique)
        pcs = self._sets.find_of(clique)
        unit = unit_of(pcs, clique) if pcs is not None else None
        if pcs is None or unit is None:
            return DONE  # nobody wants it any more; whoever owns it removes it
        pcs = self._latest.of(pcs)
        pods = self._cache.owned(Pod, by=clique.metadata.uid)
        if not self._expect.settled(clique.metadata.uid, pods):
            return Result(after_s=self._expect.next_expiry_s(clique.metadata.uid))
        await self._nodes.confirm(pods)

        turn = self._turn(clique, pcs, unit, pods)
        if turn.must_be_recorded(clique.status):
            await self._write_status(clique, pcs, unit, pods, Outcome(waiting_for="pods to be replaced"), turn)
            clique = self._latest.of(clique)
        backend = self._sets.backend_of(pcs)
        if backend is None or (clique.spec.starts_after and not self._startup_image):
            refused = Outcome(errors=(self._cannot_build(backend),))
            return await self._write_status(clique, pcs, unit, pods, refused, turn)
        replicas = self._sets.parent_replicas(pcs, unit.replica, clique)
        at_zero = frozenset(name for name, count in replicas.items() if count == 0)
        stuck = await self._waits.in_vain(clique.metadata.uid, pods, at_zero & {*clique.spec.starts_after})
        # Members leave with their copy of the group; only among pods of a standalone clique there is a choice.
        chooses = unit.group is None and clique.spec.replicas > 0 and surplus(clique, pods) > 0
        loads = await self._loads.of(clique) if chooses else {}
        try:
            plan = self._plan(clique, pcs, unit, backend, pods, turn, replicas, stuck, loads)
        except BackendError as error:
            refused = Outcome(errors=((ErrorCode.BUILD_POD, str(error)),))
            return await self._write_status(clique, pcs, unit, pods, refused, turn)
        errors = await self._act(clique, pcs, unit, plan)
        if errors and namespace_ends(errors[0][1]):
            return DONE
        if errors:
            # A lost race is no news to anybody.
            told = tuple(self._told(clique, *one) for one in errors if not isinstance(one[1], Conflict))
            if told:
                await self._write_status(clique, pcs, unit, pods, Outcome(errors=told), turn)
            raise errors[0][1]
        if not plan.is_settled:
            # The echo of what was done brings us back, with the status to write; should it never come, its time limit.
            return _earliest(plan.next_look_s, self._expect.next_expiry_s(clique.metadata.uid))
        result = await self._write_status(clique, pcs, unit, pods, Outcome(), turn)
        return _earliest(plan.next_look_s, result.after_s)

    async def _finish(self, clique: PodClique) -> Result:
        """Lets a clique go; its pods follow it by their owner reference."""
        self.forget(clique.metadata.uid)
        meta = clique.metadata
        patch = finalizer_patch(meta.finalizers, meta.resource_version, key.CLIQUE_FINALIZER, present=False)
        if patch is not None:
            if any(not pod.metadata.is_deleting for pod in self._cache.owned(Pod, by=meta.uid)):
                await send_pods_ahead(self._client, clique, Pod, f"{key.POD_CLIQUE}={meta.name}")
            try:
                await self._client.patch(PodClique, meta.name, patch, meta.namespace)
            except NotFound:
                pass
        return DONE

    def forget(self, uid: str) -> None:
        self._expect.forget(uid)
        self._statuses.forget(uid)
        self._writer.forget(uid)
        self._waits.forget(uid)

    # Deciding

    def _turn(self, clique: PodClique, pcs: PodCliqueSet, unit: Unit, pods: Sequence[Pod]) -> CliqueTurn:
        name = clique.metadata.labels.get(key.SCALING_GROUP)
        group = self._cache.get(PodCliqueScalingGroup, Key(clique.metadata.namespace, name)) if name else None
        group = self._latest.of(group) if group is not None else None
        template_hash, recorded = self._sets.hashes_of(pcs)[unit.template.name], self._sets.is_recorded(pcs)
        return clique_turn(pcs, clique, group, pods, template_hash, self._clock.now(), recorded=recorded)

    def _plan(
        self, clique: PodClique, pcs: PodCliqueSet, unit: Unit, backend: Backend, pods: Sequence[Pod],
        turn: CliqueTurn, parent_replicas: dict[str, int], stuck: set[str], loads: Mapping[str, float],
    ) -> PodPlan:  # fmt: skip
        blueprint = PodBlueprint(
            pcs,
            clique,
            unit,
            backend,
            self._startup_image,
            parent_replicas,
            turn.incarnation,
            self._cache.get(PodGang, Key(clique.metadata.namespace, unit.gang)),
        )
        plan = plan_pods(
            blueprint,
            pods,
            now=self._clock.now(),
            rng=self._writer.names_for(clique),
            gone_since=self._nodes.gone_since,
            releasable=self._releasable(clique, pods, backend) if backend.needs_gate else (),
            replace=turn.replace,
            restart=turn.restart,
            stuck=stuck,
            loads=loads,
        )
        if not plan.ungate or blueprint.gang is None:
            return plan
        return replace(plan, node_labels=backend.node_labels_to_keep(blueprint.gang, self._core_nodes(blueprint.gang)))

    def _core_nodes(self, gang: PodGang) -> list[dict[str, str]]:
        """Labels of the nodes on which pods stand that the gang needs, a node as often as it has such pods."""
        found: list[dict[str, str]] = []
        for group in gang.spec.podgroups:
            for pod in self._sets.pods_of(gang.metadata.namespace, group.name):
                if pod.is_bound and pod.is_active and (pod_index(pod) or 0) < group.min_replicas:
                    node = self._cache.get(Node, Key("", pod.spec.node_name))
                    found += [node.metadata.labels] if node is not None else []
        return found

    def _releasable(self, clique: PodClique, pods: Sequence[Pod], backend: Backend) -> list[Pod]:
        if not any(pod.has_gate(key.POD_GANG_GATE) for pod in pods):
            return []
        namespace, labels = clique.metadata.namespace, clique.metadata.labels
        gang = self._cache.get(PodGang, Key(namespace, labels.get(key.POD_GANG, "")))
        base_name = labels.get(key.BASE_POD_GANG)
        base = self._cache.get(PodGang, Key(namespace, base_name)) if base_name else None
        placed = base_name is None or (
            base is not None and is_scheduled(base, lambda fqn: self._sets.pods_of(namespace, fqn))
        )
        ready = releasable(pods, clique.metadata.name, gang, base_scheduled=placed)
        still = self._writer.still_gated(clique, ready)
        return [pod for pod in still if gang is not None and backend.may_go(pod, gang)]

    def _cannot_build(self, backend: Backend | None) -> tuple[str, str]:
        if backend is None:
            return (
                ErrorCode.BUILD_POD,
                "the scheduler that the set names is not enabled in the operator's configuration",
            )
        return ErrorCode.STARTUP_IMAGE_MISSING, "the operator was not told the image of the start-order container"

    # Acting

    async def _act(
        self, clique: PodClique, pcs: PodCliqueSet, unit: Unit, plan: PodPlan
    ) -> list[tuple[str, KubeError]]:
        """Carries the plan out and returns what went wrong; stops where going on would only fail again."""
        changes = await self._claims.sync(
            pcs,
            clique,
            unit.template.resource_sharing,
            lambda find: wanted_clique_claims(pcs, clique, unit, plan.indexes, find),
            code=ErrorCode.SYNC_CLIQUE_RESOURCE_CLAIM,
        )
        if changes.error is not None:
            return [(ErrorCode.SYNC_CLIQUE_RESOURCE_CLAIM, changes.error)]
        errors = await self._writer.carry_out(clique, plan)
        if not errors:
            self._tell(clique, plan)
        return errors

    # Telling

    def _tell(self, clique: PodClique, plan: PodPlan) -> None:
        if plan.create and clique.status.observed_generation is not None:  # that a new clique has pods is no news
            self._events.normal(clique, EventReason.POD_CREATE_SUCCESSFUL, f"created {_count(len(plan.create), 'pod')}")
        for removal in plan.delete:
            message = f"deleted pod {removal.pod.metadata.name}: {removal.reason}"
            self._events.normal(clique, EventReason.POD_DELETE_SUCCESSFUL, message)

    def _told(self, clique: PodClique, code: str, error: KubeError) -> tuple[str, str]:
        if code != ErrorCode.REMOVE_GATE:
            reason = EventReason.POD_DELETE_FAILED if code == ErrorCode.DELETE_POD else EventReason.POD_CREATE_FAILED
            self._events.warn(clique, reason, str(error))
        return code, str(error)

    async def _write_status(
        self, clique: PodClique, pcs: PodCliqueSet, unit: Unit, pods: Sequence[Pod], outcome: Outcome, turn: CliqueTurn
    ) -> Result:
        template_hash, now, before = self._sets.hashes_of(pcs)[unit.template.name], self._clock.now(), clique.status
        turned = structs.replace(clique, status=structs.replace(before, update_progress=turn.progress))
        after = clique_status(turned, pods, pcs, template_hash, outcome, now)
        after = with_clique_memory(after, turn.incarnation, now)
        news = clique_news(clique.spec, before, after)
        patience_s = PROGRESS_S if before.observed_generation is not None else FIRST_S
        wait_s = await self._statuses.write(clique, after, news=news, wait_s=patience_s)
        if wait_s is None:
            self._warn(clique, before, after)
        return Result(after_s=wait_s)

    def _warn(self, clique: PodClique, before: PodCliqueStatus, after: PodCliqueStatus) -> None:
        if lost_all_scheduled(before, after):
            self._events.warn(
                clique, EventReason.ALL_SCHEDULED_REPLICAS_LOST, "no pod of this clique has a node any more"
            )
        limited = find_condition(after.conditions, SCALING_LIMITED)
        if limited is not None and find_condition(before.conditions, SCALING_LIMITED) is None:
            self._events.warn(clique, limited.reason, limited.message)


class PodCliqueWakes:
    """Which events wake which cliques."""

    def __init__(
        self, cache: Cache, sets: Sets, latest: Latest, expect: Expectations, reconciler: PodCliqueReconciler,
        controller: Controller[Key],
    ) -> None:  # fmt: skip
        self._cache, self._sets, self._latest, self._expect = cache, sets, latest, expect
        self._reconciler, self._controller = reconciler, controller
        cache.on_event(PodClique, self.on_clique)
        cache.on_event(Pod, self.on_pod)
        cache.on_event(Node, self.on_node)
        cache.on_event(PodGang, self.on_gang)
        cache.on_event(PodCliqueSet, self.on_set)
        cache.on_event(PodCliqueScalingGroup, self.on_group)

    def on_clique(self, old: PodClique | None, new: PodClique | None) -> None:
        if new is None:
            if old is not None:
                self._reconciler.forget(old.metadata.uid)
        elif not self._latest.is_echo(new):
            self._controller.add(new.key)
        if old is not None and (new is None or (new.spec.replicas == 0 and old.spec.replicas != 0)):
            for child in self._cache.by_index(PodClique, PARENT, old.key):
                self._controller.add(child.key, after_s=SETTLE_S)

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None:
            return
        owner = pod.metadata.controller
        if owner is None or owner.kind != PodClique.RESOURCE.kind:
            return
        if new is None:
            self._expect.gone(owner.uid, pod.metadata.uid)
        self._controller.add(Key(pod.metadata.namespace, owner.name), after_s=SETTLE_S)
        if old is not None and new is not None and new.is_scheduled and not old.is_scheduled:
            self._wake_scaled(new)

    def on_node(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is not None:
            return
        for pod in self._cache.by_index(Pod, ON_NODE, old.metadata.name):
            self.on_pod(pod, pod)

    def on_gang(self, old: PodGang | None, new: PodGang | None) -> None:
        """A gang that became whole, or lists other pods, may let gated pods go."""
        if new is None or not self._sets.uses_gate(new):
            return
        if old is not None and _gates(old) == _gates(new) and old.spec == new.spec:
            return
        for group in new.spec.podgroups:
            self._controller.add(Key(new.metadata.namespace, group.name), after_s=SETTLE_S)
        for clique in self._cache.by_index(PodClique, BASE_GANG, new.key):
            self._controller.add(clique.key, after_s=SETTLE_S)

    def on_set(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        """What counts as up to date is said by the set."""
        if old is None or new is None:
            return
        concerned = concerned_replicas(old.status, new.status)
        if concerned is not None and not concerned:
            return
        for clique in self._cache.by_index(PodClique, SET, new.key):
            if concerned is None or replica_of(clique.metadata) in concerned:
                self._controller.add(clique.key, after_s=SETTLE_S)

    def on_group(self, old: PodCliqueScalingGroup | None, new: PodCliqueScalingGroup | None) -> None:
        """Which of its copies were restarted is said by the group."""
        if old is None or new is None or old.status.replica_restarts == new.status.replica_restarts:
            return
        for clique in self._cache.owned(PodClique, by=new.metadata.uid):
            self._controller.add(clique.key, after_s=SETTLE_S)

    def _wake_scaled(self, pod: Pod) -> None:
        """A pod of a base gang was placed: gated pods of the gangs that wait for it may go now."""
        base = Key(pod.metadata.namespace, pod.metadata.labels.get(key.POD_GANG, ""))
        gang = self._cache.get(PodGang, base)
        if gang is None or not self._sets.uses_gate(gang):
            return
        for clique in self._cache.by_index(PodClique, BASE_GANG, base):
            self._controller.add(clique.key, after_s=SETTLE_S)


def _earliest(*times: float | None) -> Result:
    due = [at for at in times if at is not None]
    return Result(after_s=min(due)) if due else DONE


def _gates(gang: PodGang) -> tuple[bool, ...]:
    """What of a gang's status lets its pods go."""
    kinds = (words.INITIALIZED, words.SCHEDULER_OBJECTS_READY, words.SCHEDULED)
    return tuple(is_true(gang.status.conditions, kind) for kind in kinds)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
