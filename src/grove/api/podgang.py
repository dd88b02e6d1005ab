"""PodGang: what the operator asks of a scheduler, and what the scheduler answers.

Pods that belong together, how many of each group are enough, and how close they shall be. Levels are node label keys
here, not domain names: a scheduler needs no ClusterTopologyBinding to read a PodGang.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

from grove.api.conditions import (
    FALSE,
    READY,
    SCHEDULED,
    TRUE,
    Standing,
    with_why_not_ready,
)
from grove.api.meta import Condition, Conditions, Json, Object, Resource, Struct, doc, find_condition
from grove.api.topology import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY

PENDING, STARTING, RUNNING = "Pending", "Starting", "Running"

MINIMUM_READY, MINIMUM_NOT_READY, MINIMUM_NOT_PLACED = "MinimumReady", "MinimumNotReady", "MinimumNotPlaced"
_NOT_PLACED = Standing("Reconciling", MINIMUM_NOT_PLACED, "some groups have fewer pods on nodes than their minimum")
_NOT_READY = Standing("Reconciling", MINIMUM_NOT_READY, "some groups have fewer ready pods than their minimum")
_IS_READY = Standing("Ready", MINIMUM_READY, "every group has its minimum ready")


class NamespacedName(Struct):
    namespace: Annotated[str, doc("Its namespace.", required=True)] = ""
    name: Annotated[str, doc("Its name.", required=True)] = ""


class PackConstraint(Struct):
    required: Annotated[str, doc("Node label key; one value of it must hold all the pods.")] = ""
    preferred: Annotated[str, doc("Node label key; one value of it should hold all the pods.")] = ""


class GangTopologyConstraint(Struct):
    pack_constraint: Annotated[PackConstraint | None, doc("How close together the pods shall be.")] = None

    @property
    def required(self) -> str:
        return self.pack_constraint.required if self.pack_constraint else ""

    @property
    def preferred(self) -> str:
        return self.pack_constraint.preferred if self.pack_constraint else ""


class PodGroup(Struct):
    name: Annotated[str, doc("Name of the PodClique.", required=True)] = ""
    pod_references: Annotated[tuple[NamespacedName, ...], doc("Pods of the group, by name.", required=True)] = ()
    min_replicas: Annotated[int, doc("Pods that must be placed for the gang to be placed.", required=True)] = 0
    topology_constraint: Annotated[GangTopologyConstraint | None, doc("Where the pods of this group go.")] = None


class TopologyConstraintGroup(Struct):
    name: Annotated[str, doc("Name of the group of pod groups.", required=True)] = ""
    pod_group_names: Annotated[tuple[str, ...], doc("Pod groups that are placed together.", required=True)] = ()
    topology_constraint: Annotated[GangTopologyConstraint | None, doc("Where they go.")] = None


class ReplacedGroup(Struct):
    name: Annotated[str, doc("Pod group, of this PodGang or of one that is scaled with it.", required=True)] = ""
    pod_names: Annotated[tuple[str, ...], doc("Pods that go.", required=True)] = ()
    pod_spec: Annotated[Json, doc("What each pod in their place asks of a node.", required=True, open=True)] = {}


class Replacement(Struct):
    id: Annotated[str, doc("Another one for every other question.", required=True)] = ""
    pod_groups: Annotated[tuple[ReplacedGroup, ...], doc("Pods that go together.", required=True)] = ()


class ReplacementAnswer(Struct):
    id: Annotated[str, doc("The question that is answered.", required=True)] = ""
    fits: Annotated[bool, doc("Whether all new pods have a place once the old ones are gone.", required=True)] = False
    message: Annotated[str, doc("Why they have none.")] = ""


class GangSpreadConstraint(Struct):
    """How units are distributed over the domains of one level. A unit is a replica, or a pod."""

    topology_key: Annotated[str, doc("Node label key; its values are the domains.", required=True, minLength=1)] = ""
    max_skew: Annotated[
        int, doc("How many more units a domain may have than the one with the fewest.", required=True, minimum=1)
    ] = 1
    when_unsatisfiable: Annotated[
        str,
        doc(
            "Whether units that would exceed maxSkew wait or are placed all the same.",
            default=DO_NOT_SCHEDULE,
            enum=[DO_NOT_SCHEDULE, SCHEDULE_ANYWAY],
        ),
    ] = DO_NOT_SCHEDULE
    pod_group_names: Annotated[tuple[str, ...], doc("Pod groups that it places; all groups if absent.")] = ()
    match_labels: Annotated[
        dict[str, str], doc("Labels of the pods that it counts, in the namespace of the gang.", required=True)
    ] = {}
    unit_label: Annotated[
        str, doc("Pod label; pods with the same value are one unit. Every pod is a unit if absent.")
    ] = ""


class GangHeadroom(Struct):
    """Capacity that is held free for further copies of pod groups."""

    name: Annotated[str, doc("The set or the scaling group whose replicas are copied.", required=True)] = ""
    units: Annotated[int, doc("How many further replicas.", required=True, minimum=1)] = 1
    pod_group_names: Annotated[
        tuple[str, ...],
        doc("Pod groups of one replica; if absent, this gang and the gangs that are scaled with it."),
    ] = ()
    priority_class_name: Annotated[
        str,
        doc("PriorityClass of the held capacity, at most the priority of the gang; that of the gang if absent."),
    ] = ""


class PodGangSpec(Struct):
    podgroups: Annotated[tuple[PodGroup, ...], doc("Groups of alike pods.", required=True)] = ()
    topology_constraint: Annotated[GangTopologyConstraint | None, doc("Where all pods of the gang go.")] = None
    topology_constraint_group_configs: Annotated[
        tuple[TopologyConstraintGroup, ...], doc("Pod groups with a constraint in common.")
    ] = ()
    spread_constraints: Annotated[
        tuple[GangSpreadConstraint, ...], doc("How replicas or pods are distributed over failure domains.")
    ] = ()
    headroom: Annotated[
        tuple[GangHeadroom, ...], doc("Capacity to hold free for further replicas; for grove-scheduler.")
    ] = ()
    priority_class_name: Annotated[str, doc("PriorityClass of the gang.")] = ""
    reuse_reservation_ref: Annotated[NamespacedName | None, doc("PodGang whose place this one may take over.")] = None
    replacement: Annotated[
        Replacement | None, doc("Asks the scheduler whether pods fit that are to replace others; for grove-scheduler.")
    ] = None


class HeldAmount(Struct):
    group: Annotated[str, doc("Pod group whose pod it is held for.")] = ""
    node: Annotated[str, doc("Node on which it is held.", required=True)] = ""
    requests: Annotated[dict[str, str], doc("Amount of each resource that is held.")] = {}


class HeldCapacity(Struct):
    reason: Annotated[
        str, doc("WaitedLong, Overtaken, Nominated, Replacement, Headroom or FormerPlace.", required=True)
    ] = ""
    since: Annotated[datetime | None, doc("Since when it is held.")] = None
    nodes: Annotated[tuple[str, ...], doc("Nodes that are held whole.")] = ()
    amounts: Annotated[tuple[HeldAmount, ...], doc("What is held on nodes for single pods.")] = ()


class PodGangStatus(Struct):
    phase: Annotated[str, doc("Pending, Starting or Running.", required=True)] = ""
    conditions: Annotated[tuple[Condition, ...], doc("Whether the gang is complete, scheduled and ready.")] = ()
    placement_score: Annotated[float | None, doc("How good the placement is: 0 to 1, 1 is best.")] = None
    capacity_holds: Annotated[
        tuple[HeldCapacity, ...], doc("What the scheduler holds for the gang; it reads this back when it restarts.")
    ] = ()
    replacement: Annotated[ReplacementAnswer | None, doc("The answer to spec.replacement.")] = None


class PodGang(Object):
    """Pods that are placed together or not at all."""

    RESOURCE: ClassVar[Resource] = Resource("scheduler.grove.io", "v1alpha1", "PodGang", "podgangs")

    spec: Annotated[PodGangSpec, doc("Pods that belong together.", required=True)] = PodGangSpec()
    status: Annotated[PodGangStatus, doc("What the scheduler answered.")] = PodGangStatus()

    @property
    def phase(self) -> str:
        """Pending, Starting or Running. The API accepts any text in the status; other text counts as Pending."""
        return self.status.phase if self.status.phase in (STARTING, RUNNING) else PENDING

    @property
    def requires_domain(self) -> bool:
        """True if some of its pods must be placed in one topology domain."""
        spec = self.spec
        constraints = (
            spec.topology_constraint,
            *(group.topology_constraint for group in spec.topology_constraint_group_configs),
            *(podgroup.topology_constraint for podgroup in spec.podgroups),
        )
        return any(constraint is not None and constraint.required for constraint in constraints)


def with_gang_standing(conditions: Conditions, now: datetime, stalled: Standing | None = None) -> Conditions:
    """The conditions of a gang with the one of `Reconciling` and `Stalled` that follows; a new gang has neither.

    They have no observedGeneration: the spec of a gang changes with every pod that is replaced, and a condition with an
    older generation makes `kubectl wait` wait.
    """
    ready, scheduled = (find_condition(conditions, type_) for type_ in (READY, SCHEDULED))
    if ready is None and scheduled is None and stalled is None:
        return conditions
    if ready is not None and ready.status == TRUE:
        standing = _IS_READY
    elif scheduled is not None and scheduled.status == FALSE:
        standing = stalled or _NOT_PLACED
    else:
        standing = stalled or _NOT_READY
    return with_why_not_ready(conditions, standing, now)
