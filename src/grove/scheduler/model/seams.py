"""Four ways to add to the scheduler: a filter, a source, a score, a policy.

A snapshot carries one list of each (`Seams`). All parts of the scheduler use those lists: the search, explanations, the
wake-up of units that wait, and the check before a bind. So every part uses a new module at once. A class inherits what
it does not define. `docs/extending-scheduler.md` has an example of each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from grove.api.meta import Json
from grove.scheduler.model.facts import NodeTerms, PodFacts, Requests, Shape
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import NOT_ADMITTED, Reason

if TYPE_CHECKING:
    from grove.api.core import Pod
    from grove.scheduler.cluster.node_table import Ints, Mask
    from grove.scheduler.cluster.snapshot import Snapshot
    from grove.scheduler.devices.shared_claims import DeviceNodes, OpenClaims
    from grove.scheduler.evict.running import Running


class NodeFilter(Protocol):
    """Which nodes may take pods of a shape, whatever is free on them."""

    name: str
    lasts: bool = True
    """True if the answer depends only on the names, labels and taints of nodes.

    The scheduler then keeps it until one of them changes, and asks again before a bind. A filter that looks at running
    pods has False, and is asked for every decision.
    """

    def looks_at(self, shape: Shape) -> Hashable | None:
        """The part of the shape that decides, as a key for stored answers. None if the filter ignores such pods."""
        return shape

    def rows(self, snapshot: Snapshot, shape: Shape) -> Mask:
        """True for the rows that pass."""
        ...

    def word(self, shape: Shape) -> str:
        """The name of the failure in messages: `3 host port` means three nodes where a host port is taken."""
        return self.name

    def rows_by_word(self, snapshot: Snapshot, shape: Shape) -> Iterable[tuple[str, Mask]]:
        """The same answer in parts, each with its own word: a row passes the filter if it passes every part."""
        return ((self.word(shape), self.rows(snapshot, shape)),)


class Needs(NamedTuple):
    """The requirements of a pending pod beyond the requests of its containers."""

    requests: Requests = ()
    """Amounts of resources that the source counts on nodes."""
    nodes: tuple[NodeTerms, ...] = ()
    """Sets of terms that its node must meet, all of them."""
    blocked: str = ""
    """Why no node will do, for now."""
    instead: tuple[Requests, ...] = ()
    """Request sets that do instead of the containers' own, best first: something else gives the pod the rest."""
    only: bool = False
    """Whether its own requests do not do."""
    kinds: Mapping[str, Any] = {}
    """What the resources it names stand for, where the source counts nodes by what it was asked for; see `learn`."""


NO_NEEDS = Needs()


class Refusal(NamedTuple):
    """A node that cannot give what was counted on, and why; an empty name if no other could either."""

    node: str
    why: str
    together: tuple[str, ...] = ()
    """Uids of pods that cannot all be there; empty if no pod of the gang can."""


class Vacancy(Protocol):
    """The counts of a source at one moment, to compute what leaving pods would free. Every thread can read it."""

    def freed(self, node: str, uids: Collection[str]) -> Mapping[str, int]:
        """How much more of each resource a node would have if these pods left it, beside their own requests."""
        ...


