"""Expectations: what we wrote and the cache does not show yet."""

from datetime import UTC, datetime

import pytest
from tests.unit.kube.api import Thing

from grove.api.meta import ObjectMeta
from grove.kube.expectations import Expectations

GONE_SOON = datetime(2026, 1, 1, tzinfo=UTC)


def shown(*uids: str, leaving: tuple[str, ...] = ()) -> list[Thing]:
    staying = [Thing(metadata=ObjectMeta(uid=uid)) for uid in uids]
    return staying + [Thing(metadata=ObjectMeta(uid=uid, deletion_timestamp=GONE_SOON)) for uid in leaving]


class Timer:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def expect(timer: Timer) -> Expectations:
    return Expectations(timer, ttl_s=60)


def test_an_owner_we_wrote_nothing_for_is_settled(expect: Expectations) -> None:
    assert expect.settled("owner", shown("x"))


def test_a_created_pod_is_awaited_until_the_cache_shows_it(expect: Expectations) -> None:
    expect.created("owner", "p1")
    expect.created("owner", "p2")
    assert not expect.settled("owner", shown("p1"))
    assert expect.unseen("owner") == {"p2"}
    assert expect.settled("owner", shown("p1", "p2"))


def test_an_event_that_overtakes_our_answer_does_no_harm(expect: Expectations) -> None:
    cache = shown("p1")  # the watch was quicker than the response to the create
    expect.created("owner", "p1")
    assert expect.settled("owner", cache)


def test_a_created_pod_that_shows_up_leaving_is_settled_too(expect: Expectations) -> None:
    expect.created("owner", "p1")
    assert expect.settled("owner", shown(leaving=("p1",)))


@pytest.mark.parametrize(
    ("cache", "want"),
    [
        pytest.param(shown("p1"), False, id="still staying"),
        pytest.param(shown(leaving=("p1",)), True, id="leaving is enough"),
        pytest.param(shown("p2"), True, id="gone is enough"),
    ],
)
def test_a_deleted_pod_is_awaited_until_it_does_not_stay(expect: Expectations, cache: list[Thing], want: bool) -> None:
    expect.deleted("owner", "p1")
    assert expect.settled("owner", cache) is want


def test_a_pod_created_and_deleted_by_us_is_not_awaited_twice(expect: Expectations) -> None:
    expect.created("owner", "p1")
    expect.deleted("owner", "p1")
    assert expect.settled("owner", shown())


def test_a_pod_that_came_and_went_unseen_is_told_by_its_deletion(expect: Expectations) -> None:
    expect.created("owner", "p1")
    expect.gone("owner", "p1")
    assert expect.settled("owner", shown())


def test_an_expectation_expires_and_says_when(expect: Expectations, timer: Timer) -> None:
    expect.created("owner", "never")
    timer.now_s += 20
    expect.deleted("owner", "stays")
    assert expect.next_expiry_s("owner") == 40
    timer.now_s += 41
    assert not expect.settled("owner", shown("stays"))
    assert expect.leaving("owner") == {"stays"}
    timer.now_s += 20
    assert expect.settled("owner", shown("stays"))
    assert expect.next_expiry_s("owner") is None


def test_owners_do_not_share_and_can_be_forgotten(expect: Expectations) -> None:
    expect.created("old", "p1")
    assert expect.settled("new", shown())
    expect.forget("old")
    assert expect.settled("old", shown())
