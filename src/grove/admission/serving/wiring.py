"""From the operator's configuration to admission. No other module of admission reads names of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from grove.admission.rules.authorizer import Authorizer, exempt_users
from grove.admission.rules.feasibility import NodeSummary
from grove.admission.rules.review import Admission
from grove.api.fields import mapping, text
from grove.api.meta import Resource
from grove.backends import Backends
from grove.config import OperatorConfiguration
from grove.kube.client import Client

if TYPE_CHECKING:
    from grove.admission.serving.service import WebhookSettings

SELF_SUBJECT_REVIEW = Resource("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", False)


async def user_of(client: Client) -> str:
    """The user name of a client at the API server, whatever credentials it uses."""
    answer = await client.create(SELF_SUBJECT_REVIEW, SELF_SUBJECT_REVIEW.manifest({}))
    return text(mapping(mapping(answer.get("status")).get("userInfo")).get("username"))


def admission_of(
    config: OperatorConfiguration,
    backends: Backends,
    *,
    namespace: str,
    operator_users: Iterable[str],
    nodes: Callable[[], NodeSummary | None] = lambda: None,
) -> Admission:
    """`namespace` is the operator's own; `operator_users` are the names under which it writes (see `user_of`)."""
    guard = None
    if config.authorizer.enabled:
        exempt = exempt_users(namespace, config.authorizer.exempt_service_account_user_names)
        guard = Authorizer(frozenset(operator_users) - {""}, exempt)
    return Admission(
        backends=backends,
        topology_enabled=config.topology_aware_scheduling.enabled,
        mnnvl_enabled=config.network.auto_mnnvl_enabled,
        authorizer=guard,
        dialects=config.dialects.enabled,
        nodes=nodes,
    )


def webhook_settings(config: OperatorConfiguration, *, namespace: str, url: str = "") -> WebhookSettings:
    """`url` is where the API server reaches this process when no Service does (`--webhook-url`)."""
    # A simulated cluster needs no server and no certificates.
    from grove.admission.serving.service import WebhookSettings  # noqa: PLC0415

    hooks = config.server.webhooks
    return WebhookSettings(
        namespace=namespace,
        host=hooks.bind_address,
        port=hooks.port,
        url=url,
        mode=hooks.cert_provision_mode,
        cert_dir=Path(hooks.server_cert_dir),
        secret_name=hooks.secret_name,
        inject_ca_from=hooks.cert_manager_certificate,
    )
