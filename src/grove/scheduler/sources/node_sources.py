"""The sources of the scheduler together: what they count on nodes, what pods need of it, and who has it.

The list itself is the snapshot's. What a source counts is among a node's resources under names of its own. What is
reserved for a pod is not free there any more. So a pod that has its place no longer counts by those names.

`FollowedSource` is the common part of the scheduler's own sources: volumes, attach limits, device claims, Koordinator's
devices and reservations. They follow objects of the cluster, reserve things for pods that are being bound, and write
the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import structlog

from grove.api.core import Node, Pod
from grove.api.meta import Key
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import KubeError, NotFound, NotLeader
from grove.kube.store import Store
from grove.scheduler.cluster.node_table import Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.devices.shared_claims import DeviceNodes, OpenClaims
from grove.scheduler.evict.running import Running
from grove.scheduler.evict.victims import Vacancies, vacancies_of
from grove.scheduler.model.facts import NodeTerms, PodFacts, Requests
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reading import pod_requests, read_pod
from grove.scheduler.model.seams import NO_NEEDS, Needs, NodeSource, Refusal
from grove.scheduler.policy.cluster_changes import Changes
from grove.scheduler.volumes.volume_claims import claim_names

DAEMONS = ("DaemonSet", "Node")
"""Kinds whose pods belong to the machine itself."""
RUN_ONCE = ("Never", "OnFailure")
"""Restart policies of pods that end by themselves."""

MOST_UNUSED = 16
"""Kinds of resources that a source goes on counting although no waiting pod asks for them."""

log = structlog.get_logger(__name__)


class PodNodes(Protocol):
    """Which pods have which nodes."""

    reserved: dict[str, str]
    """Node by uid of pods that have a placement and no binding yet."""

    def node_of(self, pod: Pod) -> str:
        """The node where a pod is, or that is reserved for it."""
        ...


class PodReading(Protocol):
    """The calls for changes on which waiting pods depend."""

    def read_again(self, key: Key) -> None:
        """The requirements of a waiting pod may have changed."""
        ...

    def read_all_again(self) -> None:
        """The requirements of every waiting pod may have changed."""
        ...

    def help_dependents(self) -> None:
        """Objects changed that waiting pods depend on: those pods are read again, and their units are tried."""
        ...


class FollowedCluster(Protocol):
    """The parts of the loop that a source can read and call."""

    cache: Cache
    snapshot: Snapshot
    changes: Changes
    sources: NodeSources
    pods: Store[Pod]
    nodes: Store[Node]

    @property
    def counted(self) -> PodNodes: ...

    @property
    def reader(self) -> PodReading: ...

    def meets(self, terms: NodeTerms, node: str) -> bool:
        """True if a node exists and meets the terms."""
        ...


class FollowedSource(NodeSource):
    """A source that follows objects of the cluster."""

    def __init__(self, cluster: FollowedCluster) -> None:
        self._cache, self._cluster = cluster.cache, cluster
        self._stale: set[str] = set()
        """Nodes whose amounts have to be worked out again."""

    def refresh(self) -> Collection[str]:
        if not self._stale:
            return ()
        stale, self._stale = self._stale, set()
        return stale

    def reserve(self, pods: Sequence[PodFacts]) -> Refusal | None:
        by_node: dict[str, list[PodFacts]] = {}
        for pod in pods:
            by_node.setdefault(pod.node, []).append(pod)
        refusals = (self._promise(node, here) for node, here in by_node.items())
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _promise(self, node: str, pods: Sequence[PodFacts]) -> Refusal | None:
        """Sets aside what these pods need of one node."""
        return None

    def _pod(self, facts: PodFacts) -> Pod | None:
        return self._cluster.pods.get(Key(facts.namespace, facts.name))

    def _is_asked(self, pod: PodFacts) -> bool:
        """True if the pod requests a resource of this source."""
        return any(name.startswith(self.counts) for name, _ in pod.shape.requests)


class DaemonPods(NodeSource):
    """Pods of DaemonSets, and static ones: what they use of a node stays in use when all else there has ended.

    It also counts pods that end by themselves: those that their nodes do not restart.
    """

    name = "daemon pods"

    def __init__(self, cluster: FollowedCluster) -> None:
        self._cluster = cluster
        self._used: dict[str, Counter[str]] = {}
        self._ending: dict[str, Counter[str]] = {}
        self._staying_pods: set[str] = set()
        self._ending_pods: set[str] = set()

    def follow(self) -> None:
        self._cluster.cache.on_event(Pod, self._pod_changed)

    def kept(self) -> Mapping[str, Requests]:
        return {node: tuple(sorted(used.items())) for node, used in self._used.items()}

    def ending(self) -> Mapping[str, Requests]:
        return {node: tuple(sorted(used.items())) for node, used in self._ending.items()}

    def staying_pods(self) -> Collection[str]:
        return self._staying_pods

    def ending_pods(self) -> Collection[str]:
        return self._ending_pods

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        stays, does_end = _use(new, _is_daemon), _use(new, ends)
        if _count(self._used, _use(old, _is_daemon), stays):
            self._cluster.changes.daemons_went = True
        _count(self._ending, _use(old, ends), does_end)
        for uids, use in ((self._staying_pods, stays), (self._ending_pods, does_end)):
            if old is not None:
                uids.discard(old.metadata.uid)
            if new is not None and use is not None:
                uids.add(new.metadata.uid)


def _count(
    used: dict[str, Counter[str]], before: tuple[str, Requests] | None, after: tuple[str, Requests] | None
) -> bool:
    """Counts what a pod uses of its node, and no longer what it used; whether it used anything else before."""
    if before == after:
        return False
    if after is not None:
        used.setdefault(after[0], Counter()).update(dict(after[1]))
    if before is not None:
        node, requests = before
        left = used[node] = used[node] - Counter(dict(requests))
        if not left:
            del used[node]
    return before is not None


def _use(pod: Pod | None, counts: Callable[[Pod], bool]) -> tuple[str, Requests] | None:
    """The node of a pod that counts, and what it uses there."""
    if pod is None or not pod.spec.node_name or pod.is_finished or not counts(pod):
        return None
    return pod.spec.node_name, pod_requests(pod)


def _is_daemon(pod: Pod) -> bool:
    """True for a pod that belongs to its node, such as one of a DaemonSet."""
    owner = pod.metadata.controller
    return owner is not None and owner.kind in DAEMONS


def ends(pod: Pod) -> bool:
    """True if the pod ends by itself, or is being deleted."""
    return pod.metadata.is_deleting or pod.spec.restart_policy in RUN_ONCE


class PodAnnotationWriter:
    """Writes what a pod got to one annotation, and removes it when it is not true any more.

    `what` is its name in messages.
    """

    def __init__(self, client: Client, annotation: str, what: str) -> None:
        self._client, self._annotation, self._what = client, annotation, what
        self._noted: set[str] = set()
        """Uids of waiting pods that say something, or may: the cache may lag behind what was written."""

    def may_be_on(self, uid: str, known: Pod | None) -> bool:
        """True if a pod may have the annotation, by the cache or by our own writes."""
        return uid in self._noted or (known is not None and self._annotation in known.metadata.annotations)

    def forget(self, uid: str) -> None:
        self._noted.discard(uid)

    async def write(self, pod: PodFacts, text: str | None) -> str:
        """Writes the text on the pod, or takes it off; the trouble with that, if any."""
        body = {"metadata": {"annotations": {self._annotation: text}, "uid": pod.uid}}
        if text is not None:
            self._noted.add(pod.uid)
        try:
            await self._client.patch(Pod, pod.name, body, pod.namespace)
            if text is None:
                self.forget(pod.uid)
        except NotFound:
            return ""  # the bind will find out
        except NotLeader:
            raise
        except KubeError as error:
            return f"{self._what} could not be written on it: {error}"
        return ""


class NodeSources:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.making_way: frozenset[str] = frozenset()
        """Uids of pods that leave for those a place is being taken for."""
        self._asking: dict[NodeSource, dict[Key, frozenset[str]]] = {}
        """By source: waiting pods, and the kinds of resources that it counts nodes by for them."""
        self._learned: dict[NodeSource, set[str]] = {}
        self.join()

    def join(self, *sources: NodeSource) -> None:
        """Has more things counted on nodes."""
        self._snapshot.use(self._snapshot.seams.joined(sources=sources))
        self.all = self._snapshot.seams.sources
        self._counted = tuple(node_source.counts for node_source in self.all if node_source.counts)
        self._needed, self._reserving, self._releasing, self._preparing, self._refreshed, self._sharing = map(
            self._that_say, ("needs", "reserve", "release", "prepare", "refresh", "shared")
        )
        self._replacing = self._that_say("replacement")

    def _that_say(self, method: str) -> tuple[NodeSource, ...]:
        """The sources that override a method. Others are not called, since the call is made for every pod."""
        return tuple(
            node_source
            for node_source in self.all
            if getattr(type(node_source), method) is not getattr(NodeSource, method)
        )

    def read(self, pod: Pod) -> PodFacts:
        """The facts of a pod, with what it needs of the sources; they count nodes by that from now on."""
        needs = []
        for source in self._needed:
            if (needed := source.needs(pod)) is not NO_NEEDS:
                needs.append(needed)
                if needed.kinds:
                    if not pod.spec.node_name:
                        self._asking.setdefault(source, {})[pod.metadata.key] = frozenset(needed.kinds)
                    self._learned.setdefault(source, set()).update(needed.kinds)
                    source.learn(needed.kinds)
        if not needs:
            return read_pod(pod)
        counted: Requests = ()
        if not pod.spec.node_name:  # what a bound pod uses is counted on its node
            counted = tuple(item for need in needs for item in need.requests)
        facts = read_pod(
            pod,
            volumes=tuple(terms for need in needs for terms in need.nodes),
            blocked=next((need.blocked for need in needs if need.blocked), ""),
            counted=counted,
        )
        if not pod.spec.node_name and (ways := [need for need in needs if need.instead]):
            facts = _instead(facts, counted, ways[0])
        return facts

    def with_counted(self, facts: PodFacts, pod: Pod) -> PodFacts:
        """A bound pod, with what a pod that replaces it will ask of the sources."""
        more = tuple(item for source in self._replacing for item in source.replacement(pod))
        return facts.asking(requests=tuple(sorted((*facts.shape.requests, *more)))) if more else facts

    def ask_for(self, pod: Key, requests: Requests) -> None:
        """Nodes stay counted by these resources until the pod is forgotten."""
        kinds = frozenset(name for name, _ in requests)
        for source in self.all if any(name.startswith(self._counted) for name in kinds) else ():
            if source.counts and (own := frozenset(name for name in kinds if name.startswith(source.counts))):
                self._asking.setdefault(source, {})[pod] = own

    def forget_pod(self, pod: Key) -> None:
        """The pod does not wait any more."""
        for asking in self._asking.values():
            asking.pop(pod, None)

    def forget_kinds(self) -> None:
        """Has sources count nodes by what waiting pods ask for and no more, once there are many other kinds.

        A few are kept: the next pods mostly ask for what the last ones did, and a new kind is counted on all nodes.
        """
        for source, learned in self._learned.items():
            asking = self._asking.get(source, {})
            if len(learned) > len(asking) + MOST_UNUSED or len(learned) > 2 * MOST_UNUSED:
                used = frozenset[str]().union(*asking.values())
                if len(learned) > len(used) + MOST_UNUSED:
                    self._learned[source] = set(used)
                    self._snapshot.forget(source.keep(used))

    def amounts(self, node: str) -> dict[str, int]:
        """The free amounts on a node now, by the sources' names."""
        return {name: free for source in self.all for name, free in source.amounts(node).items()}

    @contextmanager
    def without(self, going: Iterable[PodFacts]) -> Iterator[None]:
        """Inside, what these pods use counts as free: they leave before anything is bound."""
        self.making_way = frozenset(pod.uid for pod in going)
        try:
            yield
        finally:
            self.making_way = frozenset()

    def take(self, pods: Sequence[PodFacts]) -> Refusal | None:
        """Sets aside what pods need on the nodes chosen for them, or nothing: then says which node cannot give it."""
        for source in self._reserving:
            refused = source.reserve(pods)
            if refused is not None:
                for pod in pods:
                    self.give_back(pod.uid)
                return refused
        return None

    def shared(self, pod: Pod) -> tuple[Collection[str], OpenClaims]:
        """The claims that a waiting pod shares with others, from the source that has such claims."""
        return self._sharing[0].shared(pod) if self._sharing else ((), {})

    def sites(self, snapshot: Snapshot, near: Mask, leaving: Collection[str] = ()) -> DeviceNodes:
        """Nodes to choose from for what pods share; asked only if pods do."""
        device_nodes = self._sharing[0].sites(snapshot, near, leaving)
        assert device_nodes is not None
        return device_nodes

    def give_back(self, uid: str) -> None:
        """Forgets what was set aside for a pod."""
        for source in self._releasing:
            source.release(uid)

    def prepare(self, pod: PodFacts, deadline_s: float) -> Iterator[Awaitable[str]]:
        """The steps before a pod's binding, one after the other. Each ends with an error text, or empty."""
        return (work for source in self._preparing if (work := source.prepare(pod, deadline_s)) is not None)

    def refresh(self) -> list[str]:
        """Nodes of which sources count something else than they did."""
        nodes: list[str] = []
        for source in self._refreshed:
            try:
                nodes += source.refresh()
            except Exception:  # what others wrote and one of them cannot read must not stop all
                log.exception("cannot be counted on nodes", source=source.name)
        return nodes

    def vacancies(self, gang: Gang, running: Sequence[Running], gone: Sequence[PodFacts] = ()) -> Vacancies:
        """The free amounts on the nodes of these units and pods without them, for the resources of a gang."""

        def nodes() -> set[str]:
            leaving = (*self._snapshot.terminating(), *gone)
            return {pod.node for pods in (leaving, *(unit.pods for unit in running)) for pod in pods}

        return vacancies_of(self._snapshot, gang, nodes)

    def without_counted(self, pod: PodFacts) -> PodFacts:
        """The pod without what sources count."""
        rest = self.not_counted(pod.shape.requests)
        return pod if len(rest) == len(pod.shape.requests) else pod.asking(requests=rest)

    def not_counted(self, requests: Requests) -> Requests:
        """Requests without those that sources count."""
        return tuple(item for item in requests if not item[0].startswith(self._counted))


def depends_on_objects(pod: Pod, facts: PodFacts) -> bool:
    """True if the requirements of a pod depend on other objects: volumes or devices."""
    own = facts.shape.volumes or facts.shape.blocked or pod.spec.resource_claims
    return bool(own or (pod.spec.volumes and claim_names(pod)))


def _instead(pod: PodFacts, counted: Requests, needs: Needs) -> PodFacts:
    """The pod with the request sets of a source before its own, which is left out if it does not do."""
    own = tuple(item for item in pod.shape.requests if item not in counted)
    ways = [tuple(sorted((*requests, *counted))) for requests in needs.instead]
    if not needs.only:
        ways.append(pod.shape.requests)
    return pod.asking(requests=ways[0], alternatives=tuple(ways[1:]), charged=own)
