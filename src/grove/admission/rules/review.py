"""The rules put together: an AdmissionReview in, an AdmissionReview out, nothing else touched.

`Admission.needs` says what a review will look up, `Admission.review` answers once that is known. The server fetches in
between; a simulator hands in its store. An exception out of `review` is a bug of ours, never the user's doing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from grove.admission.rules import dialects
from grove.admission.rules.authorizer import Authorizer
from grove.admission.rules.autoscaling import autoscaling_faults, autoscaling_notes, metric_questions
from grove.admission.rules.backend import backend_faults, schedulers_of, volcano_queues
from grove.admission.rules.defaulting import json_patch, missing_defaults
from grove.admission.rules.feasibility import NodeSummary, feasibility_warnings
from grove.admission.rules.lookups import Known, LookupFailed, Needs
from grove.admission.rules.podspec import pod_spec_faults
from grove.admission.rules.references import listed_kinds, reference_warnings
from grove.admission.rules.request import TOO_DEEP, Answer, BadReview, Request, envelope
from grove.admission.rules.sets import general_faults, notes, replica_notes
from grove.admission.rules.sharing import foreign_template_faults, foreign_templates, mnnvl_change_faults, mnnvl_faults
from grove.admission.rules.spread import spread_faults, spread_topology
from grove.admission.rules.topology import (
    binding_faults,
    both_spellings_faults,
    deprecation_warnings,
    level_keys,
    levels_of,
    new_pack_domain_faults,
    shape_faults,
    topology_faults,
    topology_warnings,
)
from grove.admission.rules.update import update_faults
from grove.admission.rules.view import SetView
from grove.api.faults import Fault, failure_status
from grove.api.fields import mapping
from grove.api.labels import VOLCANO_SCHEDULER
from grove.api.meta import Json
from grove.api.topology import ClusterTopologyBinding
from grove.backends import Backends
from grove.backends.kube import KubeBackend
from grove.crds.check import published_check
from grove.dialects.placement import rule_faults
from grove.dialects.translation import Translation

DEFAULT_SET = "/webhooks/default-podcliqueset"
VALIDATE_SET = "/webhooks/validate-podcliqueset"
VALIDATE_BINDING = "/webhooks/validate-clustertopology"
VALIDATE_DIALECT = "/webhooks/validate-dialect"
AUTHORIZE = "/webhooks/authorizer-webhook"

MOST_WARNINGS = 20


@dataclass(frozen=True, slots=True)
class Admission:
    """Grove's rules with the operator's configuration. Without an authorizer its path allows everything."""

    backends: Backends = field(default_factory=lambda: Backends([KubeBackend()], KubeBackend.name))
    topology_enabled: bool = False
    mnnvl_enabled: bool = False
    authorizer: Authorizer | None = None
    dialects: bool = False
    """Whether objects of the dialects are checked, with the sets behind them."""
    nodes: Callable[[], NodeSummary | None] = lambda: None
    """The cached node summary, or None while nothing is known."""

    def needs(self, path: str, review: Any) -> Needs:
        """The objects and names that `review` looks up for this request."""
        request = Request.of(review)
        if path == AUTHORIZE and self.authorizer is not None:
            owner = self.authorizer.owner_to_look_up(request.raw)
            return Needs(sets=frozenset({owner} if owner else ()))
        if request.operation not in ("CREATE", "UPDATE"):
            return Needs()
        if path == VALIDATE_DIALECT:
            translation = dialects.translated(request.new)
            if translation is None:
                return Needs()
            behind = frozenset({dialects.set_key(request.new, translation, request.namespace)})
            needs = self._set_needs(SetView(translation.manifest), request)
            spread = {ClusterTopologyBinding.RESOURCE.kind} if dialects.asks_for_spread(request.new) else set()
            return replace(needs, sets=behind, lists=needs.lists | spread)
        try:
            judged = path == VALIDATE_SET and not request.is_untouched and not request.wrong_set
        except RecursionError:
            judged = False  # `review` says so
        return self._set_needs(request.set, request) if judged else Needs()

    def _set_needs(self, new: SetView, request: Request) -> Needs:
        names = {constraint.topology_name for constraint in new.constraints} | {
            spread.topology_name for spread in new.spreads
        }
        chosen = schedulers_of(new, self.backends)
        queues = volcano_queues(new) if chosen == {VOLCANO_SCHEDULER} else set()
        lists = set().union(*(listed_kinds(new, name) for name in chosen))
        return Needs(
            topologies=frozenset(names - {""} if self.topology_enabled else ()),
            queues=frozenset(queues),
            lists=frozenset(lists),
            metrics=metric_questions(new),
            templates=frozenset(foreign_templates(new, request.namespace).values()),
            user=mapping(request.raw.get("userInfo")),
        )

    def review(self, path: str, review: Any, lookups: Known) -> Json:
        """The answering AdmissionReview; raises `BadReview` when the body is none."""
        request = Request.of(review)
        try:
            answer = self.answer(path, request, lookups)
        except RecursionError:
            answer = request.refused([TOO_DEEP])
        return envelope(request.uid, answer)

    def answer(self, path: str, request: Request, lookups: Known) -> Answer:
        if path == DEFAULT_SET:
            return self._default(request)
        if path == VALIDATE_SET:
            return self._validate_set(request, lookups)
        if path == VALIDATE_BINDING:
            return self._validate_binding(request)
        if path == VALIDATE_DIALECT:
            return self._validate_dialect(request, lookups)
        if path == AUTHORIZE:
            return self._authorize(request, lookups)
        raise BadReview(f"no webhook at {path}")

    def _default(self, request: Request) -> Answer:
        if request.operation not in ("CREATE", "UPDATE") or request.is_deleting:
            return Answer()
        if request.operation == "CREATE":
            # Reported here because the CRD's own rule runs next, before validation, and cannot name the clique.
            faults = list(new_pack_domain_faults(request.set))
            if faults:
                faults = [*both_spellings_faults(request.set), *faults]
                return request.refused(faults, "PodCliqueSet")
        additions = missing_defaults(request.new, request.old, request.namespace)
        return Answer(patch=tuple(json_patch(additions)))

    def _validate_set(self, request: Request, lookups: Known) -> Answer:
        if request.operation not in ("CREATE", "UPDATE"):
            return Answer()
        if request.is_untouched:
            # A finalizer must come off, and our own bookkeeping must pass, whatever an older version once let in.
            return Answer(warnings=tuple(deprecation_warnings(request.set)))
        if request.wrong_set:
            return request.refused(request.wrong_set, "PodCliqueSet")
        new, old = request.set, request.stored_set
        faults = list(self._set_faults(new, old, request.namespace, lookups))
        if faults and request.keeps_spec:
            # A label must go on whatever older rules let in. Upstream judges the whole set at every edit.
            faults = _new_faults(faults, self._set_faults(old or new, old, request.namespace, lookups))
        if faults:
            return request.refused(faults, "PodCliqueSet")
        kept = replica_notes(new, old) if old is not None else ()
        return Answer(warnings=(*kept, *self._set_warnings(new, old, lookups))[:MOST_WARNINGS])

    def _set_faults(self, new: SetView, old: SetView | None, namespace: str, lookups: Known) -> Iterator[Fault]:
        creating = old is None
        yield from shape_faults(new)
        if creating:  # what is shared cannot change later
            yield from foreign_template_faults(new, namespace, lookups)
            yield from new_pack_domain_faults(new)
            yield from topology_faults(new, enabled=self.topology_enabled, lookups=lookups)
        if old is None or new.spreads != old.spreads:  # it may change: it moves nothing that runs
            yield from spread_faults(new, enabled=self.topology_enabled, lookups=lookups)
        yield from general_faults(new, old)
        yield from autoscaling_faults(new)
        stored = {clique.name: clique.pod_spec for clique in old.cliques} if old else {}
        for clique in new.cliques:
            yield from pod_spec_faults(f"{clique.path}.spec.podSpec", clique.pod_spec, stored.get(clique.name))
        if old is None:
            yield from mnnvl_faults(new, enabled=self.mnnvl_enabled)
        else:
            yield from mnnvl_change_faults(new, old)
        yield from backend_faults(new, old, self.backends, lookups)
        if old is not None:
            # Upstream reports these only when nothing else is wrong; one answer with all of them saves a round.
            yield from update_faults(new, old, topology_enabled=self.topology_enabled, lookups=lookups)

    def _set_warnings(self, new: SetView, old: SetView | None, lookups: Known) -> Iterator[str]:
        if old is not None:
            yield from deprecation_warnings(new)
        yield from notes(new, old)
        yield from autoscaling_notes(new, lookups)
        if old is not None and new.spreads == old.spreads:  # the topology may have changed since it was admitted
            yield from map(str, spread_faults(new, enabled=self.topology_enabled, lookups=lookups))
        binding: Json | None = None
        if self.topology_enabled and (new.constraints or new.spreads):
            try:
                binding = lookups.find_topology(spread_topology(new))
            except LookupFailed:
                binding = None  # a warning less; the rules have answered without it
        if binding is not None and old is None:
            yield from topology_warnings(new, levels_of(binding))
        for name in sorted(schedulers_of(new, self.backends)):
            yield from reference_warnings(new, name, lookups)
        yield from feasibility_warnings(new, self.nodes(), level_keys(binding) if binding else None)

    def _validate_binding(self, request: Request) -> Answer:
        if request.operation not in ("CREATE", "UPDATE") or request.is_deleting:
            return Answer()
        if request.old is not None and request.new.get("spec") == request.old.get("spec"):
            return Answer()  # all rules are about its spec, and what older ones let in must take a label
        wrong_shape = request.wrong_shape("clustertopologybindings.grove.io", request.old)
        faults = wrong_shape or list(binding_faults(request.new, self.backends))
        return request.refused(faults, "ClusterTopologyBinding") if faults else Answer()

    def _validate_dialect(self, request: Request, lookups: Known) -> Answer:
        """An object of a dialect, and the set that would be made from it."""
        resource = dialects.resource_of(request.new)
        if resource is None or request.operation not in ("CREATE", "UPDATE") or request.is_deleting:
            return Answer()
        if request.old is not None and _words(request.new) == _words(request.old):
            return Answer()  # a finalizer, an owner: nothing that is translated
        lookups = dialects.with_topologies(lookups)
        behind = self._behind(request.new, request.namespace, lookups)
        faults = request.wrong_shape(str(resource), request.old) or self._dialect_faults(request.new, behind, lookups)
        if faults and request.old is not None and request.new.get("spec") == request.old.get("spec"):
            before = self._behind(request.old, request.namespace, lookups)
            faults = _new_faults(faults, self._dialect_faults(request.old, before, lookups))
        if faults:
            return request.refused(faults, resource.kind, resource.group)
        if behind is None:
            return Answer()
        warnings = dialects.translated_warnings(behind.translation, self._set_warnings(behind.new, behind.old, lookups))
        return Answer(warnings=(*behind.conflict, *warnings)[:MOST_WARNINGS])

    def _behind(self, obj: Json, namespace: str, lookups: Known) -> _Behind | None:
        translation = dialects.translated(obj, dialects.find_levels(lookups))
        if translation is None:
            return None
        stored: Json | None = None
        conflict: tuple[str, ...] = ()
        try:
            stored = lookups.find_set(dialects.set_key(obj, translation, namespace))
        except LookupFailed:
            pass  # it is checked as a new one; what the stored one cannot take becomes a condition
        if stored is not None and not dialects.is_own(obj, stored):
            conflict = (f"metadata.name: PodCliqueSet {translation.name} exists and is left alone; rename one of them",)
            stored = None
        new = SetView(dialects.set_behind(translation, stored, namespace))
        keeps = stored is not None and not dialects.needs_new_set(obj)
        return _Behind(translation, namespace, new, SetView(stored) if keeps else None, conflict)

    def _dialect_faults(self, obj: Json, behind: _Behind | None, lookups: Known) -> list[Fault]:
        if behind is None:
            return list(rule_faults(obj))
        of_set = published_check("podcliquesets.grove.io").faults(behind.new.raw) or list(
            self._set_faults(behind.new, behind.old, behind.namespace, lookups)
        )
        return list(dialects.in_source_words(behind.translation, of_set))

    def _authorize(self, request: Request, lookups: Known) -> Answer:
        if self.authorizer is None:
            return Answer()
        verdict = self.authorizer.authorize(request.raw, lookups)
        warnings = (verdict.warning,) if verdict.warning else ()
        if verdict.allowed:
            return Answer(warnings=warnings)
        reasons = {400: "BadRequest", 403: "Forbidden"}
        reason = reasons.get(verdict.code, "InternalError")
        return Answer(failure_status(verdict.code, reason, verdict.reason), warnings=warnings)


class _Behind(NamedTuple):
    """The set that an object of a dialect becomes, and what there is of it."""

    translation: Translation
    namespace: str
    new: SetView
    old: SetView | None
    conflict: tuple[str, ...]


def _new_faults(faults: list[Fault], stored: Iterable[Fault]) -> list[Fault]:
    """Those that are not also faults of what is stored."""
    known = {str(fault) for fault in stored}
    return [fault for fault in faults if str(fault) not in known]


def _words(obj: Json) -> tuple[Any, ...]:
    """The parts of an object that a person writes: spec, labels and annotations."""
    metadata = mapping(obj.get("metadata"))
    return (obj.get("spec"), metadata.get("labels"), metadata.get("annotations"))