class NodeSource(Protocol):
    """Something nodes have and pods use that is no plain resource: volumes, devices, licences."""

    name: str
    counts: str = ""
    """How the names of resources begin whose free amounts the source works out; empty if it counts none.

    A pod that has its place is not counted again by its requests for these: `amounts` says what is left."""

    def amounts(self, node: str) -> Mapping[str, int]:
        """The free amounts on a node now, by resource."""
        return {}

    def needs(self, pod: Pod) -> Needs:
        """The requirements of a pod.

        For a bound pod the search uses them to find other places; its requests do not count.
        """
        return NO_NEEDS

    def replacement(self, pod: Pod) -> Requests:
        """The requests, in this source's resources, of a pod that will replace this bound pod."""
        return ()

    def learn(self, kinds: Mapping[str, Any]) -> None:
        """Counts nodes by these resources too from now on: a pod that was read needs them."""
        return

    def keep(self, kinds: Collection[str]) -> Collection[str]:
        """Counts nodes by these resources alone of all it was asked to learn: no waiting pod needs others any more.

        Answers which it dropped.
        """
        return ()

    def reserve(self, pods: Sequence[PodFacts]) -> Refusal | None:
        """Sets aside what pods need on the nodes chosen for them, or says which node cannot give it.

        Asked again for pods that have it already it changes nothing. After a refusal all of them are released.
        """
        return None

    def release(self, uid: str) -> None:
        """The pod is gone or will not be bound there after all."""
        return

    def prepare(self, pod: PodFacts, deadline_s: float) -> Awaitable[str] | None:
        """Prepares the cluster before the bind of a pod.

        None if nothing is needed; the result is an error text or empty.
        """
        return None

    def vacancy(self, asked: Collection[str], nodes: Callable[[], Collection[str]]) -> Vacancy | None:
        """A value that computes which amounts on these nodes become free if pods leave them.

        Which nodes is worked out when it is asked: most sources have nothing to say to most gangs.
        """
        return None

    def shared(self, pod: Pod) -> tuple[Collection[str], OpenClaims]:
        """The claims that a waiting pod shares with other pods. All these pods must be on one node.

        Answers the nodes that have some of it set aside, and by key what no node has set aside yet.
        """
        return (), {}

    def sites(self, snapshot: Snapshot, near: Mask, leaving: Collection[str] = ()) -> DeviceNodes | None:
        """Nodes to choose from for what pods share, those in `near` first; what pods in `leaving` have counts as free.

        None if the source has nothing that pods share.
        """
        return None

    def kept(self) -> Mapping[str, Requests]:
        """The amounts by node that the source keeps for owners, also after the pods there end."""
        return {}

    def ending(self) -> Mapping[str, Requests]:
        """The amounts by node of pods that end by themselves."""
        return {}

    def staying_pods(self) -> Collection[str]:
        """Uids of pods that never make way for others, such as pods of DaemonSets."""
        return ()

    def ending_pods(self) -> Collection[str]:
        """Uids of pods that end by themselves."""
        return ()

    def departed_pods(self) -> Mapping[str, Collection[str]]:
        """By node, uids of pods that are gone and still have something of the source. They give it back soon."""
        return {}

    def refresh(self) -> Collection[str]:
        """Nodes whose amounts have changed since the last call; asked before anything is decided."""
        return ()


class Score(Protocol):
    """How well each node suits pods of a shape. It decides only between placements that are equally close together.

    Placements are compared in this order: pods lost (preemption), former nodes kept, domains crossed, and capacity for
    pods that will join. Then come score, whole domains left whole, and tightness. The score is the sum of all scores
    times their weights. The score of a domain is the sum over the pods it would take.
    """

    name: str

    def rows(self, snapshot: Snapshot, shape: Shape) -> Ints | None:
        """A column of whole numbers, more is better; None where all nodes are alike."""
        ...


class Applicant(NamedTuple):
    """Who waits in the queue."""

    name: str
    priority: int
    labels: Mapping[str, str]
    namespace: str = ""
    """Of its pods."""


