"""The rows of a controller's table: which keys an event adds, and how."""

from __future__ import annotations

import pytest
from tests.support import objects

from grove.api.core import Pod
from grove.api.meta import Key
from grove.kube.wakes import Wake, always, changed, each, forgetting, is_gone, latest, never, own_key


def labelled_pod(name: str = "p", **labels: str) -> Pod:
    return objects.pod(name, uid=f"uid-{name}", labels=labels)


def of(one: Pod) -> Key | None:
    name = one.metadata.labels.get("of")
    return Key("ns", name) if name else None


def differ(old: Pod, new: Pod) -> bool:
    return old.metadata.labels != new.metadata.labels


ROWS = [
    pytest.param(always, own_key, None, labelled_pod(), ["p"], id="an object that comes adds its key"),
    pytest.param(always, own_key, labelled_pod(), None, [], id="an object that is gone needs no look"),
    pytest.param(never, own_key, None, labelled_pod(), [], id="the predicate refuses"),
    pytest.param(is_gone, each(of), labelled_pod(of="a"), None, ["a"], id="gone: mapped as it was"),
    pytest.param(is_gone, each(of), labelled_pod(of="a"), labelled_pod(of="a"), [], id="still there"),
    pytest.param(always, each(of), labelled_pod(of="a"), labelled_pod(of="b"), ["a", "b"], id="moved: both owners"),
    pytest.param(always, each(of), labelled_pod(of="a"), labelled_pod(of="a"), ["a"], id="each key once"),
    pytest.param(always, each(of), labelled_pod(of="a"), labelled_pod(), ["a"], id="its label was removed"),
    pytest.param(
        always, latest(lambda one: [one.key]), labelled_pod("a"), labelled_pod("b"), ["b"], id="the latest alone"
    ),
    pytest.param(changed(lambda a, b: True), own_key, None, labelled_pod(), [], id="an arrival is no change"),
    pytest.param(changed(differ), own_key, labelled_pod(), labelled_pod(x="y"), ["p"], id="an edit"),
]


@pytest.mark.parametrize(("when", "keys", "old", "new", "expected"), ROWS)
def test_row(when: object, keys: object, old: Pod | None, new: Pod | None, expected: list[str]) -> None:
    added: list[Key] = []
    Wake(Pod, keys, added.append, when)(old, new)  # type: ignore[arg-type]
    assert [key.name for key in added] == expected


def test_an_urgent_change_hurries_instead_of_waiting() -> None:
    added: list[Key] = []
    hurried: list[Key] = []
    row = Wake(Pod, own_key, added.append, hurry=hurried.append, urgent=lambda old, new: old is None)
    row(None, labelled_pod())
    row(labelled_pod(), labelled_pod())
    assert (hurried, added) == ([Key("ns", "p")], [Key("ns", "p")])


def test_what_is_remembered_of_an_object_is_forgotten_when_it_is_gone() -> None:
    forgotten: list[str] = []
    handler = forgetting(forgotten.append)
    handler(None, labelled_pod())
    handler(labelled_pod(), labelled_pod())
    assert forgotten == []
    handler(labelled_pod(), None)
    assert forgotten == ["uid-p"]
