"""The admission that samples and charts pass in tests."""

from __future__ import annotations

from grove.admission.rules.review import Admission
from tests.support.reviews import schedulers

ADMISSION = Admission(
    topology_enabled=True,
    mnnvl_enabled=True,
    backends=schedulers(
        "grove-scheduler",
        "default-scheduler",
        "kai-scheduler",
        "volcano",
        "koord-scheduler",
        spreading={"grove-scheduler"},
    ),
)

WELL_KNOWN = ("region", "zone", "datacenter", "block", "rack", "host", "numa")