class Policy(Protocol):
    """Which units may run, which go first, and which may evict others."""

    name: str
    reclaims: bool = False
    """Whether it ever lets a unit put out one that is not of lower priority."""
    version: int = 0
    """Grows when something changes that it goes by beside the snapshot."""
    moves: bool = True
    """Whether ranks may change while units wait; then the queue is put in order once a turn by the ranks of now."""

    def account(self, pod: PodFacts) -> str | None:
        """The account a pod is charged to; `snapshot.usage.of(account)` has the sum over the pods on nodes."""
        return None

    def looks_at(self, gang: Gang) -> Hashable:
        """A key that is equal for gangs that the policy treats alike, apart from priority and requests.

        A unit that waits is not tried while another one like it, ahead of it, finds no place. By its name no gang is
        like another.
        """
        return gang.name

    def refusal(self, snapshot: Snapshot, gang: Gang, pods: Sequence[PodFacts]) -> Reason | None:
        """Why these pending pods of a gang may not run now, all of them together; None if they may."""
        return None

    def could_admit(self, snapshot: Snapshot, pods: Sequence[PodFacts]) -> bool:
        """True if the policy limits these pods, and admits them when all other pods under the same limits end.

        What it limits is then held for a unit that waits long.
        """
        return False

    def held_against(self, snapshot: Snapshot, pods: Sequence[PodFacts], held: Sequence[PodFacts]) -> Reason | None:
        """Why these pods may not run now, given pods ahead of them for which the same is held; None if they may."""
        return None

    def outlook(self, snapshot: Snapshot, gang: Gang, pods: Sequence[PodFacts]) -> Reason | None:
        """An explanation of what these pods may take from others while there is no capacity for them."""
        return None

    def rank(self, snapshot: Snapshot, who: Applicant) -> tuple[int, ...]:
        """Where a unit stands in the queue, smaller first; policies listed earlier are compared first."""
        return ()

    def may_put_out(self, snapshot: Snapshot, gang: Gang, victim: Running) -> bool | None:
        """True if a running unit may be evicted for the gang. None leaves the decision to the next policy."""
        return None

    def may_reclaim(self, snapshot: Snapshot, gang: Gang) -> bool:
        """True if units without lower priority may be evicted for the gang now. Called often, so it must be fast."""
        return self.reclaims

    def note_demand(self, snapshot: Snapshot, asked: Mapping[str, Mapping[str, int]]) -> None:
        """By account and resource, what the pods of all waiting units ask for; called before every turn."""
        return

    def changes_in_s(self, snapshot: Snapshot) -> float | None:
        """Seconds until the mere passing of time may let a unit put out others; None if it never does."""
        return None

    def rounds(self, snapshot: Snapshot, gang: Gang, running: Sequence[Running]) -> Sequence[Sequence[Running]]:
        """Units that may have to go besides, where those of `may_put_out` are not enough, in rounds of growing harm.

        A unit may be part of a running one: pods above its minimum that go alone.
        """
        return ()

    def for_thread(self) -> Policy:
        """The policy as another thread may ask it meanwhile; itself if it keeps nothing between answers."""
        return self

    def remembered(self, snapshot: Snapshot) -> Json | None:
        """The policy's data beside the snapshot, for the journal of a run. None without such data."""
        return None


PREFERRED_NODES, PREFERRED_PODS, SOFT_TAINTS = "preferredNodes", "preferredPods", "softTaints"
NETWORK_AFFINITY, NETWORK_BANDWIDTH = "NetworkAffinityForPodClique", "networkBandwidth"
GPU_CAPABILITY, RESERVED = "gpuCapability", "reservations"
NETWORK_TERMS = {
    f"{NETWORK_AFFINITY}.{term}": weight
    for term, weight in (("distance", 50), ("gpuFill", 20), ("accelerator", 20), ("zone", 10))
}
"""What the score of the network is made of, in hundredths."""
SCORES = {
    PREFERRED_NODES: 1,
    PREFERRED_PODS: 1,
    SOFT_TAINTS: 100,
    NETWORK_AFFINITY: 1,
    NETWORK_BANDWIDTH: 1,
    GPU_CAPABILITY: 1,
    RESERVED: 5000,
    **NETWORK_TERMS,
}
"""Scores of the scheduler's own with their weights, which the configuration may change."""


