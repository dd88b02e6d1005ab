"""Plays a scenario in a world: one method for each verb. The chronicle describes the effects.

A step can be impossible: a node does not exist, or admission refuses a set. The story reports it and ends with a
failure. It also ends with a failure, and the reason, if a system does not come up in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from grove.api import conditions as words
from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.duration import parse as parse_duration
from grove.api.hashes import is_taken_up
from grove.api.koordinator import QUOTA_PARENT, ElasticQuota
from grove.api.meta import Json, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.words import many
from grove.demo.chronicle import Chronicle, Note
from grove.demo.scenario import Scenario, Step
from grove.demo.traffic import Traffic
from grove.diagnosis.gang_answer import Verdict
from grove.diagnosis.gangs import gang_verdict
from grove.diagnosis.tree import tree_of
from grove.kube.errors import ApiError
from grove.plan.strict import faults_of
from grove.plan.world import PATIENCE_S, World, shaped
from grove.scheduler.explain.explanation import queue_rows
from grove.scheduler.loop.diagnosis import LiveDiagnosis
from grove.sim.load import Engine
from grove.sim.patch import copy_json, json_patch

GPU = "nvidia.com/gpu"


class StoryFailed(Exception):
    """The story cannot go on; the text says what did not happen. `faults` are those of a manifest that is refused."""

    def __init__(self, message: str, faults: Sequence[str] = ()) -> None:
        super().__init__(": ".join([message, "; ".join(faults)]) if faults else message)
        self.message, self.faults = message, tuple(faults)

    @classmethod
    def refused(cls, what: str, error: ApiError) -> StoryFailed:
        faults = faults_of(error)
        return cls(f"{what} is refused", faults) if faults else cls(f"{what} is refused: {error}")


class Audience(Protocol):
    """Who listens: a terminal, a list for JSON."""

    def chapter(self, title: str, text: str) -> None: ...

    def tell(self, note: Note) -> None: ...

    def explain(self, verdict: Verdict) -> None: ...

    def picture(self, world: World) -> None:
        """A good moment to look at the whole."""
        ...


class Story:
    def __init__(self, world: World, audience: Audience) -> None:
        self.world, self._audience = world, audience
        self.chronicle = Chronicle(world, audience.tell)
        self._manifests: dict[str, Json] = {}
        self._lost_node = ""
        self._traffic: Traffic | None = None
        self._flowing: asyncio.Task[None] | None = None
        self._explained: dict[str, Verdict] = {}

    async def play(self, scenario: Scenario) -> None:
        try:
            for step in scenario.steps:
                await self.do(step)
        finally:
            self._end_traffic()

    async def do(self, step: Step) -> None:
        await getattr(self, f"_{step.verb}")(**step.args)

    def _end_traffic(self) -> None:
        """No requests after the last step: otherwise autoscalers would go on, and a story never settle."""
        if self._flowing is not None:
            self._flowing.cancel()
            self._flowing = self._traffic = None

    def _say(self, kind: str, about: str, text: str) -> None:
        self.chronicle.note(kind, about, text)

    # Verbs

    async def _chapter(self, title: str, text: str = "") -> None:
        self._audience.chapter(title, text)

    async def _apply(self, object: Json) -> None:
        name = object["metadata"]["name"]
        self._manifests[name] = object
        try:
            await self.world.apply(object)
        except ApiError as error:
            raise StoryFailed.refused(f"PodCliqueSet {name}", error) from error
        self._say("applied", name, f"PodCliqueSet {name} is applied")

    async def _wait(self, set: str, patience: str = "") -> None:
        patience_s = parse_duration(patience).total_seconds() if patience else PATIENCE_S
        if not await self.world.until(lambda: self.world.is_settled(set), patience_s):
            pcs = self.world.find(PodCliqueSet, set)
            why = tree_of(self.world.seen(), pcs).why if pcs else "there is no such set"
            raise StoryFailed(f"{set} is not all there after {patience_s:g} s: {why}")
        await asyncio.sleep(1.0)  # what is still being written about it belongs to this chapter
        self._audience.picture(self.world)

    async def _scale(self, set: str, replicas: int, group: str = "", clique: str = "", index: int = 0) -> None:
        kind, name = scaled_object(set, group, clique, index)
        old = self.world.find(kind, name)
        if old is None:
            raise StoryFailed(f"there is no {kind.__name__} {name} to scale")
        self._say("scaled", name, f"{name} is scaled from {old.spec.replicas} to {replicas}")
        patch = {"spec": {"replicas": replicas}}
        await self.world.client.patch(kind, name, patch, self.world.namespace, subresource="scale")

    async def _load(self, set: str, requestsPerSecond: float, serviceTime: str = "", batch: int | None = None) -> None:
        """Requests arrive from now on; autoscalers of the set see what becomes of them and act."""
        engine = None
        if serviceTime or batch is not None:
            default = Engine()
            seconds = parse_duration(serviceTime).total_seconds() if serviceTime else default.service_s
            engine = Engine(seconds, batch if batch is not None else default.batch)
        if self._traffic is None:
            self._traffic = Traffic(self.world, self._say)
            self._flowing = asyncio.get_running_loop().create_task(self._traffic.run(), name="traffic")
        try:
            self._traffic.set_load(set, float(requestsPerSecond), engine)
        except KeyError:
            raise StoryFailed(f"there is no PodCliqueSet {set} to put a load on") from None
        self._say("load", set, f"{set} gets {requestsPerSecond:g} requests a second")

    async def _explain(self, set: str) -> None:
        """Waits for the scheduler's verdict about a set's gangs and asks for the reasons of those that do not fit."""
        await self.world.until(lambda: bool(self._refused(set)) or self.world.is_settled(set))
        view = self.world.scheduler.view
        for gang in self._refused(set):
            state = view.units.gangs.get(str(gang.metadata.key))
            diagnosis = LiveDiagnosis(view).diagnose(state) if state is not None else None
            if diagnosis is None or diagnosis.explanation is None:
                continue
            self._explained[set] = gang_verdict(self.world.seen(), gang, diagnosis)
            self._audience.explain(self._explained[set])
        if not self._refused(set):
            self._say("fits", set, f"{set} fits after all")

    def _refused(self, set: str) -> list[PodGang]:
        mine = [gang for gang in self.world.all(PodGang) if gang.metadata.labels.get(labels.PART_OF) == set]
        with_conditions = ((gang, find_condition(gang.status.conditions, words.SCHEDULED)) for gang in mine)
        return [
            gang for gang, condition in with_conditions if condition is not None and condition.status == words.FALSE
        ]

    async def _help(self, set: str) -> None:
        """Does the first of the verified changes that a user could do to the manifest."""
        verdict = self._explained.get(set)
        if verdict is None:
            return
        for advice in verdict.advice:
            if advice.patch and not advice.in_place:
                self._say("helped", set, f"so be it: {advice.text}")
                changed = json_patch(copy_json(self._manifests[set]), advice.patch)
                await self._replace(set, changed)
                return
        raise StoryFailed(f"no verified change makes {set} fit")

    async def _replace(self, set: str, manifest: Json) -> None:
        await self.world.client.delete(PodCliqueSet, set, self.world.namespace)
        await self.world.until(lambda: self.world.find(PodCliqueSet, set) is None)
        await self._apply(manifest)

    async def _quota(self, name: str, min: int, max: int, parent: str = "") -> None:
        """A quota over GPUs, in the words of Koordinator."""
        above = {QUOTA_PARENT: parent} if parent else {}
        body = {
            "metadata": {"name": name, "namespace": self.world.namespace, "labels": above},
            "spec": {"min": {GPU: min}, "max": {GPU: max}},
        }
        await self.world.client.create(ElasticQuota, body)
        self._say("queue", name, f"quota {name}: {many(min, 'GPU')} guaranteed, {max} at most")

    async def _queues(self, of: str = "") -> None:
        """Prints what every queue has, and what it should have."""
        scheduler = self.world.scheduler
        for row in queue_rows(scheduler.quotas.policy, scheduler.view.snapshot):
            used, share, own = (part.get(GPU, 0) for part in (row.used, row.fair_share, row.guaranteed))
            borrowed = f", {used - own} of them borrowed" if used > own and row.depth else ""
            if not of or of == row.name:
                self._say(
                    "queue", row.name, f"queue {row.name} uses {many(used, 'GPU')}{borrowed}; its fair share is {share}"
                )

    async def _failNode(self, node: str = "", runs: str = "") -> None:
        self._lost_node = self._node_of(node, runs)
        await self.world.cluster.nodes.stop_node(self._lost_node)
        await asyncio.sleep(1.0)

    async def _restoreNode(self, node: str = "") -> None:
        await self.world.cluster.nodes.start_node(node or self._lost_node)

    async def _removeNode(self, node: str = "") -> None:
        await self.world.cluster.nodes.remove_node(node or self._lost_node)
        await asyncio.sleep(1.0)

    async def _drain(self, node: str = "", runs: str = "") -> None:
        await self.world.cluster.nodes.drain(self._node_of(node, runs))

    async def _cordon(self, node: str) -> None:
        await self.world.cluster.nodes.cordon(self._node_of(node, ""))

    async def _uncordon(self, node: str) -> None:
        await self.world.cluster.nodes.cordon(self._node_of(node, ""), unschedulable=False)

    async def _addNodes(self, count: int, gpus: int = 8) -> None:
        have = {node.metadata.name for node in self.world.all(Node)}
        more = [node for node in shaped(count + len(have), gpus) if node["metadata"]["name"] not in have][:count]
        await self.world.cluster.nodes.add(more)
        self._say("node", "", f"joining the cluster: {many(len(more), 'node')} with {many(gpus, 'GPU')} each")

    async def _failPod(self, of: str) -> None:
        pods = [pod for pod in self._pods(of) if pod.is_ready]
        if not pods:
            raise StoryFailed(f"no ready pod of {of} to fail")
        pod = self.world.rng.choice(pods)
        self._say("failed", of, f"pod {pod.metadata.name} ends with an error")
        await self.world.cluster.nodes.fail_pod(pod.metadata.namespace, pod.metadata.name)
        await asyncio.sleep(1.0)

    async def _update(self, set: str, image: str, cliques: list[str] | None = None) -> None:
        raw = await self._raw(set)
        template = raw["spec"]["template"]
        for clique in template["cliques"]:
            if cliques is None or clique["name"] in cliques:
                for container in clique["spec"]["podSpec"]["containers"]:
                    container["image"] = image
        what = ", ".join(cliques) if cliques else "every clique"
        self._say("changed", set, f"{set} shall run {image} in {what}")
        await self._patch(set, {"spec": {"template": {"cliques": template["cliques"]}}})

    async def _patch(self, set: str, change: Json) -> None:
        before = self.world.find(PodCliqueSet, set)
        try:
            await self.world.client.patch(PodCliqueSet, set, change, self.world.namespace)
        except ApiError as error:
            raise StoryFailed.refused(f"the change of {set}", error) from error
        if before is not None:
            old = before.metadata.generation
            await self.world.until(lambda: self._noticed(set, old))

    def _noticed(self, set: str, old: int) -> bool:
        """True if the operator has seen the new generation. Before that the set looks complete."""
        pcs = self.world.find(PodCliqueSet, set)
        return pcs is None or pcs.metadata.generation == old or is_taken_up(pcs)

    async def _delete(self, set: str) -> None:
        self._say("deleting", set, f"PodCliqueSet {set} is deleted")
        await self.world.client.delete(PodCliqueSet, set, self.world.namespace)
        await self.world.until(lambda: not self._has_traces(set))

    def _has_traces(self, set: str) -> bool:
        pods = (pod.metadata.labels.get(labels.PART_OF) for pod in self.world.all(Pod))
        return self.world.find(PodCliqueSet, set) is not None or set in pods

    async def _after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # Finding

    def _node_of(self, node: str, runs: str) -> str:
        if runs:
            nodes = sorted({pod.spec.node_name for pod in self._pods(runs) if pod.is_bound})
            if not nodes:
                raise StoryFailed(f"no pod of {runs} runs on a node")
            return self.world.rng.choice(nodes)
        if self.world.find(Node, node) is None:
            raise StoryFailed(f"there is no node {node!r}")
        return node

    def _pods(self, of: str) -> list[Pod]:
        """Pods of a clique or of a gang."""
        keys = (labels.POD_CLIQUE, labels.POD_GANG)
        pods = [pod for pod in self.world.all(Pod) if of in (pod.metadata.labels.get(key) for key in keys)]
        return [pod for pod in pods if not pod.metadata.is_deleting]

    async def _raw(self, set: str) -> Json:
        try:
            raw: Json = await self.world.client.get(PodCliqueSet.RESOURCE, set, self.world.namespace)
        except ApiError as error:
            raise StoryFailed(f"there is no PodCliqueSet {set}") from error
        return raw


def scaled_object(
    set: str, group: str = "", clique: str = "", index: int = 0
) -> tuple[type[PodCliqueSet] | type[PodCliqueScalingGroup] | type[PodClique], str]:
    """The kind and name of what is scaled when people say `chat/prefill`."""
    if group:
        return PodCliqueScalingGroup, f"{set}-{index}-{group}"
    if clique:
        return PodClique, f"{set}-{index}-{clique}"
    return PodCliqueSet, set
