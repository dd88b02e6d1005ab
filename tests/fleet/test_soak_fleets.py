"""The fleets that come with Grove, for their whole time and with default settings; twenty seeds of the bad week.

A run that held leaves a record in `build/soak-fleets`. Interrupt `make soak` and start it again: it skips the runs that
have a record of the same source. Delete the folder to run everything again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.support.running import without_logs

import grove
from grove.fleet.file import Time, load
from grove.fleet.replay import replay_file
from grove.fleet.results import encode, results
from grove.fleet.run import run_fleet

pytestmark = pytest.mark.soak

RECORDS = Path(__file__).parents[2] / "build" / "soak-fleets"


def source_hash() -> str:
    """Changes with every file of the package."""
    root = Path(grove.__file__).parent
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc")
    content = hashlib.sha256()
    for path in files:
        content.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return content.hexdigest()[:12]


def each_day(days: float, say: Callable[[str], None]) -> Callable[[float], None]:
    """Takes the share of a run that is done, and says when a simulated day is over."""
    told = 0

    def tell(share: float) -> None:
        nonlocal told
        if (day := int(share * days)) > told:
            told = day
            say(f"day {day} of {days:g}")

    return tell


@pytest.mark.parametrize(
    ("name", "lasts", "seed"),
    [
        pytest.param("lab", "30d", 1, id="a month of the lab"),
        *(pytest.param("bad-week", "7d", seed, id=f"bad week {seed}") for seed in range(1, 21)),
        pytest.param("company", "30d", 1, id="a month of the company"),
        pytest.param("bad-week", "30d", 1, id="a month of bad weeks"),
        pytest.param("cloud", "30d", 1, id="a month of the cloud"),
    ],
)
def test_every_promise_holds(name, lasts, seed, capfd):
    def say(text: str) -> None:
        with capfd.disabled():
            print(f"{name} for {lasts}, seed {seed}: {text}", flush=True)

    record = RECORDS / f"{name}-{lasts}-{seed}-{source_hash()}.json"
    if record.exists():
        pytest.skip(f"held with this source already: {record}")
    fleet = msgspec.structs.replace(load(name), lasts=Time(lasts), seed=seed)
    with without_logs():
        run = run_fleet(fleet, each_day(fleet.lasts.s / 86400, say))
    say(f"{run.cpu_s:.0f} s of CPU")
    RECORDS.mkdir(parents=True, exist_ok=True)
    if run.broken:
        replay = record.with_suffix(".broken.json")
        replay.write_bytes(encode(replay_file(run)))
        pytest.fail(f"{run.broken[0].promise}: {run.broken[0].text}; see grove fleet --replay {replay}")
    assert run.finished
    record.write_bytes(encode(results(run)))
