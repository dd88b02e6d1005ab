"""The store: no going back in time, indexes that agree with the objects, handlers that see every last state."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.unit.kube.api import Thing

from grove.api.meta import Key, ObjectMeta, OwnerReference
from grove.kube.store import Store

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def thing(name: str, version: int, colour: str = "", owner: str = "", uid: str = "") -> Thing:
    owners = (OwnerReference(uid=owner),) if owner else ()
    meta = ObjectMeta(
        name=name, namespace="ns", uid=uid or f"uid-{name}", resource_version=str(version), owner_references=owners
    )
    return Thing(metadata=meta, data={"colour": colour})


def take_over(store: Store[Thing], things: list[Thing], revision: int) -> None:
    for _ in store.take_over({t.key: t for t in things}, revision):
        pass


def shown(store: Store[Thing]) -> dict[str, str]:
    return {t.metadata.name: t.metadata.resource_version for t in store.list()}


def test_an_older_version_is_passed_over() -> None:
    store = Store[Thing]()
    store.put(thing("a", 5))
    store.put(thing("a", 4))
    assert shown(store) == {"a": "5"}


def test_a_replayed_history_does_not_bring_back_what_was_deleted() -> None:
    store = Store[Thing]()
    store.put(thing("a", 5))
    store.remove(thing("a", 6))
    told: list[object] = []
    store.add_handler(lambda old, new: told.append((old, new)))
    store.put(thing("a", 5))
    store.remove(thing("a", 6))
    assert (shown(store), told) == ({}, [])


def test_versions_that_are_no_numbers_are_always_news() -> None:
    store = Store[Thing]()
    store.put(Thing(metadata=ObjectMeta(name="a", resource_version="x2")))
    store.put(Thing(metadata=ObjectMeta(name="a", resource_version="x1")))
    assert shown(store) == {"a": "x1"}


def test_a_list_tells_of_what_changed_and_of_nothing_else() -> None:
    store = Store[Thing]()
    take_over(store, [thing("same", 1), thing("changed", 2), thing("gone", 3)], 10)
    told: list[tuple[str | None, str | None]] = []
    store.add_handler(
        lambda old, new: told.append((old and old.metadata.resource_version, new and new.metadata.resource_version))
    )
    told.clear()
    take_over(store, [thing("same", 1), thing("changed", 12), thing("new", 13)], 20)
    assert sorted(told, key=str) == [("2", "12"), ("3", None), (None, "13")]
    assert shown(store) == {"same": "1", "changed": "12", "new": "13"}


def test_an_object_made_again_under_its_name_is_named_as_one_that_left_and_one_that_came() -> None:
    store = Store[Thing]()
    take_over(store, [thing("a", 1, uid="first")], 10)
    told: list[tuple[str | None, str | None, int]] = []
    store.add_handler(
        lambda old, new: told.append((old and old.metadata.uid, new and new.metadata.uid, len(store.list())))
    )
    told.clear()
    take_over(store, [thing("a", 12, uid="second")], 20)
    assert told == [("first", None, 0), (None, "second", 1)]


def test_what_we_made_again_is_read_all_the_while_and_its_echo_is_known() -> None:
    store = Store[Thing]()
    store.put(thing("a", 1, uid="first"))
    store.wrote(thing("a", 12, uid="second"), echo=True)
    told: list[tuple[str | None, str | None, dict[str, str], bool]] = []
    store.add_handler(
        lambda old, new: told.append(
            (old and old.metadata.uid, new and new.metadata.uid, shown(store), new is not None and store.is_echo(new))
        )
    )
    told.clear()
    store.put(thing("a", 12, uid="second"))
    assert told == [("first", None, {"a": "12"}, False), (None, "second", {"a": "12"}, True)]


def test_a_long_list_is_taken_over_in_slices() -> None:
    store = Store[Thing]()
    things = {t.key: t for t in (thing(f"t{n}", n + 1) for n in range(2500))}
    held = [len(store.list()) for _ in store.take_over(things, 2500)]
    assert held == [1000, 2000]
    assert len(store.list()) == 2500
    left = [len(store.list()) for _ in store.take_over({}, 2600)]
    assert left == [1500, 500]
    assert store.list() == []


def test_events_from_before_a_list_are_old_news() -> None:
    store = Store[Thing]()
    take_over(store, [], 20)
    store.put(thing("ghost", 15))
    assert shown(store) == {}


def test_owned_and_custom_indexes_follow_changes() -> None:
    store = Store[Thing]()
    store.put(thing("a", 1, "red", owner="u1"))
    store.add_index("colour", lambda t: [t.data["colour"]])
    store.put(thing("b", 2, "red", owner="u1"))
    store.put(thing("a", 3, "blue", owner="u2"))
    assert [t.metadata.name for t in store.by_index("owner", "u1")] == ["b"]
    assert [t.metadata.name for t in store.by_index("colour", "blue")] == ["a"]
    store.remove(thing("b", 4))
    assert store.by_index("owner", "u1") == []
    assert store.by_index("colour", "never seen") == []


def test_a_handler_that_comes_late_receives_what_is_there() -> None:
    store = Store[Thing]()
    store.put(thing("a", 1))
    told: list[tuple[object, Thing | None]] = []
    store.add_handler(lambda old, new: told.append((old, new)))
    assert told == [(None, thing("a", 1))]


def test_a_broken_handler_does_not_keep_the_news_from_others() -> None:
    store = Store[Thing]()
    told: list[Thing | None] = []

    def broken(old: Thing | None, new: Thing | None) -> None:
        raise RuntimeError("bug")

    store.add_handler(broken)
    store.add_handler(lambda _, new: told.append(new))
    store.put(thing("a", 1))
    assert told == [thing("a", 1)]


def test_list_by_namespace() -> None:
    store = Store[Thing]()
    store.put(thing("a", 1))
    store.put(Thing(metadata=ObjectMeta(name="b", namespace="other", resource_version="2")))
    assert [t.key for t in store.list("other")] == [Key("other", "b")]
    assert len(store.list()) == 2


def test_our_own_write_is_read_before_the_watch_shows_it() -> None:
    store = Store[Thing]()
    store.put(thing("a", 5, "red"))
    store.wrote(thing("a", 7, "blue", owner="u1"))
    store.wrote(thing("b", 8, "blue", owner="u1"))
    assert shown(store) == {"a": "7", "b": "8"}
    assert [t.metadata.name for t in store.by_index("owner", "u1")] == ["a", "b"]
    store.put(thing("a", 6, "green"))
    assert shown(store)["a"] == "7", "somebody's write from before ours"
    store.put(thing("a", 9, "green"))
    assert shown(store)["a"] == "9", "somebody's write after ours"


def test_a_write_that_takes_the_last_finalizer_is_read_although_it_has_no_version_of_its_own() -> None:
    """The API server removes the object instead of storing the write. The answer has the version before."""
    held, free = (
        structs.replace(one, metadata=structs.replace(one.metadata, deletion_timestamp=NOW, finalizers=finalizers))
        for one, finalizers in ((thing("a", 5), ("hold",)), (thing("a", 5), ()))
    )
    store, told = Store[Thing](), list[tuple[str | None, str | None]]()
    store.put(held)
    store.wrote(free)
    (found,) = store.list()
    assert found.metadata.finalizers == ()
    store.passed(6)
    (found,) = store.list()
    assert found.metadata.finalizers == ()
    store.add_handler(
        lambda old, new: told.append((old and old.metadata.resource_version, new and new.metadata.resource_version))
    )
    store.remove(thing("a", 7))
    assert (shown(store), told) == ({}, [(None, "5"), ("5", None)])


def test_an_answer_without_finalizers_that_is_older_than_the_watch_is_passed_over() -> None:
    store, old, now = Store[Thing](), thing("a", 5), thing("a", 6)
    leaving = structs.replace(now.metadata, deletion_timestamp=NOW, finalizers=("hold",))
    store.put(structs.replace(now, metadata=leaving))
    store.wrote(structs.replace(old, metadata=structs.replace(old.metadata, deletion_timestamp=NOW)))
    (found,) = store.list()
    assert found.metadata.finalizers == ("hold",)


def test_handlers_hear_of_the_watch_and_not_of_our_writes() -> None:
    store = Store[Thing]()
    told: list[tuple[str | None, str | None]] = []
    store.add_handler(
        lambda old, new: told.append((old and old.metadata.resource_version, new and new.metadata.resource_version))
    )
    store.put(thing("a", 5))
    store.wrote(thing("a", 7))
    store.put(thing("a", 6))
    store.put(thing("a", 7))
    store.remove(thing("a", 8))
    assert told == [(None, "5"), ("5", "6"), ("6", "7"), ("7", None)]


def test_a_handler_can_tell_the_echo_of_a_write_that_was_said_to_be_one() -> None:
    store = Store[Thing]()
    echoes: list[bool] = []
    store.add_handler(lambda old, new: echoes.append(new is not None and store.is_echo(new)))
    store.wrote(thing("a", 5), echo=True)
    store.put(thing("a", 5))
    store.wrote(thing("a", 6))
    store.put(thing("a", 6))
    store.put(thing("a", 7))
    assert echoes == [True, False, False]


def test_a_handler_can_tell_the_echoes_of_several_writes_in_a_row() -> None:
    store = Store[Thing]()
    echoes: list[bool] = []
    store.add_handler(lambda old, new: echoes.append(new is not None and store.is_echo(new)))
    store.wrote(thing("a", 5), echo=True)
    store.wrote(thing("a", 7), echo=True)
    for version in (5, 6, 7, 8):
        store.put(thing("a", version))
    assert echoes == [True, False, True, False]


def test_what_a_list_shows_is_no_echo_because_others_may_have_written_before_us() -> None:
    """The watch was down: of another client's write and ours after it the list shows the second alone."""
    store = Store[Thing]()
    take_over(store, [thing("a", 9, "red")], 9)
    news: list[bool] = []
    store.add_handler(lambda old, new: news.append(new is not None and not store.is_echo(new)))
    news.clear()
    store.wrote(thing("a", 11, "green"), echo=True)
    take_over(store, [thing("a", 11, "green")], 12)
    assert news == [True]


