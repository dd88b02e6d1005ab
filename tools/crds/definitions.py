"""What a CRD says besides its schema: short names, columns, subresources and the rules that CEL checks."""

from __future__ import annotations

from dataclasses import dataclass, field

from grove.admission.rules.topology import BOTH_SPELLINGS, EMPTY_PACK, NEW_PACK_DOMAIN, NO_PACK
from grove.api.dynamo import PlacementPodClique, PodGangSet, PodGangSetSpec
from grove.api.koordset import KoordPodCliqueSet
from grove.api.meta import Json, Object, Struct
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding, Pack, TopologyConstraint


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; wide ones show with `-o wide` only."""

    name: str
    path: str
    type: str = "integer"
    wide: bool = False

    def to_json(self) -> Json:
        return {"name": self.name, "type": self.type, "jsonPath": self.path} | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True)
class Definition:
    kind: type[Object]
    short_name: str
    """Empty for the dialects: `kubectl get pcs`, and every other name but their plural, mean grove.io."""
    columns: tuple[Column, ...]
    scale_selector: str = ""
    """Where `kubectl scale` and autoscalers find the pods; empty if the kind cannot be scaled."""
    rules: dict[type[Struct], list[Json]] = field(default_factory=dict)

    @property
    def subresources(self) -> Json:
        scale = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": self.scale_selector,
        }
        return ({"scale": scale} if self.scale_selector else {}) | {"status": {}}


_SCHEDULED = '.status.conditions[?(@.type=="Scheduled")]'
AGE = Column("Age", ".metadata.creationTimestamp", "date")
BREACHED = Column("MinBreached", '.status.conditions[?(@.type=="MinAvailableBreached")].status', "string", wide=True)


_WITHOUT = "!has({0}.topologyConstraint) || !has({0}.topologyConstraint.packDomain)"
_TEMPLATE = "self.spec.template"


def _no_pack_domain_on_create(field_path: str, rule: str) -> Json:
    """Stored objects keep their deprecated spelling; `oldSelf` is there on every write but the first."""
    return {
        "rule": f"oldSelf.hasValue() || {rule}",
        "optionalOldSelf": True,
        "reason": "FieldValueForbidden",
        "fieldPath": field_path,
        "message": NEW_PACK_DOMAIN,
    }


def _no_pack_domain_in_list(field: str) -> Json:
    """The path of such a rule cannot hold an index; admission, which is asked before, names it."""
    items = f"self.spec.template.{field}"
    rule = f"!has({items}) || {items}.all(one, {_WITHOUT.format('one')})"
    return _no_pack_domain_on_create(f".spec.template.{field}", rule)


SET_RULES: dict[type[Struct], list[Json]] = {
    PodCliqueSet: [
        _no_pack_domain_on_create(".spec.template.topologyConstraint.packDomain", _WITHOUT.format(_TEMPLATE)),
        _no_pack_domain_in_list("cliques"),
        _no_pack_domain_in_list("podCliqueScalingGroups"),
    ],
    TopologyConstraint: [
        {
            "rule": "has(self.pack) || has(self.packDomain)",
            "reason": "FieldValueRequired",
            "fieldPath": ".pack",
            "message": NO_PACK,
        },
        {
            "rule": "!has(self.packDomain) || !has(self.pack) || !has(self.pack.required)",
            "fieldPath": ".pack.required",
            "message": BOTH_SPELLINGS,
        },
    ],
    Pack: [
        {
            "rule": "has(self.required) || has(self.preferred)",
            "reason": "FieldValueRequired",
            "message": EMPTY_PACK,
        }
    ],
}

_PROGRESS = ".status.updateProgress"

DEFINITIONS = (
    Definition(
        PodCliqueSet,
        "pcs",
        (
            Column("Replicas", ".spec.replicas"),
            Column("Available", ".status.availableReplicas"),
            Column("Updated", ".status.updatedReplicas"),
            Column("PCLQs-Updated", f"{_PROGRESS}.updatedPodCliquesCount"),
            Column("PCLQs-Total", f"{_PROGRESS}.totalPodCliquesCount"),
            Column("PCSGs-Updated", f"{_PROGRESS}.updatedPodCliqueScalingGroupsCount"),
            Column("PCSGs-Total", f"{_PROGRESS}.totalPodCliqueScalingGroupsCount"),
            # Of the first gang that does not run: why it has no place.
            Column(
                "Reason",
                '.status.podGangStatuses[?(@.phase!="Running")].conditions[?(@.type=="Scheduled")].reason',
                "string",
            ),
            AGE,
        ),
        scale_selector=".status.hpaPodSelector",
        rules=SET_RULES,
    ),
    Definition(
        PodClique,
        "pclq",
        (
            Column("MinAvail", ".spec.minAvailable"),
            Column("Replicas", ".spec.replicas"),
            Column("Ready", ".status.readyReplicas"),
            Column("Scheduled", ".status.scheduledReplicas"),
            Column("Updated", ".status.updatedReplicas"),
            Column("Gated", ".status.scheduleGatedReplicas", wide=True),
            BREACHED,
            AGE,
        ),
        scale_selector=".status.hpaPodSelector",
    ),
    Definition(
        PodCliqueScalingGroup,
        "pcsg",
        (
            Column("MinAvail", ".spec.minAvailable"),
            Column("Replicas", ".spec.replicas"),
            Column("Available", ".status.availableReplicas"),
            Column("Scheduled", ".status.scheduledReplicas"),
            Column("Updated", ".status.updatedReplicas"),
            Column("PCLQs-Updated", f"{_PROGRESS}.updatedPodCliquesCount"),
            Column("PCLQs-Total", f"{_PROGRESS}.totalPodCliquesCount"),
            BREACHED,
            AGE,
        ),
        scale_selector=".status.selector",
    ),
    Definition(ClusterTopologyBinding, "ct", (Column("Domains", ".spec.levels[*].domain", "string"), AGE)),
    Definition(
        PodGang,
        "pg",
        (
            Column("Phase", ".status.phase", "string"),
            Column("Reason", f"{_SCHEDULED}.reason", "string"),
            Column("Score", ".status.placementScore", "number"),
            AGE,
            # Where it is placed, or why it is not.
            Column("Place", f"{_SCHEDULED}.message", "string"),
        ),
    ),
)

_TRANSLATED = Column("Translated", '.status.conditions[?(@.type=="Translated")].status', "string", wide=True)
_MINIMUM_RULE = {
    "rule": "self.replicas in [0, oldSelf.replicas] || !has(self.minAvailable) || self.minAvailable <= self.replicas",
    "fieldPath": ".minAvailable",
    "message": "minAvailable must not be greater than replicas",
}
"""For clients that scale the object, because no webhook sees that. Admission reports all other faults at once."""

DIALECTS = (
    Definition(
        PodGangSet,
        "",
        (
            Column("MinAvail", ".spec.minAvailable"),
            Column("Replicas", ".spec.replicas"),
            Column("Ready", ".status.readyReplicas"),
            Column("Scheduled", ".status.scheduledReplicas"),
            Column("Updated", ".status.updatedReplicas"),
            Column("Phase", ".status.phase", "string"),
            Column("Gated", ".status.gatedReplicas", wide=True),
            BREACHED,
            _TRANSLATED,
            AGE,
        ),
        scale_selector=".status.selector",
        rules={PodGangSetSpec: [_MINIMUM_RULE]},
    ),
    Definition(
        PlacementPodClique,
        "",
        (
            Column("Applied", '.status.conditions[?(@.type=="Applied")].status', "string"),
            Column("Pods", ".status.matchedPods"),
            Column("Satisfied", ".status.satisfiedPods"),
            Column("PodGangSets", ".status.matchedPodGangSets[*].name", "string", wide=True),
            AGE,
        ),
    ),
    Definition(
        KoordPodCliqueSet,
        "",
        (
            Column("Replicas", ".spec.replicas"),
            Column("Available", ".status.availableReplicas"),
            Column("Updated", ".status.updatedReplicas"),
            Column("Ready", '.status.conditions[?(@.type=="Ready")].status', "string"),
            _TRANSLATED,
            AGE,
        ),
        scale_selector=".status.selector",
    ),
)
"""Other ways to write a workload, installed only where they are switched on."""
