"""Watch lines: cutting a byte stream, decoding events, and the errors a stream can carry."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kube.api import Thing

from grove.api.node import CSINode
from grove.kube import errors
from grove.kube.client import WatchEvent
from grove.kube.wire import EventReader, LineSplitter, codec_of


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        pytest.param([b"a\nb\n"], [b"a", b"b"], id="two lines in a chunk"),
        pytest.param([b"a", b"b\n"], [b"ab"], id="a line in two chunks"),
        pytest.param([b"a", b"", b"b", b"c\nd\ne"], [b"abc", b"d"], id="the last part waits for its end"),
        pytest.param([b"a\n\n\r\n"], [b"a", b"\r"], id="empty lines are nothing"),
        pytest.param([b"abc"], [], id="no newline, no line"),
    ],
)
def test_lines(chunks: list[bytes], lines: list[bytes]) -> None:
    splitter = LineSplitter()
    assert [line for chunk in chunks for line in splitter.feed(chunk)] == lines


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda b: b"\n" not in b)), st.data())
def test_lines_do_not_depend_on_where_the_network_cuts(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    splitter = LineSplitter()
    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += splitter.feed(stream[start:end])
    assert found == lines


def line(type_: str, obj: dict[str, object]) -> bytes:
    return json.dumps({"type": type_, "object": obj}, separators=(",", ":")).encode() + b"\n"


def thing(version: str = "5") -> dict[str, object]:
    return {"kind": "Thing", "metadata": {"name": "a", "namespace": "ns", "resourceVersion": version}}


def read(stream: bytes) -> list[WatchEvent[Thing]]:
    return list(EventReader(codec_of(Thing)).feed(stream))


def test_changes_carry_their_object_and_version() -> None:
    found = read(line("ADDED", thing("5")) + line("MODIFIED", thing("6")) + line("DELETED", thing("7")))
    assert [(e.type, e.resource_version) for e in found] == [("ADDED", "5"), ("MODIFIED", "6"), ("DELETED", "7")]
    assert all(e.object is not None and e.object.key == ("ns", "a") for e in found)


def test_a_bookmark_tells_how_far_the_stream_has_come() -> None:
    meta: dict[str, object] = {"resourceVersion": "9", "creationTimestamp": None}
    done = {**meta, "annotations": {"k8s.io/initial-events-end": "true"}}
    found = read(line("BOOKMARK", {"metadata": meta}) + line("BOOKMARK", {"metadata": done}))
    assert found == [WatchEvent("BOOKMARK", None, "9"), WatchEvent("BOOKMARK", None, "9", initial_done=True)]


def test_fields_in_another_order_decode_the_same() -> None:
    stream = json.dumps({"object": {"metadata": {"resourceVersion": "9"}}, "type": "BOOKMARK"}).encode() + b"\n"
    assert read(stream) == [WatchEvent("BOOKMARK", None, "9")]


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({"code": 410, "reason": "Expired", "message": "too old"}, errors.Gone, id="410 is Gone"),
        pytest.param({"code": 410, "reason": "Gone", "message": "too old"}, errors.Gone, id="by code alone too"),
        pytest.param({"code": 500, "reason": "InternalError"}, errors.Unavailable, id="500 is Unavailable"),
        pytest.param({"code": 429, "reason": "TooManyRequests"}, errors.TooManyRequests, id="429"),
        pytest.param({}, errors.Unavailable, id="an error without a code is the server's"),
    ],
)
def test_an_error_event_is_raised_as_its_own_error(status: dict[str, object], want: type[Exception]) -> None:
    with pytest.raises(want):
        read(line("ERROR", status))


def test_events_before_an_error_are_not_lost() -> None:
    reader = EventReader(codec_of(Thing)).feed(line("ADDED", thing()) + line("ERROR", {"code": 410}))
    assert next(reader).type == "ADDED"
    with pytest.raises(errors.Gone):
        next(reader)


def test_an_object_that_does_not_decode_is_left_out() -> None:
    bad = {"metadata": {"name": "bad"}, "data": {"x": 7}}
    assert [e.type for e in read(line("ADDED", bad) + line("MODIFIED", thing()))] == ["MODIFIED"]


def test_an_unknown_type_is_left_out() -> None:
    assert read(line("SPARKLED", thing())) == []


def test_a_null_where_a_list_is_meant_is_an_empty_list() -> None:
    """A kubelet without storage drivers writes `drivers: null`, which is how Go writes an empty slice."""
    node = b'{"metadata":{"name":"worker"},"spec":{"drivers":null}}'
    codec = codec_of(CSINode)
    assert codec.object(node).spec.drivers == ()
    assert [one.metadata.name for one in codec.page(b'{"metadata":{},"items":[%s]}' % node).items] == ["worker"]
    event = codec.event(b'{"type":"ADDED","object":%s}' % node)
    assert event is not None
    assert event.object.spec.drivers == ()
