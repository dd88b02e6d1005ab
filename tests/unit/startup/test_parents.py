"""Which pods a pod waits for, and when it has waited long enough."""

from datetime import UTC, datetime

import pytest
from tests.support import objects

from grove.operator.shared.startup import waited_for, with_startup_container
from grove.startup.main import _parser, main
from grove.startup.parents import BadArgument, Readiness, counts, parse_parents


def parent_pod(name: str, clique: str, *, ready: bool = True, deleting: bool = False) -> dict:
    body = objects.pod_manifest("ns", name, clique=clique)
    if deleting:
        body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return body | {"status": {"conditions": objects.conditions(Ready=str(ready))}}


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(["web-0-router:2"], {"web-0-router": 2}, id="one parent"),
        pytest.param(["a:1", "b:3"], {"a": 1, "b": 3}, id="two parents"),
        pytest.param(["a:1", "a:3", "a:2"], {"a": 3}, id="named again, the largest minimum counts"),
    ],
)
def test_parents_are_parsed(arguments, want):
    assert parse_parents(arguments) == want


@pytest.mark.parametrize(
    "argument",
    [
        pytest.param("router", id="no minimum"),
        pytest.param(":2", id="no name"),
        pytest.param("router:", id="empty minimum"),
        pytest.param("router:0", id="a minimum of nothing"),
        pytest.param("router:-1", id="a negative minimum"),
        pytest.param("router:two", id="not a number"),
        pytest.param("a:b:2", id="two colons"),
        pytest.param("router:²", id="a digit that is no number"),
    ],
)
def test_a_wrong_argument_is_refused_with_the_argument_in_the_message(argument):
    with pytest.raises(BadArgument, match="want <podclique>"):
        parse_parents([argument])


def test_nothing_to_wait_for_is_refused():
    with pytest.raises(BadArgument, match="nothing to wait for"):
        parse_parents([])


def test_enough_means_every_parent_has_its_minimum_at_the_same_moment():
    readiness = Readiness({"a": 2, "b": 1}, now=lambda: 0.0)
    readiness.saw(parent_pod("a-1", "a"))
    readiness.saw(parent_pod("b-1", "b"))
    assert not readiness.is_enough
    readiness.saw(parent_pod("a-2", "a", ready=False))
    assert not readiness.is_enough
    assert str(readiness) == "a=1/2, b=1/1"
    readiness.saw(parent_pod("a-2", "a"))
    assert readiness.is_enough


@pytest.mark.parametrize(
    "setback",
    [
        pytest.param(lambda r: r.saw(parent_pod("a-1", "a", ready=False)), id="it stopped being ready"),
        pytest.param(lambda r: r.saw(parent_pod("a-1", "a", deleting=True)), id="it is being deleted"),
        pytest.param(lambda r: r.lost(parent_pod("a-1", "a")), id="it is gone"),
        pytest.param(lambda r: r.forget(), id="a fresh list begins"),
    ],
)
def test_a_ready_pod_no_longer_counts_when(setback):
    readiness = Readiness({"a": 1}, now=lambda: 0.0)
    readiness.saw(parent_pod("a-1", "a"))
    assert readiness.is_enough
    setback(readiness)
    assert not readiness.is_enough


def test_a_pod_counts_for_the_clique_its_label_names_not_for_a_prefix_of_its_name():
    readiness = Readiness({"x-0-a": 1}, now=lambda: 0.0)
    readiness.saw(parent_pod("x-0-ab-12345", "x-0-ab"))
    assert not readiness.is_enough


