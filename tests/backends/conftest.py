"""Control planes for tests of this folder alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.kube_gangs import VERSION_OF, GangPlane, gang_plane


@pytest.fixture(scope="package", params=VERSION_OF)  # gone when the tests of this folder are done
def gangs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangPlane]:
    """Each Kubernetes that has gangs, with its gates for them on; tests that share it leave nothing behind."""
    with gang_plane(tmp_path_factory.mktemp(f"gangs-{request.param}"), request.param) as plane:
        yield plane
