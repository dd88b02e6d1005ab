"""Koordinator's Device objects as the live scheduler meets them: concrete minors for every pod, written before its bind

What is taken is what pods on the node say (`device-allocated`) and what is promised to pods on their way; a restart
reads it there again. Whole cards are counted as nodes always count them; shares, places and partitions are counted by
the kind of request. A node without a Device object is counted as before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress

import structlog

from grove.api.core import Node, Pod
from grove.api.koordinator import Device
from grove.api.meta import Key
from grove.api.quantity import InvalidQuantity, milli, whole
from grove.kube.client import Client
from grove.kube.events import Recorder
from grove.scheduler.devices.gpu_cards import (
    FREE_CORE,
    FULL,
    PREFIX,
    Allotment,
    CardCounts,
    CardRequest,
    CardVacancy,
    NodeDevices,
    UsedCards,
)
from grove.scheduler.devices.koordinator_objects import (
    ALLOCATED,
    CORE,
    GPU_NAMES,
    MEMORY,
    NAMES,
    RATIO,
    RDMA,
    SHARE,
    SHARED,
    InvalidCardRequest,
    allotted,
    read_devices,
    want_of,
    written,
)
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.reading import pod_requests
from grove.scheduler.model.seams import NO_NEEDS, Needs, Refusal, Vacancy
from grove.scheduler.sources.node_sources import FollowedCluster, FollowedSource, PodAnnotationWriter

VALID = f"{PREFIX}valid-Device-object"
"""A node whose Device object is wrong lacks this resource, so the reasons of waiting gangs name it."""
WITHOUT = 2**40
"""What a node without a Device object counts as having: its plain resources decide."""
AT = "devices at"

log = structlog.get_logger(__name__)


class KoordinatorDevices(FollowedSource):
    name = "minors"
    counts = PREFIX

    def __init__(self, cluster: FollowedCluster, client: Client, events: Recorder) -> None:
        super().__init__(cluster)
        self._events = events
        self._nodes: dict[str, NodeDevices] = {}
        self._kinds: dict[str, object] = {}
        """What the devices of a node are, all of them free: equal for nodes that are alike."""
        self._card_requests: dict[str, CardRequest] = {}
        self._counts = CardCounts()
        self._promised: dict[str, tuple[str, Allotment]] = {}
        self._notes = PodAnnotationWriter(client, ALLOCATED, "its devices")
        self._faulty = False
        """Whether any Device object is wrong."""
        self._mixed = False
        """Whether a pod ever asked for a part of a card, or for certain cards. From then on the count of cards does
        not show whether a whole one is free.
        """

    def follow(self) -> None:
        self._cache.add_index(Pod, AT, lambda pod: [pod.spec.node_name] if _counts(pod) and pod.spec.node_name else [])
        self._cache.on_event(Device, self._changed)
        self._cache.on_event(Pod, self._pod_changed)

    # What there is

    def amounts(self, node: str) -> dict[str, int]:
        if not self._nodes:
            return {}
        here = self._nodes.get(node)
        if here is None:
            return {VALID: WITHOUT, FREE_CORE: WITHOUT, **dict.fromkeys(self._card_requests, WITHOUT)}
        if here.fault:
            return {FREE_CORE: WITHOUT, **dict.fromkeys(self._card_requests, WITHOUT), VALID: 0}
        free = self._free(node)
        capacity = self._counts.pod_slots(self._kinds[node], free, self._card_requests)
        amounts = {VALID: WITHOUT, FREE_CORE: free.core, **capacity}
        # What the device plugin may not publish: the sums, for plain counting not to be in the way.
        cards = len(here.cards) * FULL
        memory = sum(card.size for card in here.cards.values())
        sums = {CORE: cards, RATIO: cards, SHARE: cards, SHARED: cards, MEMORY: memory, RDMA: len(here.rdma) * FULL}
        return amounts | sums | self._whole_cards(node, here)

    def _whole_cards(self, node: str, here: NodeDevices) -> dict[str, int]:
        """Cards that the node says it has, no more than are healthy."""
        known: Node | None = self._cluster.nodes.get(Key("", node))
        allocatable = known.status.allocatable if known is not None else {}
        cards: dict[str, int] = {}
        for name in GPU_NAMES:
            with suppress(InvalidQuantity):
                if name in allocatable:
                    cards[name] = min(whole(allocatable[name]), len(here.cards))
        return cards

    def needs(self, pod: Pod) -> Needs:
        if pod.spec.node_name or not self._nodes or not _counts(pod):
            return NO_NEEDS
        try:
            want = want_of(pod_requests(pod), pod.metadata.annotations)
        except InvalidCardRequest as error:
            return Needs(blocked=str(error))
        valid = ((VALID, 1),) if self._faulty else ()
        if want is None or (want.is_plain and not self._mixed):
            return Needs(valid) if valid else NO_NEEDS
        name = f"{PREFIX}{want.words}"
        core = ((FREE_CORE, want.cards * want.core),) if want.cards and want.core else ()
        return Needs(((name, 1), *core, *valid), kinds={name: want})

    def learn(self, kinds: Mapping[str, CardRequest]) -> None:
        for name, want in kinds.items():
            self._mix(want)
            if name not in self._card_requests:
                self._card_requests[name] = want
                self._stale.update(node.metadata.name for node in self._cluster.nodes.list())

    def keep(self, kinds: Collection[str]) -> Collection[str]:
        gone = self._card_requests.keys() - set(kinds)
        if gone:
            self._card_requests = {name: want for name, want in self._card_requests.items() if name not in gone}
            self._counts.forget()
            self._stale.update(node.metadata.name for node in self._cluster.nodes.list())
        return gone

    def _mix(self, want: CardRequest) -> None:
        if not want.is_plain and not self._mixed:
            self._mixed = True
            self._cluster.reader.read_all_again()

    # The life of a placement

    def _promise(self, node: str, pods: Sequence[PodFacts]) -> Refusal | None:
        card_requests: dict[str, CardRequest] = {}
        for facts in pods if node in self._nodes else ():
            pod = self._pod(facts) if facts.uid not in self._promised else None
            if pod is not None and (want := _want(pod)) is not None:
                card_requests[facts.uid] = want
        if not card_requests:
            return None
        free = self._free(node)
        allotments = free.allot_all(list(card_requests.values()))
        if allotments is None:
            return Refusal(
                node, free.fault or "its free devices are not those that are asked for", tuple(card_requests)
            )
        self._promised.update(
            (uid, (node, allotment)) for uid, allotment in zip(card_requests, allotments, strict=True)
        )
        self._stale.add(node)
        return None

    def release(self, uid: str) -> None:
        promise = self._promised.pop(uid, None)
        if promise is not None:
            self._stale.add(promise[0])

    def prepare(self, pod: PodFacts, deadline_s: float) -> Awaitable[str] | None:
        promise = self._promised.get(pod.uid)
        if promise is not None:
            devices = self._nodes.get(promise[0])
            return self._notes.write(pod, written(devices, promise[1]) if devices is not None else None)
        known = self._pod(pod) if self._nodes else None
        return self._notes.write(pod, None) if self._notes.may_be_on(pod.uid, known) else None

    # Following

    def _free(self, node: str) -> NodeDevices:
        """The devices of a node as they are free now."""
        return self._used(node).without(self._cluster.sources.making_way)

    def _used(self, node: str) -> UsedCards:
        devices = self._nodes.get(node) or NodeDevices()
        by_pod: dict[str, Allotment | int] = {}
        for pod in self._cache.by_index(Pod, AT, node):
            if pod.is_finished:
                continue
            allotment = allotted(pod)
            want = _want(pod) if allotment is None else None
            by_pod[pod.metadata.uid] = allotment if allotment is not None else want.cards if want is not None else 0
        promised = [
            allotment for uid, (where, allotment) in self._promised.items() if where == node and uid not in by_pod
        ]
        return UsedCards(devices, self._kinds.get(node), by_pod, tuple(promised))

    def vacancy(self, asked: Collection[str], nodes: Callable[[], Collection[str]]) -> Vacancy | None:
        card_requests = {name: self._card_requests[name] for name in sorted(asked) if name in self._card_requests}
        if not card_requests:
            return None
        return CardVacancy({node: self._used(node) for node in nodes() if node in self._nodes}, card_requests)

    def _changed(self, old: Device | None, new: Device | None) -> None:
        device = new or old
        assert device is not None
        name = device.metadata.name
        before = self._nodes.pop(name, None)
        self._kinds.pop(name, None)
        fault = ""
        if new is not None:
            self._nodes[name] = read_devices(new)
            self._kinds[name] = self._nodes[name].kind
            fault = self._nodes[name].fault
            if fault and (before is None or before.fault != fault):
                self._events.warn(new, "InvalidDevice", f"{fault}; its devices are not given out until it is corrected")
            for pod in self._cache.by_index(Pod, AT, name):  # pods may be seen before the devices they have
                if (want := _want(pod)) is not None:
                    self._mix(want)
        self._stale.add(name)
        faulty = (
            any(node.fault for node in self._nodes.values()) if fault or (before and before.fault) else self._faulty
        )
        if before is None or new is None or faulty != self._faulty:
            self._faulty = faulty
            self._stale.update(self._nodes)
            self._cluster.reader.read_all_again()
        self._cluster.changes.relief.add(name)
        self._cluster.changes.wake()

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if new is None or new.is_bound:
            self._notes.forget(pod.metadata.uid)
        if not self._nodes or not _counts(pod):
            return
        if new is not None and new.is_bound and (want := _want(new)) is not None:
            self._mix(want)
        if (old.spec.node_name if old else "") != (new.spec.node_name if new else ""):
            self._stale.add(pod.spec.node_name)
            if new is None or ALLOCATED in new.metadata.annotations:
                self._promised.pop(pod.metadata.uid, None)


def _counts(pod: Pod) -> bool:
    return any(
        (name in GPU_NAMES or name in NAMES) and milli(quantity) > 0
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name, quantity in (*container.resources.limits.items(), *container.resources.requests.items())
    )


def _want(pod: Pod) -> CardRequest | None:
    try:
        return want_of(pod_requests(pod), pod.metadata.annotations)
    except InvalidCardRequest:
        return None
