"""A certificate that lives in a Secret is renewed in time, by whichever replica wakes, and all serve the same."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from cryptography import x509

from grove.admission.certs.authority import Lifetimes, service_names
from grove.admission.certs.serving import SharedSecret
from grove.api.core import Secret
from grove.sim.client import SimClient
from grove.sim.kinds import NAMESPACE
from grove.sim.loop import LoopClock, run
from grove.sim.server import SimServer

LIVES = Lifetimes(
    authority=timedelta(hours=40),
    authority_renewal=timedelta(hours=5),
    server=timedelta(hours=4),
    server_renewal=timedelta(hours=1),
)
NAMES = service_names("grove-operator", "grove-system")


def test_two_replicas_renew_for_weeks_and_never_serve_an_expired_certificate() -> None:
    async def live() -> None:
        clock = LoopClock()
        server = SimServer(clock)
        await server.create(NAMESPACE, {"metadata": {"name": "grove-system"}})
        published: list[bytes] = []

        client = SimClient(server)
        replicas = [
            SharedSecret(client, "grove-system", NAMES, published.append, clock=clock, lives=LIVES) for _ in range(2)
        ]
        keepers = [asyncio.create_task(replica.keep()) for replica in replicas]
        served: set[bytes] = set()
        for _ in range(14 * 24):
            await asyncio.sleep(3600)
            bundles = [replica.bundle for replica in replicas]
            assert bundles[0] is not None
            assert bundles[0] == bundles[1]
            for certificate in x509.load_pem_x509_certificates(bundles[0].chain):
                assert certificate.not_valid_after_utc > clock.now()
            served.add(bundles[0].chain)
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        # Every three hours a new one, two weeks long; authorities last 35 hours.
        assert 105 <= len(served) <= 125
        # A replica writes only when the other has not: one write a renewal, not one each.
        assert client.calls["patch", "secrets"] <= len(served) * 2
        assert len(published) == len(served) * 2
        stored = await client.get(Secret, "grove-webhook-server-cert", "grove-system")
        assert stored.type == "kubernetes.io/tls"

    run(live())