def test_an_answer_that_comes_after_the_watch_has_shown_the_end_of_it_is_passed_over() -> None:
    store = Store[Thing]()
    store.put(thing("a", 5))
    store.remove(thing("a", 6))
    store.wrote(thing("a", 5))
    assert shown(store) == {}


def test_what_we_deleted_is_shown_as_leaving_until_the_watch_shows_it() -> None:
    store = Store[Thing]()
    store.put(thing("a", 5))
    store.removed(Key("ns", "a"), "uid-a")
    store.put(thing("a", 6))
    assert [t.metadata.is_deleting for t in store.list()] == [True], "a version from before the deletion"
    store.remove(thing("a", 7))
    store.put(thing("a", 8, uid="another"))
    assert [t.metadata.is_deleting for t in store.list()] == [False], "another object of the same name"


def test_what_we_deleted_by_its_labels_counts_again_when_it_had_others_by_then() -> None:
    def labelled(version: int, replica: str) -> Thing:
        one = thing("a", version)
        return structs.replace(one, metadata=structs.replace(one.metadata, labels={"replica": replica}))

    store = Store[Thing]()
    store.put(labelled(5, "1"))
    store.removed(Key("ns", "a"), "uid-a", labels={"replica": "1"})
    store.put(labelled(6, "1"))
    assert [one.metadata.is_deleting for one in store.list()] == [True], "an edit of something else tells nothing"
    store.put(labelled(7, ""))
    assert [one.metadata.is_deleting for one in store.list()] == [False]

    store.removed(Key("ns", "a"), "uid-a", labels={"replica": "1"})
    assert [one.metadata.is_deleting for one in store.list()] == [False], "the edit was seen before the answer came"