def test_nothing_is_enough_while_an_old_pod_still_answers_at_the_name_of_a_new_one():
    """A leader that starts earlier may connect to the old worker, and loses it seconds later."""
    now = datetime(2026, 1, 1, tzinfo=UTC).timestamp() - 60
    readiness = Readiness({"a": 1}, now=lambda: now)
    old, new, other = (parent_pod(name, "a", deleting=name != "new") for name in ("old", "new", "other"))
    for one, host in ((old, "a-0"), (new, "a-0"), (other, "a-1")):
        one["spec"] = {"hostname": host}
        one["status"]["containerStatuses"] = [{"state": {"running": {}}}]
        readiness.saw(one)
    assert not readiness.is_enough
    assert str(readiness) == "a=1/1, the end of old"

    now += 61
    assert readiness.is_enough, "a pod on a lost node never goes"
    now -= 61
    old["status"]["containerStatuses"] = [{"state": {"terminated": {}}}]
    readiness.saw(old)
    assert readiness.is_enough, "its containers have ended"
    old["status"]["containerStatuses"] = [{"state": {"running": {}}}]
    readiness.saw(old)
    assert not readiness.is_enough
    readiness.lost(old)
    assert readiness.is_enough, "it is gone"


RUNS, CRASHED = {"state": {"running": {}}}, {"state": {"waiting": {}}}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(parent_pod("a-1", "a"), (True, True, True), id="ready"),
        pytest.param(
            {"spec": {"nodeName": "n"}, "status": {"containerStatuses": [RUNS]}}, (False, True, True), id="runs"
        ),
        pytest.param(
            {"spec": {"nodeName": "n"}, "status": {"containerStatuses": [RUNS, CRASHED]}},
            (False, False, True),
            id="one container does not run",
        ),
        pytest.param({"spec": {"nodeName": "n"}}, (False, False, True), id="has a node"),
        pytest.param({"spec": {}}, (False, False, False), id="has no node"),
        pytest.param({"spec": {"nodeName": "n"}, "status": {"phase": "Failed"}}, (False, False, False), id="is over"),
        pytest.param(parent_pod("a-1", "a", deleting=True), (False, False, False), id="is being deleted"),
    ],
)
def test_a_pod_counts_for_the_conditions_that_it_satisfies(found, want):
    assert tuple(counts(found, condition) for condition in ("Ready", "Started", "Created")) == want


@pytest.mark.parametrize(("condition", "argument"), [("Ready", []), ("Started", ["--condition=Started"])])
def test_the_arguments_that_the_operator_writes_are_understood(condition, argument):
    made = with_startup_container({"containers": []}, "web", "image", (("web-0-a", 2),), condition=condition)
    args = made["initContainers"][0]["args"]
    assert args == ["--podcliques=web-0-a:2", *argument]
    parsed = _parser().parse_args(args)
    assert (parse_parents(parsed.podcliques), parsed.condition) == ({"web-0-a": 2}, condition)
    assert list(waited_for(args)) == [("web-0-a", 2)]


def test_a_condition_that_does_not_exist_is_refused(capsys):
    assert main(["--podcliques=web-0-a:2", "--condition=Soon"]) == 1
    assert "invalid choice: 'Soon'" in capsys.readouterr().err


def test_a_pod_starts_only_after_the_whole_list_is_read(tmp_path, monkeypatch):
    """A list is in the order of names. The old pod of a host name may follow the new one, which is Ready."""
    new, old = parent_pod("a-bcdfg", "a"), parent_pod("a-xz2b4", "a", deleting=True)
    old["metadata"]["deletionTimestamp"] = "2999-01-01T00:00:00Z"
    for pod in (new, old):
        pod["spec"] = {"hostname": "a-0"}
        pod["status"]["containerStatuses"] = [RUNS]
    events = [("LIST", None), ("ADDED", new), ("ADDED", old), ("LISTED", None), ("DELETED", old)]
    read = []

    class Watch:
        def __init__(self, *_, **__): ...

        def events(self):
            for kind, pod in events:
                read.append(kind)
                yield kind, pod

    monkeypatch.setattr("grove.startup.main.PodWatch", Watch)
    monkeypatch.setattr("grove.startup.main.signal.pthread_sigmask", lambda *_: None)
    monkeypatch.setattr("grove.startup.main.threading.Thread.start", lambda _: None)
    for name in ("namespace", "podgangname"):
        (tmp_path / name).write_text("x")
    assert main(["--podcliques=a:1", f"--pod-info={tmp_path}"]) == 0
    assert read == [kind for kind, _ in events]
