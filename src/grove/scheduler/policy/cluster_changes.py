"""What changed since the last turn: units to look at, units that are gone, new capacity; and which changes matter.

Handlers of events note it in `Changes`, between turns and in the middle of them; a turn takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from grove.api.core import Pod
from grove.api.meta import find_condition
from grove.api.podgang import PodGang
from grove.scheduler.model.facts import HOSTNAME, PodFacts, PodScope, Shape
from grove.scheduler.policy.gang_state import GangState, is_initialized

MOST_MOVES = 64
"""Most changed pods of one turn that are looked at one by one.

Above this number, the scheduler tries each unit again that looks at other pods.
"""


class PodMove(NamedTuple):
    """A pod that came, left or changed; None where it was not there before, or is not any more."""

    before: PodFacts | None
    after: PodFacts | None

    @property
    def stays(self) -> bool:
        """Whether it is on the node where it was."""
        return self.before is not None and self.after is not None and self.before.node == self.after.node


def can_help(shape: Shape, move: PodMove, matches: Callable[[PodScope, PodFacts], bool]) -> bool:
    """Whether a pod of this shape may go somewhere because of the move, beside the capacity that it frees.

    A pod that leaves a node frees capacity there. So a term that speaks of nodes alone needs no look of its own.
    """

    def matched(scope: PodScope) -> tuple[bool, bool]:
        before, after = (pod is not None and matches(scope, pod) for pod in move)
        return before, after

    for scope in (*(term.scope for term in shape.affinity), *(spread.scope for spread in shape.spread)):
        before, after = matched(scope)
        if before != after or (before and not move.stays):
            return True
    for term in shape.anti_affinity:
        before, after = matched(term.scope)
        if before and (not after if move.stays else term.topology_key != HOSTNAME):
            return True
    return False


class TakenRelief(NamedTuple):
    """The fields of `Changes` of these names; `nodes` is None if something changed that may help any unit."""

    nodes: set[str] | None
    helped: set[str]
    demand_changed: bool
    daemons_went: bool
    moves: list[PodMove] | None


class Changes:
    """`wake` is called when there is something new to decide."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.dirty: dict[str, bool] = {}
        """Units to look at, and whether they changed in a way that makes old refusals void."""
        self.gone: list[GangState] = []
        """Gangs that are gone. A gang with the same name is another one."""
        self.relief: set[str] = set()
        """Nodes that may hold more than before."""
        self.wide_relief = False
        """Something changed that may help any unit: a topology, a hold, a namespace's labels."""
        self.helped: set[str] = set()
        """Units with pods whose volumes or devices changed, or who has them."""
        self.demand_changed = False
        """Units stopped waiting, or ask for something else: quotas may leave more to those they kept out."""
        self.daemons_went = False
        """Capacity of daemon pods became free for good. A unit for which no node was worth holding may get a hold now.
        """
        self.sees_pods = False
        """Whether some waiting pod's place depends on other pods, so that any of them coming or going may help."""
        self.seeks_reclaim = False
        """Whether some unit waits for what others have above their shares, so that any pod on a node may entitle it."""
        self.moves: list[PodMove] | None = []
        """Pods that came, left or changed, which may help units that look at other pods. None if nodes did, or too many
        pods: each of these units may be helped."""

    def mark(self, unit: str, *, fresh: bool = False) -> None:
        """Asks for a look at a unit in the next cycle."""
        self.dirty[unit] = fresh or self.dirty.get(unit, False)
        self.wake()

    def help_all(self) -> None:
        """Something changed that no node stands for."""
        self.wide_relief = True
        self.wake()

    def forget(self, gang: GangState) -> None:
        """Marks a deleted gang: the next turn drops its records before it reads a new gang of that name."""
        self.gone.append(gang)
        self.mark(gang.name)

    def forget_gone(self, is_there: Callable[[str], bool]) -> None:
        """Drops all records of units that are gone. A standby calls this: it takes no turns and wakes no unit.

        The first turn looks at every unit that is there.
        """
        self.gone.clear()
        self.relief.clear()
        self.helped.clear()
        self.dirty = {unit: fresh for unit, fresh in self.dirty.items() if is_there(unit)}

    def take_gone(self) -> list[GangState]:
        gang_states, self.gone = self.gone, []
        return gang_states

    def take_relief(self) -> TakenRelief:
        """The changes since the last call that may help waiting units."""
        roomier = None if self.wide_relief else self.relief
        relief = TakenRelief(roomier, self.helped, self.demand_changed, self.daemons_went, self.moves)
        self.relief, self.helped, self.moves = set(), set(), []
        self.wide_relief = self.demand_changed = self.daemons_went = False
        return relief

    def take_dirty(self) -> list[tuple[str, bool]]:
        dirty, self.dirty = sorted(self.dirty.items()), {}
        return dirty

    def pod_moved(self, before: PodFacts | None, after: PodFacts | None) -> None:
        """Records which units a pod that came, left or changed may help, beside those that need its capacity."""
        if before is not None and _keeps_off(before) != (_keeps_off(after) if after is not None else ()):
            self.help_all()
        elif self.sees_pods and _seen(before) != _seen(after):
            if self.moves is not None and len(self.moves) < MOST_MOVES:
                self.moves.append(PodMove(before, after))
                self.wake()
            else:
                self.neighbours_changed()
        elif self.seeks_reclaim:
            self.wake()

    def neighbours_changed(self) -> None:
        """Each unit that looks at other pods may be helped."""
        if self.sees_pods:
            self.moves = None
            self.wake()

    @property
    def has_relief(self) -> bool:
        """True if a change may help waiting units."""
        return bool(self.relief) or bool(self.helped) or self.wide_relief or self.moves != []