def test_a_deletion_says_nothing_about_a_later_object_of_the_same_name() -> None:
    store = Store[Thing]()
    store.put(thing("a", 5, uid="later"))
    store.removed(Key("ns", "a"), "uid-a")
    assert [t.metadata.is_deleting for t in store.list()] == [False]


def test_a_write_that_the_watch_passes_without_showing_it_is_not_in_our_part_of_the_kind() -> None:
    store = Store[Thing]()
    store.put(thing("a", 3))
    store.wrote(thing("a", 5))
    store.wrote(thing("b", 6))
    store.passed(5)
    assert shown(store) == {"a": "3", "b": "6"}


def test_a_list_from_before_our_write_does_not_take_it_back_and_a_later_one_does() -> None:
    store = Store[Thing]()
    take_over(store, [], 4)
    store.wrote(thing("a", 7))
    take_over(store, [], 6)
    assert shown(store) == {"a": "7"}
    take_over(store, [], 9)
    assert shown(store) == {}


def test_nothing_of_ours_survives_a_cluster_that_went_back_in_time() -> None:
    store = Store[Thing]()
    take_over(store, [thing("a", 3)], 8)
    store.wrote(thing("a", 9))
    store.wrote(thing("b", 10))
    take_over(store, [thing("a", 3)], 5)
    assert shown(store) == {"a": "3"}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["theirs", "ours", "delete", "watch", "list"]))))
