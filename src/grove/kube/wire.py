"""Between bytes and Structs: cached decoders for objects, lists and watches of a kind, typed errors from a Status.

If an object does not decode, it is left out with an error in the log. The API server validated it, so this is a fault
of ours. A controller that stops for all objects would be worse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec
import structlog

from grove.api.meta import Json, Object, Resource
from grove.kube import errors
from grove.kube.client import Page, WatchEvent

T = TypeVar("T")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_CHANGES = ("ADDED", "MODIFIED", "DELETED")

log = structlog.get_logger(__name__)


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _ListOf(msgspec.Struct, Generic[T]):
    items: list[T] | None = None  # Go writes an empty slice as null here and there
    metadata: _ListMeta = _ListMeta()


class _Change(msgspec.Struct, Generic[T]):
    type: str
    object: T


class _Mark(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Marked(msgspec.Struct):
    metadata: _Mark = msgspec.field(default_factory=_Mark)


class _NamedMeta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Named(msgspec.Struct):
    metadata: _NamedMeta = msgspec.field(default_factory=_NamedMeta)


encode = msgspec.json.Encoder().encode
_raw_change = msgspec.json.Decoder(_Change[msgspec.Raw])
_raw_list = msgspec.json.Decoder(_ListOf[msgspec.Raw])
_marked = msgspec.json.Decoder(_Marked)
_named = msgspec.json.Decoder(_Named)
_json = msgspec.json.Decoder()


def resource_of(kind: type[Any] | Resource) -> Resource:
    if isinstance(kind, Resource):
        return kind
    resource: Resource = kind.RESOURCE
    return resource


def path_part(what: str, value: str) -> str:
    """A name or a namespace as one part of a path. The API server decodes a path before it cuts it, so no quoting makes
    these one part; client-go does not send them either."""
    if "/" in value or "%" in value or value in (".", ".."):
        raise errors.BadRequest(f'{what} "{value}" cannot be part of a path', code=400, reason="BadRequest")
    return quote(value, safe="")


class Codec(Generic[T]):
    """The decoders of one kind; `codec_of` keeps them, since making one costs as much as a hundred decodes."""

    def __init__(self, kind: type[T]) -> None:
        self._object = msgspec.json.Decoder(kind)
        self._list = msgspec.json.Decoder(_ListOf[kind])  # type: ignore[valid-type]
        self._change = msgspec.json.Decoder(_Change[kind])  # type: ignore[valid-type]

    def object(self, body: bytes | msgspec.Raw) -> T:
        try:
            return self._object.decode(body)
        except msgspec.ValidationError:
            # Go writes an empty slice or map as null. That means "not there", which the second try reads.
            return msgspec.convert(_without_nulls(_json.decode(body)), self._object.type)

    def page(self, body: bytes) -> Page[T]:
        try:
            listed = self._list.decode(body)
        except msgspec.ValidationError:
            raw = _raw_list.decode(body)
            kept = [item for item in (self._lenient(item) for item in raw.items or ()) if item is not None]
            return Page(kept, raw.metadata.resource_version, raw.metadata.continue_)
        return Page(listed.items or [], listed.metadata.resource_version, listed.metadata.continue_)

    def event(self, line: bytes) -> WatchEvent[T] | None:
        """The event on a watch line; None for one that must be left out. Raises the typed error of an ERROR event."""
        # The API server always writes the type first. Anything unusual takes the slow way below, which assumes nothing.
        if not line.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"')):
            try:
                change = self._change.decode(line)
            except msgspec.ValidationError:
                pass
            else:
                if change.type in _CHANGES:
                    version = _version_of(change.object)
                    return WatchEvent(change.type, change.object, version)  # type: ignore[arg-type]
        return self._unusual(line)

    def _unusual(self, line: bytes) -> WatchEvent[T] | None:
        raw = _raw_change.decode(line)
        if raw.type == "BOOKMARK":
            mark = _marked.decode(raw.object).metadata
            done = (mark.annotations or {}).get(INITIAL_EVENTS_END) == "true"
            return WatchEvent("BOOKMARK", None, mark.resource_version, done)
        if raw.type == "ERROR":
            status = _json.decode(raw.object)
            raise errors.from_status(int(status.get("code") or 500), status)
        if raw.type in _CHANGES:
            obj = self._lenient(raw.object)
            if obj is not None:
                return WatchEvent(raw.type, obj, _version_of(obj))  # type: ignore[arg-type]
            return None
        log.warning("unknown watch event left out", type=raw.type)
        return None

    def _lenient(self, raw: msgspec.Raw) -> T | None:
        try:
            return self.object(raw)
        except msgspec.ValidationError as err:
            meta = _named.decode(raw).metadata
            log.error(
                "object does not decode, left out",
                kind=getattr(self._object.type, "__name__", "?"),
                namespace=meta.namespace,
                name=meta.name,
                error=str(err),
            )
            return None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _version_of(obj: Any) -> str:
    if isinstance(obj, Object):
        return obj.metadata.resource_version
    version: str = obj.get("metadata", {}).get("resourceVersion", "")
    return version


_codecs: dict[type[Any], Codec[Any]] = {}
_JSON_CODEC: Codec[Json] = Codec(dict[str, Any])


def codec_of(kind: type[Any] | Resource) -> Codec[Any]:
    """The codec of a Struct class; of a bare `Resource`, one that gives whole JSON objects."""
    if isinstance(kind, Resource):
        return _JSON_CODEC
    codec = _codecs.get(kind)
    if codec is None:
        codec = _codecs[kind] = Codec(kind)
    return codec


class LineSplitter:
    """Cuts a byte stream into lines; what follows the last newline is kept for the next chunk.

    An HTTP library's own line reader has a length limit. Parts of a long line are joined once, when it ends: a 1 MB
    object in 64 kB chunks costs one copy, not sixteen.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        lines = chunk.split(b"\n")
        if len(lines) == 1:
            if chunk:
                self._parts.append(chunk)
            return []
        if self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts.clear()
        rest = lines.pop()
        if rest:
            self._parts.append(rest)
        return [line for line in lines if line]


class EventReader(Generic[T]):
    """Decodes a watch's chunks into events. A line that is cut off was never one: the resumed watch brings it again."""

    def __init__(self, codec: Codec[T]) -> None:
        self._codec, self._splitter = codec, LineSplitter()

    def feed(self, chunk: bytes) -> Iterator[WatchEvent[T]]:
        decode = self._codec.event
        for line in self._splitter.feed(chunk):
            event = decode(line)
            if event is not None:
                yield event


def error_of(code: int, body: bytes, retry_after: str | None) -> errors.ApiError:
    """The typed error in an answer's body; a proxy's HTML page becomes a short message, not a traceback."""
    retry_after_s = float(retry_after) if retry_after and retry_after.isdecimal() else None
    try:
        status = _json.decode(body)
        if not isinstance(status, dict):
            raise msgspec.DecodeError("not a Status")
    except (msgspec.DecodeError, UnicodeDecodeError):
        start = " ".join(body[:200].decode(errors="replace").split())
        status = {"message": f"HTTP {code}{': ' + start if start else ''}"}
    if retry_after_s is None:
        details = status.get("details")
        seconds = details.get("retryAfterSeconds") if isinstance(details, dict) else None
        retry_after_s = float(seconds) if isinstance(seconds, int) else None
    return errors.from_status(code, status, retry_after_s)
