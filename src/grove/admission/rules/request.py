"""An AdmissionReview on its way in and out: what was asked, decoded once, and the answer in the wire's form."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.admission.rules.view import SetView
from grove.api.faults import Fault, invalid, invalid_status, required
from grove.api.fields import mapping, text
from grove.api.meta import Json
from grove.crds.check import published_check

GROUP = "grove.io"
TOO_DEEP = invalid("spec", "…", "the object is nested too deeply")


class BadReview(ValueError):
    """The body is not an AdmissionReview, so it has no uid that an answer could name."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: Json | None = None
    """A failure Status; None allows the request."""
    patch: tuple[Json, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        return self.status is None


@dataclass(frozen=True)
class Request:
    """The part of an AdmissionRequest that rules read, decoded once: who looks again gets the same."""

    uid: str
    operation: str
    namespace: str
    new: Json
    old: Json | None
    raw: Json

    @classmethod
    def of(cls, review: Any) -> Request:
        if isinstance(review, Request):
            return review
        raw = mapping(review).get("request")
        if not isinstance(raw, dict) or not text(raw.get("uid")):
            raise BadReview("not an AdmissionReview with a request and its uid")
        old = raw.get("oldObject")
        return cls(
            uid=text(raw.get("uid")),
            operation=text(raw.get("operation")),
            namespace=text(raw.get("namespace")),
            new=mapping(raw.get("object")),
            old=old if isinstance(old, dict) else None,
            raw=raw,
        )

    def wrong_shape(self, crd: str, stored: Json | None = None) -> list[Fault]:
        """The faults that the CRD's schema finds in new values. An older schema may have allowed the stored ones.

        If there is a fault, admission runs no rules: rules rely on the types of the schema.
        """
        check = published_check(crd)
        try:
            # In two steps: hardly any object has a fault, and to look each value up in what is stored takes its time.
            return check.faults(self.new) and check.faults(self.new, stored)
        except RecursionError:
            return [TOO_DEEP]

    @cached_property
    def wrong_set(self) -> list[Fault]:
        if not self.new:
            return [required("spec")]
        return self.wrong_shape("podcliquesets.grove.io", self.stored_set.raw if self.stored_set else None)

    @cached_property
    def set(self) -> SetView:
        return SetView(self.new)

    @cached_property
    def stored_set(self) -> SetView | None:
        """The stored set with the defaults filled in, if the new set has them.

        A set may have been stored while no admission webhook was there. Without this, the defaults that the webhook
        adds would look like changes of fields that cannot change, and every update would be refused.
        """
        if self.operation != "UPDATE" or self.old is None:
            return None
        if missing_defaults(self.new, self.old, self.namespace):
            return SetView(self.old)
        return SetView(with_additions(self.old, missing_defaults(self.old, namespace=self.namespace)))

    @property
    def is_deleting(self) -> bool:
        return bool(mapping(self.new.get("metadata")).get("deletionTimestamp"))

    @cached_property
    def is_untouched(self) -> bool:
        """Spec, labels and annotations are what is stored, or it is going: only finalizers or owners changed."""
        new, old = self.set, self.stored_set
        if old is None:
            return False
        return self.is_deleting or (self.keeps_spec and new.labels == old.labels and new.annotations == old.annotations)

    @cached_property
    def keeps_spec(self) -> bool:
        """The spec of the set is what is stored."""
        return self.stored_set is not None and self.set.spec == self.stored_set.spec

    @property
    def kind(self) -> str:
        return text(mapping(self.raw.get("kind")).get("kind")) or "PodCliqueSet"

    @property
    def name(self) -> str:
        metadata = mapping(self.new.get("metadata"))
        return text(metadata.get("name")) or text(self.raw.get("name")) or text(metadata.get("generateName"))

    def refused(self, faults: list[Fault], kind: str = "", group: str = GROUP) -> Answer:
        return Answer(invalid_status(kind or self.kind, group, self.name, faults))


def envelope(uid: str, answer: Answer) -> Json:
    response: Json = {"uid": uid, "allowed": answer.allowed}
    if answer.status is not None:
        response["status"] = answer.status
    if answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(answer.patch)).decode()
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