def test_a_read_is_never_older_than_what_we_wrote_and_ends_as_the_cluster_is(history: list[tuple[str, str]]) -> None:
    store, live, events = Store[Thing](), dict[str, Thing](), list[tuple[str, Thing]]()
    written: dict[str, int] = {}
    heard: dict[Key, Thing] = {}

    def hear(old: Thing | None, new: Thing | None) -> None:
        assert heard.get((old or new).key) == old  # type: ignore[union-attr]
        heard.pop(old.key, None) if old is not None else None
        heard.update({new.key: new} if new is not None else {})

    def catch_up(count: int) -> None:
        for _ in range(min(count, len(events))):
            kind, obj = events.pop(0)
            store.put(obj) if kind == "put" else store.remove(obj)

    store.add_handler(hear)
    revision = 0
    for name, action in history:
        if action in ("theirs", "ours"):
            revision += 1
            uid = live[name].metadata.uid if name in live else f"{name}-{revision}"
            live[name] = thing(name, revision, uid=uid)
            events.append(("put", live[name]))
            if action == "ours":
                store.wrote(live[name])
                written[name] = revision
        elif action == "delete" and name in live and _reads(store, live[name]):  # who deletes has read it
            revision += 1
            gone = live.pop(name)
            events.append(("remove", thing(name, revision, uid=gone.metadata.uid)))
            store.removed(gone.key, gone.metadata.uid)
            written[name] = revision
        elif action == "watch":
            catch_up(1)
        elif action == "list":
            events.clear()
            take_over(store, list(live.values()), revision)
        for key, obj in {one.key: one for one in store.list()}.items():
            if written.get(key.name, 0) > int(obj.metadata.resource_version):
                assert obj.metadata.is_deleting, "only an object that we deleted may be older than our last write"
    catch_up(len(events))
    assert {one.metadata.name: one for one in store.list()} == live
    assert {key.name: obj for key, obj in heard.items()} == live


def _reads(store: Store[Thing], obj: Thing) -> bool:
    found = store.get(obj.key)
    return found is not None and found.metadata.uid == obj.metadata.uid


steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 40), st.sampled_from(["put", "remove"]), st.sampled_from("rgb")),
    max_size=40,
)


@given(steps)
def test_whatever_comes_in_whatever_order(history: list[tuple[str, int, str, str]]) -> None:
    """No object goes back in version, indexes equal a fresh scan, and a follower of handlers holds the same objects."""
    store = Store[Thing]()
    store.add_index("colour", lambda t: [t.data["colour"]])
    followed: dict[Key, Thing] = {}
    newest: dict[Key, int] = {}

    def follow(old: Thing | None, new: Thing | None) -> None:
        if new is None:
            assert old is not None
            assert followed.pop(old.key) == old
            return
        assert followed.get(new.key) == old
        assert int(new.metadata.resource_version) > newest.get(new.key, 0)
        followed[new.key] = new
        newest[new.key] = int(new.metadata.resource_version)

    store.add_handler(follow)
    for name, version, action, colour in history:
        obj = thing(name, version, colour, owner=f"owner-{colour}")
        store.put(obj) if action == "put" else store.remove(obj)
        assert {t.key: t for t in store.list()} == followed
        for value in "rgb":
            want = sorted(t.metadata.name for t in store.list() if t.data["colour"] == value)
            assert sorted(t.metadata.name for t in store.by_index("colour", value)) == want
            assert sorted(t.metadata.name for t in store.by_index("owner", f"owner-{value}")) == want
