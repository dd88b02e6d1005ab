"""Who may change objects that Grove manages.

The operator and the users that the configuration exempts may change them. Everybody may make changes that have no
effect on running work.

Pure: the request and the owning PodCliqueSet in, an answer out. The webhook configuration selects objects with the
label of Grove. It never matches `/scale` and `/status`; this module would allow both.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from grove.admission.rules.lookups import Known, LookupFailed
from grove.api.fields import mapping, text
from grove.api.labels import DELETION_COST, DISABLE_PROTECTION, MOVE_TO, PART_OF, POD_DELETION_COST, RESTART_REQUESTED
from grove.api.meta import Json, Key
from grove.api.podgang import PodGang

EXEMPT_BY_DEFAULT = (
    # Kubernetes' own hands: garbage collection, namespace deletion, tokens, autoscalers.
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
    "system:kube-controller-manager",
    "system:apiserver",
    # KAI's podgrouper and binder write annotations of pods that Grove owns.
    "system:serviceaccount:kai-scheduler:pod-grouper",
    "system:serviceaccount:kai-scheduler:binder",
    # These schedulers write which devices they gave to a pod into its annotations.
    "system:serviceaccount:koordinator-system:koord-scheduler",
    "system:serviceaccount:volcano-system:volcano-scheduler",
)


def exempt_users(operator_namespace: str, configured: Collection[str] = ()) -> frozenset[str]:
    """Default exemptions, our own scheduler's account beside the operator, and what the configuration adds."""
    return frozenset({*EXEMPT_BY_DEFAULT, f"system:serviceaccount:{operator_namespace}:grove-scheduler", *configured})


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    reason: str = ""
    warning: str = ""
    code: int = 0
    """HTTP code of a refusal: 403 for "not you", 400 and 500 for a request that could not be judged."""


@dataclass(frozen=True, slots=True)
class Authorizer:
    """`operator_users` are the full user names of the operator's own accounts."""

    operator_users: frozenset[str]
    exempt: frozenset[str]

    def owner_to_look_up(self, request: Json) -> Key | None:
        """The PodCliqueSet that decides about this request; None when it can be answered without."""
        if self._passes_at_once(request):
            return None
        obj = _judged(request)
        name = _owner_name(obj) if obj else ""
        return Key(_namespace(request, obj or {}), name) if name else None

    def authorize(self, request: Json, lookups: Known) -> Verdict:
        # Trusted users come before any read of the owner. Upstream reads the set even for its own writes, and refuses
        # them when it cannot.
        if self._passes_at_once(request):
            return Verdict(True)
        operation = text(request.get("operation"))
        if operation not in ("CREATE", "UPDATE", "DELETE"):
            return Verdict(False, f"operation {operation!r} is not supported on managed resources", code=500)
        obj = _judged(request)
        if obj is None:
            return Verdict(False, "the object of the request could not be decoded", code=400)
        what = f"{text(mapping(request.get('kind')).get('kind'))} {text(request.get('name'))}".strip()
        owner = _owner_name(obj)
        if not owner:
            return Verdict(True, warning=f"{what}: label {PART_OF} is missing, the object is not protected")
        key = Key(_namespace(request, obj), owner)
        try:
            pcs = lookups.find_set(key)
        except LookupFailed as error:
            return Verdict(False, f"PodCliqueSet {key} could not be read: {error}", code=500)
        if pcs is None:
            return Verdict(True, warning=f"{what}: PodCliqueSet {key} does not exist, the object is not protected")
        if mapping(mapping(pcs.get("metadata")).get("annotations")).get(DISABLE_PROTECTION) == "true":
            return Verdict(True)
        user = text(mapping(request.get("userInfo")).get("username"))
        hint = (
            f'{operation.lower()} of {what} is denied for user "{user}": it is managed by Grove. '
            f'Change PodCliqueSet {key}, or set its annotation {DISABLE_PROTECTION} to "true"'
        )
        return Verdict(False, hint, code=403)

    def _passes_at_once(self, request: Json) -> bool:
        operation = text(request.get("operation"))
        if operation == "CONNECT" or request.get("subResource"):
            return True
        if operation not in ("CREATE", "UPDATE", "DELETE"):
            return False
        user = text(mapping(request.get("userInfo")).get("username"))
        if user and (user in self.operator_users or user in self.exempt):
            return True
        kind = mapping(request.get("kind"))
        is_pod = kind.get("kind") == "Pod" and not kind.get("group")
        if is_pod and operation == "DELETE":
            return True
        is_gang = kind.get("kind") == PodGang.RESOURCE.kind and kind.get("group") == PodGang.RESOURCE.group
        return (is_pod or is_gang) and operation == "UPDATE" and _is_only_asked(request)


OPEN_ANNOTATIONS = frozenset({DELETION_COST, POD_DELETION_COST, RESTART_REQUESTED, MOVE_TO})
"""Annotations of pods and PodGangs by which engines and people ask the operator or the scheduler for something."""


def _is_only_asked(request: Json) -> bool:
    """True if an update changes only the annotations that users may write on managed objects."""
    before, after = mapping(request.get("oldObject")), mapping(request.get("object"))
    return before != after and _without_asking(before) == _without_asking(after)


def _without_asking(pod: Json) -> Json:
    """The pod without what the update may change, and without what the API server notes about every update."""
    metadata = mapping(pod.get("metadata"))
    kept = {key: value for key, value in metadata.items() if key not in ("managedFields", "resourceVersion")}
    annotations = mapping(metadata.get("annotations"))
    kept["annotations"] = {key: value for key, value in annotations.items() if key not in OPEN_ANNOTATIONS}
    return {**pod, "metadata": kept}


def _judged(request: Json) -> Json | None:
    """The stored object of an update or a deletion, so that a label cannot be stripped to escape; else the new one."""
    field = "object" if request.get("operation") == "CREATE" else "oldObject"
    obj = request.get(field)
    return obj if isinstance(obj, dict) and isinstance(obj.get("metadata"), dict) else None


def _owner_name(obj: Json) -> str:
    return text(mapping(mapping(obj.get("metadata")).get("labels")).get(PART_OF))


def _namespace(request: Json, obj: Json) -> str:
    return text(request.get("namespace")) or text(mapping(obj.get("metadata")).get("namespace"))
