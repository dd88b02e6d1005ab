"""What every Kubernetes object has: a resource (where it lives), metadata, owner references, conditions.

Structs are frozen views. They decode the fields that Grove reads and drop the rest. So they are for reading and
deciding, never for writing an object back. Writes are plain JSON from the package that owns it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias, TypeVar, dataclass_transform, get_args

import msgspec

Json: TypeAlias = dict[str, Any]


def doc(text: str, *, required: bool = False, **facts: Any) -> msgspec.Meta:
    """The description of a field in the CRD, and facts of its schema (`default`, `enum` …, in Python's spelling).

    The facts never take part in decoding. The API server enforces them; a Struct must decode whatever is stored.
    """
    return msgspec.Meta(description=text, extra_json_schema=facts, extra={"required": required})


def is_required(annotation: Any) -> bool:
    """True if an annotated field must be written even when it has its default value."""
    return any(
        isinstance(part, msgspec.Meta) and (part.extra or {}).get("required", False) for part in get_args(annotation)
    )


Int64: TypeAlias = Annotated[int, msgspec.Meta(extra_json_schema={"format": "int64"})]
"""Whole numbers are int32 in the schema unless they say so."""


class Resource(NamedTuple):
    """Where a kind lives on the API server."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def manifest(self, metadata: Json, **content: Any) -> Json:
        """An object of this kind as it is created."""
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata, **content}

    @property
    def base_path(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The URL path of a collection, an object or its subresource; no namespace means all of them."""
        parts = [self.base_path]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Key(NamedTuple):
    """Names an object of a known kind; the namespace of a cluster-scoped object is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A frozen value on the wire: snake_case here, camelCase there, absent fields stay absent.

    `gc=False` keeps 100,000 cached pods out of the garbage collector's sight; JSON trees have no cycles.
    """


class OwnerReference(Struct):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Struct):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def is_deleting(self) -> bool:
        return self.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that manages this object, if any."""
        for ref in self.owner_references:  # not a generator: every event asks this
            if ref.controller:
                return ref
        return None


class Condition(Struct):
    type: Annotated[
        str,
        doc(
            "What is being said.",
            required=True,
            maxLength=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    ]
    status: Annotated[str, doc("Whether it holds.", required=True, enum=["True", "False", "Unknown"])]
    reason: Annotated[
        str,
        doc(
            "Why, as one word for programs.",
            required=True,
            minLength=1,
            maxLength=1024,
            pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
    ] = ""
    message: Annotated[str, doc("Why, in words for people.", required=True, maxLength=32768)] = ""
    last_transition_time: Annotated[datetime | None, doc("When status last changed.", required=True)] = None
    observed_generation: Annotated[Int64 | None, doc("Generation it was said about.", minimum=0)] = None


Conditions: TypeAlias = tuple[Condition, ...]


class Object(Struct):
    """A kind: its class says where it lives (`RESOURCE`), its instances are what was read."""

    RESOURCE: ClassVar[Resource]

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> Key:
        return self.metadata.key


T = TypeVar("T", bound=Object)


def find_condition(conditions: Conditions, type_: str) -> Condition | None:
    for condition in conditions:  # not a generator: this is asked of every pod, again and again
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: Conditions, type_: str) -> bool:
    for condition in conditions:  # as `find_condition` does, without a call: this too is asked of every pod
        if condition.type == type_:
            return condition.status == "True"
    return False


def rfc3339(moment: datetime) -> str:
    """A time as the API server writes it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
