"""ClusterTopologyBinding: names for the levels of a cluster, and the constraints of a workload that use those names."""

from __future__ import annotations

from typing import Annotated, ClassVar

from grove.api.meta import Condition, Int64, Object, Resource, Struct, doc

DOMAIN_NAME = {"minLength": 1, "maxLength": 63, "pattern": "^[a-z][a-z0-9-]*$"}
"""A topology domain (`rack`, `block`, …): a portable name, not a node label."""


class Pack(Struct):
    required: Annotated[str, doc("Domain that must hold all the pods, or they stay pending.", **DOMAIN_NAME)] = ""
    preferred: Annotated[str, doc("Domain to keep the pods in if it can be done.", **DOMAIN_NAME)] = ""


class TopologyConstraint(Struct):
    topology_name: Annotated[str, doc("ClusterTopologyBinding to use; inherited from the parent if absent.")] = ""
    pack: Annotated[Pack | None, doc("How close together the pods shall be.")] = None
    pack_domain: Annotated[str, doc("Deprecated: use pack.required.", **DOMAIN_NAME)] = ""

    @property
    def required(self) -> str:
        """The domain that binds, in either spelling; empty if none does."""
        return (self.pack.required if self.pack else "") or self.pack_domain

    @property
    def preferred(self) -> str:
        return self.pack.preferred if self.pack else ""


DO_NOT_SCHEDULE, SCHEDULE_ANYWAY = "DoNotSchedule", "ScheduleAnyway"


class SpreadConstraint(Struct):
    """How replicas or pods are distributed over the domains of one level."""

    topology_name: Annotated[str, doc("ClusterTopologyBinding to use; inherited from the parent if absent.")] = ""
    domain: Annotated[str, doc("Domain to spread over.", required=True, **DOMAIN_NAME)] = ""
    max_skew: Annotated[
        int, doc("How many more a domain may have than the one with the fewest.", default=1, minimum=1)
    ] = 1
    when_unsatisfiable: Annotated[
        str,
        doc(
            "Whether what would exceed maxSkew waits or is placed all the same.",
            default=DO_NOT_SCHEDULE,
            enum=[DO_NOT_SCHEDULE, SCHEDULE_ANYWAY],
        ),
    ] = DO_NOT_SCHEDULE


class TopologyLevel(Struct):
    domain: Annotated[str, doc("Portable name of the level.", required=True, **DOMAIN_NAME)] = ""
    key: Annotated[
        str,
        doc(
            "Node label whose value says which domain a node is in.",
            required=True,
            minLength=1,
            maxLength=63,
            pattern="^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$",
        ),
    ] = ""


class SchedulerTopologyBinding(Struct):
    scheduler_name: Annotated[str, doc("Scheduler that keeps its own topology object.", required=True)] = ""
    topology_reference: Annotated[str, doc("Name of that object.", required=True)] = ""


class ClusterTopologyBindingSpec(Struct):
    levels: Annotated[
        tuple[TopologyLevel, ...], doc("Levels of the cluster, broad to narrow.", required=True, minItems=1)
    ] = ()
    scheduler_topology_bindings: Annotated[
        tuple[SchedulerTopologyBinding, ...], doc("Schedulers whose topology object is managed elsewhere.")
    ] = ()


class SchedulerTopologyStatus(Struct):
    scheduler_name: Annotated[str, doc("Scheduler this entry is about.", required=True)] = ""
    topology_reference: Annotated[str, doc("Its topology object.", required=True)] = ""
    in_sync: Annotated[bool, doc("Whether its levels equal those of the binding.", required=True)] = False
    scheduler_backend_topology_observed_generation: Annotated[
        Int64, doc("Generation of the topology object that was compared.")
    ] = 0
    message: Annotated[str, doc("What differs.")] = ""


class ClusterTopologyBindingStatus(Struct):
    observed_generation: Annotated[Int64, doc("Generation of the last reconcile without an error.")] = 0
    conditions: Annotated[tuple[Condition, ...], doc("Whether schedulers know the same levels.")] = ()
    scheduler_topology_statuses: Annotated[tuple[SchedulerTopologyStatus, ...], doc("One entry a scheduler.")] = ()


class ClusterTopologyBinding(Object):
    """Maps portable domain names to the node labels of one cluster."""

    RESOURCE: ClassVar[Resource] = Resource(
        "grove.io", "v1alpha1", "ClusterTopologyBinding", "clustertopologybindings", namespaced=False
    )

    spec: Annotated[ClusterTopologyBindingSpec, doc("Levels of the cluster.", required=True)] = (
        ClusterTopologyBindingSpec()
    )
    status: Annotated[ClusterTopologyBindingStatus, doc("What was observed.")] = ClusterTopologyBindingStatus()

    def find_key(self, domain: str) -> str | None:
        """The node label that stands for a domain name here."""
        return next((level.key for level in self.spec.levels if level.domain == domain), None)