def _keeps_off(pod: PodFacts) -> tuple[object, ...]:
    """The pods that a pod keeps away from more than its own node, and from which domains."""
    terms = tuple(term for term in pod.shape.anti_affinity if term.topology_key != HOSTNAME)
    return (pod.node, terms) if terms else ()


def _seen(pod: PodFacts | None) -> tuple[object, ...]:
    """The parts of a pod that affinity and spread of other pods read."""
    return (pod.node, pod.labels, pod.terminating) if pod is not None else ()


def fate_of(pod: Pod) -> tuple[object, ...]:
    """The parts of a pod that can change the decision on its gang."""
    fate = (pod.spec.node_name, pod.metadata.is_deleting, pod.is_gated, pod.status.resource_claim_statuses)
    return fate if pod.spec.node_name else (*fate, *_requests(pod))


def _requests(pod: Pod) -> tuple[object, ...]:
    """The changeable parts of a waiting pod that decide its nodes."""
    spec = pod.spec
    return (pod.metadata.labels, spec.tolerations, spec.node_selector, spec.affinity)


def asks_of(pod: Pod) -> tuple[object, ...]:
    """The changeable parts of a waiting pod from which its facts are read."""
    meta = pod.metadata
    return (meta.generation, meta.annotations, pod.status.resource_claim_statuses, *_requests(pod))


def gang_fate_of(podgang: PodGang) -> tuple[object, ...]:
    """The parts of a PodGang that can change the decision on it. Its status is our own, except for Initialized."""
    meta = podgang.metadata
    return (podgang.spec, meta.annotations, meta.labels, meta.is_deleting, is_initialized(podgang))


def is_our_bind(old: Pod, new: Pod) -> bool:
    """True if a change of a pod is only our own binding, which the snapshot counts already."""
    return (
        not old.spec.node_name
        and not new.metadata.is_deleting
        and new.metadata.generation - old.metadata.generation <= 1
    )


def is_other_load(old: Pod, new: Pod) -> bool:
    """True if the snapshot must count a bound pod again. In a kubelet's status only a resize matters."""
    return (
        old.spec.node_name != new.spec.node_name
        or old.metadata.generation != new.metadata.generation
        or old.metadata.is_deleting != new.metadata.is_deleting
        or old.metadata.labels != new.metadata.labels
        or _granted(old) != _granted(new)
    )


def _granted(pod: Pod) -> list[object]:
    """The amounts that a node gave to containers and that differ from their requests, and the state of the resize."""
    status, spec = pod.status, pod.spec
    asked = {container.name: container.resources.requests for container in (*spec.containers, *spec.init_containers)}
    given: list[object] = [
        (container_status.name, container_status.resources, container_status.allocated_resources)
        for container_status in (*status.container_statuses, *status.init_container_statuses)
        if container_status.resources is not None
        and container_status.resources.requests != asked.get(container_status.name)
    ]
    if given and (pending := find_condition(status.conditions, "PodResizePending")) is not None:
        given.append(pending.reason)
    return given