@dataclass(frozen=True, slots=True)
class Seams:
    """The lists, each in the order its members are asked."""

    filters: tuple[NodeFilter, ...] = ()
    sources: tuple[NodeSource, ...] = ()
    scores: tuple[Score, ...] = ()
    policies: tuple[Policy, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)
    """By a score's name; 1 where nothing is said, 0 leaves a score out."""
    refuses: bool = field(init=False, default=False)
    """Whether any policy ever keeps a unit out."""
    reclaims: bool = field(init=False, default=False)
    """Whether units that are not of lower priority may have to go."""
    moves: bool = field(init=False, default=False)
    """Whether ranks may change while units wait."""

    def __post_init__(self) -> None:
        policies = self.policies
        moves = any(policy.moves and type(policy).rank is not Policy.rank for policy in policies)
        object.__setattr__(self, "refuses", any(type(policy).refusal is not Policy.refusal for policy in policies))
        object.__setattr__(self, "reclaims", any(policy.reclaims for policy in policies))
        object.__setattr__(self, "moves", moves)

    def joined(
        self,
        *,
        filters: Iterable[NodeFilter] = (),
        sources: Iterable[NodeSource] = (),
        scores: Iterable[Score] = (),
        policies: Iterable[Policy] = (),
        weights: Mapping[str, int] = {},
    ) -> Seams:
        """With more members: filters, sources and scores behind those there are, policies before them."""
        return replace(
            self,
            filters=(*self.filters, *filters),
            sources=(*self.sources, *sources),
            scores=(*self.scores, *scores),
            policies=(*policies, *self.policies),
            weights={**self.weights, **weights},
        )

    def for_thread(self) -> Seams:
        """With policies that another thread may ask."""
        return self.with_policies([policy.for_thread() for policy in self.policies])

    def with_policies(self, policies: Sequence[Policy]) -> Seams:
        """With these policies instead."""
        return replace(self, policies=tuple(policies))

    def rank(self, snapshot: Snapshot, who: Applicant) -> tuple[int, ...]:
        return tuple(place for policy in self.policies for place in policy.rank(snapshot, who))

    def refusal(self, snapshot: Snapshot, gang: Gang, pods: Sequence[PodFacts]) -> Reason | None:
        """The first policy's word against these pods, with its name; None if all agree."""
        for policy in self.policies if pods else ():
            if (why := policy.refusal(snapshot, gang, pods)) is not None:
                return Reason(NOT_ADMITTED, policy.name, parts=(why,))
        return None

    def keeps_out(self, snapshot: Snapshot, gang: Gang) -> bool:
        """True if a policy refuses the gang's minimum, even on empty nodes."""
        core = [pod for group in gang.groups() for pod in group.pods[: group.need]]
        return self.refuses and self.refusal(snapshot, gang, core) is not None

    def could_admit(self, snapshot: Snapshot, gang: Gang, pods: Sequence[PodFacts]) -> bool:
        """True if a policy limits these pods, and every refusing policy admits them when other pods end."""
        could = [policy.could_admit(snapshot, pods) for policy in self.policies]
        refusing = (policy.refusal(snapshot, gang, pods) is not None for policy in self.policies)
        return any(could) and all(admits for admits, refuses in zip(could, refusing, strict=True) if refuses)

    def held_against(self, snapshot: Snapshot, pods: Sequence[PodFacts], held: Sequence[PodFacts]) -> Reason | None:
        for policy in self.policies if pods and held else ():
            if (why := policy.held_against(snapshot, pods, held)) is not None:
                return Reason(NOT_ADMITTED, policy.name, parts=(why,))
        return None

    def looks_at(self, gang: Gang) -> tuple[Hashable, ...]:
        """The keys of all policies for a gang."""
        return tuple(policy.looks_at(gang) for policy in self.policies)

    def outlooks(self, snapshot: Snapshot, gang: Gang) -> list[Reason]:
        """The explanations of all policies for a gang that does not fit."""
        pods = [pod for group in gang.groups() for pod in group.pods[: group.need]]
        reasons = (policy.outlook(snapshot, gang, pods) for policy in self.policies if pods)
        return [reason for reason in reasons if reason is not None]

    def counting_demand(self) -> list[Policy]:
        """Policies that go by what waits."""
        return [policy for policy in self.policies if type(policy).note_demand is not Policy.note_demand]

    def accounts(self, pods: Iterable[PodFacts]) -> frozenset[str]:
        """Every account that one of the pods is charged to."""
        accounts = (policy.account(pod) for pod in pods for policy in self.policies)
        return frozenset(account for account in accounts if account is not None)

    def charges(self, pod: PodFacts) -> bool:
        """True if a policy counts the pod in an account."""
        return any(policy.account(pod) is not None for policy in self.policies)

    def may_put_out(self, snapshot: Snapshot, gang: Gang, victim: Running) -> bool:
        for policy in self.policies:
            answer = policy.may_put_out(snapshot, gang, victim)
            if answer is not None:
                return answer
        return False

    def rounds(self, snapshot: Snapshot, gang: Gang, running: Sequence[Running]) -> list[Sequence[Running]]:
        return [units for policy in self.policies for units in policy.rounds(snapshot, gang, running)]

    @property
    def versions(self) -> tuple[int, ...]:
        return tuple(policy.version for policy in self.policies)

    def changes_in_s(self, snapshot: Snapshot) -> float | None:
        times = (policy.changes_in_s(snapshot) for policy in self.policies)
        return min((seconds for seconds in times if seconds is not None), default=None)

    def may_reclaim(self, snapshot: Snapshot, gang: Gang) -> bool:
        return any(policy.may_reclaim(snapshot, gang) for policy in self.policies if policy.reclaims)
