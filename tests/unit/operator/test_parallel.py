"""Many writes at once: bounded, stopped by what concerns the others too, careful after trouble."""

from __future__ import annotations

import asyncio

import pytest

from grove.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, KubeError
from grove.kube.writes import Act, Refusals, in_parallel


class Crowd:
    """Acts that note how many of them run at a time; the numbers in `refused` fail."""

    def __init__(self, refused: dict[int, KubeError] | None = None) -> None:
        self.refused = refused or {}
        self.ran: list[int] = []
        self.at_once = 0
        self.most_at_once = 0

    def act(self, number: int) -> Act:
        async def run() -> None:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.ran.append(number)
            await asyncio.sleep(0)
            self.at_once -= 1
            if number in self.refused:
                raise self.refused[number]

        return run

    def acts(self, count: int) -> list[Act]:
        return [self.act(number) for number in range(count)]


async def test_all_run_and_no_more_than_the_width_at_a_time() -> None:
    crowd = Crowd()
    assert await in_parallel(crowd.acts(50), width=8) == []
    assert sorted(crowd.ran) == list(range(50))
    assert crowd.most_at_once == 8


async def test_a_full_quota_stops_those_that_have_not_begun() -> None:
    crowd = Crowd({3: Forbidden("exceeded quota")})
    errors = await in_parallel(crowd.acts(1000), width=4)
    assert [str(error) for error in errors] == ["exceeded quota"]
    assert len(crowd.ran) <= 8


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("error", [Invalid, AlreadyExists, Conflict])
async def test_an_error_about_one_object_does_not_stop_the_others(error: type[ApiError], careful: bool) -> None:
    crowd = Crowd({3: error("this one")})
    errors = await in_parallel(crowd.acts(20), width=4, careful=careful)
    assert [str(error) for error in errors] == ["this one"]
    assert len(crowd.ran) == 20


@pytest.mark.parametrize(
    ("refused_at", "ran"),
    [
        pytest.param(0, 1, id="the first alone, and it failed"),
        pytest.param(2, 3, id="one, then two, one of which failed"),
        pytest.param(None, 10, id="all went well: one, two, four, three"),
    ],
)
async def test_after_trouble_it_starts_slowly(refused_at: int | None, ran: int) -> None:
    crowd = Crowd({} if refused_at is None else {refused_at: Forbidden("exceeded quota")})
    await in_parallel(crowd.acts(10), careful=True)
    assert len(crowd.ran) == ran
    assert crowd.most_at_once <= 4


async def tries(refused: set[int], count: int, **options: bool) -> list[list[int]]:
    """What each of four tries asked for, of acts that are wanted until they went well."""
    refusals, left = Refusals(), set(range(count))
    asked: list[list[int]] = []
    for _ in range(4):
        crowd = Crowd({number: Forbidden("no") for number in refused})
        await refusals.in_parallel("owner", "create", {str(n): crowd.act(n) for n in sorted(left)}, **options)
        left -= set(crowd.ran) - refused
        asked.append(crowd.ran)
    return asked


@pytest.mark.parametrize(
    ("refused", "count", "want"),
    [
        pytest.param({0}, 20, [[*range(16)], [16, 17, 18, 19, 0], [0], [0]], id="the first of many comes last"),
        pytest.param({0, 17}, 20, [[*range(16)], [16, 17, 18], [19, 0, 17], [0]], id="as does the next one found"),
        pytest.param({0, 1, 2}, 3, [[0, 1, 2], [0], [1], [2]], id="all: each in its turn, one a try"),
    ],
)
async def test_what_was_refused_is_tried_after_the_rest_and_longest_ago_first(
    refused: set[int], count: int, want: list[list[int]]
) -> None:
    assert await tries(refused, count) == want


async def test_where_the_order_matters_what_was_refused_keeps_its_place() -> None:
    assert await tries({0, 1, 2}, 3, in_order=True) == [[0, 1, 2], [0], [0], [0]]


async def test_care_ends_when_all_went_well() -> None:
    refusals, trouble = Refusals(), Crowd({0: Forbidden("no")})
    await refusals.in_parallel("owner", "create", {"0": trouble.act(0)})
    await refusals.in_parallel("owner", "create", {"0": Crowd().act(0)})
    crowd = Crowd()
    await refusals.in_parallel("owner", "create", {str(number): crowd.act(number) for number in range(8)})
    assert crowd.most_at_once == 8


async def test_cancellation_is_not_swallowed() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    task = asyncio.ensure_future(in_parallel([forever, forever]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
