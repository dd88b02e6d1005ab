"""The operator's decisions, run to their fixed point without any cluster: objects are a dict, applying is assignment.

    world = PureGraph(manifests.worked_example())
    world.settle()                       # decide and apply until nothing is left to do
    world.scale("PodCliqueScalingGroup", "demo-0-grp", 5)
    world.settle()

Good for golden graphs and for laws about sequences of changes; timing, caches and conflicts are for the cluster tests.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar

import msgspec

from grove.api import labels as key
from grove.api.core import (
    HorizontalPodAutoscaler,
    Pod,
    ResourceClaim,
    Role,
    RoleBinding,
    Secret,
    Service,
    ServiceAccount,
)
from grove.api.hashes import set_generation_hash
from grove.api.meta import Json, Object
from grove.api.patch import apply_merge_patch
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.backends.base import NO_OBJECTS, WRITTEN, Backend, GangObjectsState
from grove.backends.kube import KubeBackend
from grove.operator.podclique.pods import PodPlan, plan_pods
from grove.operator.podclique.rollout import CliqueStep
from grove.operator.podclique.status import ObservedClique, clique_status
from grove.operator.podcliqueset.status import ObservedSet, set_status
from grove.operator.podgang.gangs import ObservedGang, WantedGang, is_scheduled, wanted_gang
from grove.operator.podgang.status import gang_status
from grove.operator.scalinggroup.status import ObservedGroup, group_status
from grove.operator.shared import children
from grove.operator.shared.claims import clique_claims, group_claims, set_claims
from grove.operator.shared.diff import plan_children, status_patch
from grove.operator.shared.layout import (
    GangLayout,
    GroupReplicas,
    group_config_of,
    live_replicas,
    replica_layouts,
    replica_of,
    unit_of,
)
from grove.operator.shared.outcome import COMPLETE, with_outcome

T = TypeVar("T", bound=Object)
START = datetime(2026, 1, 1, tzinfo=UTC)


def gang_layouts(pcs: PodCliqueSet, group_replicas: GroupReplicas) -> list[GangLayout]:
    """Every PodGang a set may have: all base gangs, then the scaled ones replica by replica."""
    found = [one for replica in range(pcs.spec.replicas) for one in replica_layouts(pcs, replica, group_replicas)]
    return sorted(found, key=lambda one: one.scaled is not None)


def wanted_gangs(
    observed: ObservedGang, group_replicas: GroupReplicas, existing: Mapping[str, PodGang]
) -> list[WantedGang]:
    """All PodGangs of a set; `observed` is what they have in common."""
    layouts = gang_layouts(observed.pcs, group_replicas)
    found = (wanted_gang(replace(observed, layout=one, gang=existing.get(one.name))) for one in layouts)
    return [gang for gang in found if gang is not None]


class PureGraph:
    """One set and everything made of it. `writes` counts what was applied, `plans` keeps the last plan a clique."""

    def __init__(
        self,
        manifest: Json,
        backend: Backend | None = None,
        binding: ClusterTopologyBinding | None = None,
        *,
        topology_enabled: bool = True,
        seed: int = 1,
    ) -> None:
        self.backend = backend or KubeBackend()
        self.binding, self.topology_enabled = binding, topology_enabled
        self.now, self.rng = START, Random(seed)
        self.objects: dict[tuple[str, str], Json] = {}
        self._views: dict[tuple[str, str], Any] = {}
        self.plans: dict[str, PodPlan] = {}
        self.writes = self._uids = 0
        body = copy.deepcopy({key: value for key, value in manifest.items() if key != "status"})
        self.set_name: str = body["metadata"]["name"]
        self._put({"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", **body})
        self.writes = 0

    # Reading

    def all(self, kind: type[T]) -> list[T]:
        return [self.get(kind, name) for held, name in sorted(self.objects) if held == kind.RESOURCE.kind]

    def get(self, kind: type[T], name: str) -> T:
        where = kind.RESOURCE.kind, name
        if where not in self._views:
            self._views[where] = msgspec.convert(self.objects[where], kind)
        view: T = self._views[where]
        return view

    @property
    def pcs(self) -> PodCliqueSet:
        return self.get(PodCliqueSet, self.set_name)

    def children(self) -> Iterator[Json]:
        yield from (obj for (kind, _), obj in self.objects.items() if kind != "PodCliqueSet")

    def pods_of(self, clique: str) -> list[Pod]:
        return [pod for pod in self.all(Pod) if pod.metadata.labels.get(key.POD_CLIQUE) == clique]

    # Changing what is asked for, or what happened

    def scale(self, kind: str, name: str, replicas: int) -> None:
        obj = self._changing(kind, name)
        obj["spec"]["replicas"] = replicas
        obj["metadata"]["generation"] += 1

    def fail(self, pod: str) -> None:
        self._changing("Pod", pod)["status"] = {"phase": "Failed", "reason": "Evicted"}

    def run_pods(self) -> None:
        """Every pod without a gate gets a node and becomes ready."""
        for (kind, name), pod in self.objects.items():
            if kind == "Pod" and not pod["spec"].get("schedulingGates") and not pod["status"]:
                self._changing(kind, name)
                pod["spec"]["nodeName"] = f"node-of-{name}"
                ready = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
                pod["status"] = {"phase": "Running", "conditions": ready}

    # Deciding and applying

    def settle(self, limit: int = 30) -> int:
        """Rounds until one writes nothing and no timer is left; pods run and time passes in between."""
        for rounds in range(limit):
            before = self.writes
            self.run_pods()
            self.step()
            self.now += timedelta(seconds=20)
            if self.writes == before and all(plan.next_look_s is None for plan in self.plans.values()):
                return rounds
        raise AssertionError(f"not settled after {limit} rounds")

    def step(self) -> None:
        """One pass over every object, top down."""
        pcs = self.pcs
        self._sync(ServiceAccount, pcs, [one for one in children.wanted_access(pcs) if one["kind"] == "ServiceAccount"])
        self._sync(Role, pcs, [one for one in children.wanted_access(pcs) if one["kind"] == "Role"])
        self._sync(RoleBinding, pcs, [one for one in children.wanted_access(pcs) if one["kind"] == "RoleBinding"])
        self._sync(Secret, pcs, [one for one in children.wanted_access(pcs) if one["kind"] == "Secret"])
        self._sync(Service, pcs, children.wanted_services(pcs))
        self._sync(HorizontalPodAutoscaler, pcs, children.wanted_autoscalers(pcs))
        self._sync(ResourceClaim, pcs, set_claims(pcs).wanted(self._no_template).objects)
        self._sync(PodClique, pcs, children.wanted_cliques(pcs))
        self._sync(PodCliqueScalingGroup, pcs, children.wanted_groups(pcs))
        hashes = children.template_hashes(pcs)
        for group in self.all(PodCliqueScalingGroup):
            replica = replica_of(group.metadata)
            assert replica is not None
            config = group_config_of(pcs, group.metadata.name, replica)
            assert config is not None
            self._sync(ResourceClaim, group, group_claims(pcs, group, config).wanted(self._no_template).objects)
            self._sync(PodClique, group, children.wanted_members(pcs, group))
            members = [one for one in self.all(PodClique) if _controller(one) == group.metadata.uid]
            seen = ObservedGroup(group, pcs, config, replica, members, hashes)
            after = with_outcome(group_status(seen, self.now), group.status, COMPLETE, self.now, members)
            self._write_status(group, after)
        self.plans.clear()
        for clique in self.all(PodClique):
            self._sync_clique(pcs, clique, hashes)
        gangs = {gang.metadata.name: gang for gang in self.all(PodGang)}
        cliques = {clique.metadata.name: clique for clique in self.all(PodClique)}
        common = ObservedGang(pcs, self.backend, None, None, cliques, self.pods_of, self.binding, self.topology_enabled)
        wanted = wanted_gangs(common, live_replicas(self.all(PodCliqueScalingGroup)), gangs)
        self._sync(PodGang, pcs, [gang.object for gang in wanted])
        for one in wanted:
            gang = self.get(PodGang, one.name)
            pods = [pod for group in gang.spec.podgroups for pod in self.pods_of(group.name)]
            objects = self.backend.gang_objects(gang, pcs, pods)
            told = GangObjectsState(True, WRITTEN, "") if objects is not NO_OBJECTS else None
            self._write_status(gang, gang_status(gang, one, self.backend, self.pods_of, self.now, told))
        seen_set = ObservedSet(
            pcs,
            self.all(PodClique),
            self.all(PodCliqueScalingGroup),
            self.all(PodGang),
            set_generation_hash(pcs),
            hashes,
            self.binding,
            self.topology_enabled,
        )
        parts = (*seen_set.cliques, *seen_set.groups)
        self._write_status(pcs, with_outcome(set_status(seen_set, self.now), pcs.status, COMPLETE, self.now, parts))

    def _sync_clique(self, pcs: PodCliqueSet, clique: PodClique, hashes: dict[str, str]) -> None:
        unit = unit_of(pcs, clique)
        assert unit is not None
        pods = self.pods_of(clique.metadata.name)
        gang = self.objects.get(("PodGang", unit.gang))
        base = self.objects.get(("PodGang", unit.base_gang))
        base_scheduled = not unit.is_scaled or (
            base is not None and is_scheduled(msgspec.convert(base, PodGang), self.pods_of)
        )
        observed = ObservedClique(
            clique,
            pcs,
            unit,
            pods,
            self.backend,
            hashes[unit.template.name],
            gang=msgspec.convert(gang, PodGang) if gang else None,
            base_scheduled=base_scheduled,
            startup_image="grove-initc:test",
        )
        plan = plan_pods(observed, self.backend, CliqueStep(clique.status.update_progress), self.now, self.rng)
        self.plans[clique.metadata.name] = plan
        claims = clique_claims(pcs, clique, unit, plan.indexes).wanted(self._no_template)
        self._sync(ResourceClaim, clique, claims.objects)
        for removal in plan.delete:
            self._delete("Pod", removal.pod.metadata.name)
        for pod in plan.create:
            self._put(pod)
        for released in plan.ungate:
            self._changing("Pod", released.metadata.name)["spec"]["schedulingGates"] = []
            self.writes += 1
        after = clique_status(replace(observed, pods=self.pods_of(clique.metadata.name)), COMPLETE, self.now)
        self._write_status(clique, after)

    def _sync(self, kind: type[Object], owner: Object, wanted: list[Json]) -> None:
        plan = plan_children(wanted, self.all(kind), owner)
        observed = {one.metadata.name for one in self.all(kind) if _controller(one) == owner.metadata.uid}
        for name in plan.delete:
            assert name in observed
            self._delete(kind.RESOURCE.kind, name)
        for name, patch in plan.patch:
            held = self._changing(kind.RESOURCE.kind, name)
            self.objects[kind.RESOURCE.kind, name] = apply_merge_patch(held, patch)
            self.objects[kind.RESOURCE.kind, name]["metadata"]["generation"] += 1
            self.writes += 1
        for child in plan.create:
            self._put(child)

    def _write_status(self, obj: Any, status: Any) -> None:
        if patch := status_patch(obj.status, status):
            name = obj.RESOURCE.kind, obj.metadata.name
            self.objects[name] = apply_merge_patch(self._changing(*name), patch)
            self.writes += 1

    def _changing(self, kind: str, name: str) -> Json:
        """The object, about to change: what was read from it is forgotten."""
        self._views.pop((kind, name), None)
        return self.objects[kind, name]

    def _put(self, obj: Json) -> None:
        name = obj["kind"], obj["metadata"]["name"]
        assert name not in self.objects, name
        self._uids += 1
        born = {"uid": f"uid-{self._uids}", "generation": 1, "creationTimestamp": self.now.isoformat()}
        self.objects[name] = {
            **copy.deepcopy(obj),
            "metadata": {**copy.deepcopy(obj["metadata"]), **born},
            "status": {},
        }
        self.writes += 1

    def _delete(self, kind: str, name: str) -> None:
        gone = self._changing(kind, name)
        del self.objects[kind, name]
        self.writes += 1
        uid = gone["metadata"]["uid"]
        for child in [one for one in self.objects.items() if _owner_uid(one[1]) == uid]:
            self._delete(*child[0])

    @staticmethod
    def _no_template(namespace: str, name: str) -> Json | None:
        return None


def _owner_uid(obj: Json) -> str:
    owners = obj["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


def _controller(obj: Object) -> str:
    ref = obj.metadata.controller
    return ref.uid if ref is not None else ""
