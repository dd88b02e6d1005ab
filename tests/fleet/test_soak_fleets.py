"""The fleets that come with Grove, for their whole time and with default settings; twenty seeds of the bad week."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.running import without_logs

from grove.fleet.file import Time, load
from grove.fleet.run import run_fleet

pytestmark = pytest.mark.soak


@pytest.mark.parametrize(
    ("name", "lasts", "seed"),
    [
        pytest.param("lab", "30d", 1, id="a month of the lab"),
        pytest.param("company", "30d", 1, id="a month of the company"),
        pytest.param("cloud", "30d", 1, id="a month of the cloud"),
        pytest.param("bad-week", "30d", 1, id="a month of bad weeks"),
        *(pytest.param("bad-week", "7d", seed, id=f"bad week {seed}") for seed in range(1, 21)),
    ],
)
def test_every_promise_holds(name, lasts, seed):
    fleet = msgspec.structs.replace(load(name), lasts=Time(lasts), seed=seed)
    with without_logs():
        run = run_fleet(fleet)
    print(f"{name} for {lasts}, seed {seed}: {run.cpu_s:.0f} s of CPU")
    assert run.broken == []
    assert run.finished
