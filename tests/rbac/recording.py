"""A pytest plugin (`-p tests.rbac.recording`) that has control planes record what Grove's accounts do.

Only for `make audit-rbac`: it gives every control plane of the run an audit log in `GROVE_AUDIT_DIR` and the chart's
roles, and has components act as their ServiceAccounts. Whatever a component starts, in any task, acts as it: the name
travels in a context variable.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from weakref import WeakSet

import aiohttp
import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from grove.admission.serving.service import WebhookService
from grove.kube.credentials import Credential
from grove.kube.transport import Transport
from grove.local.blueprint import Blueprint
from grove.local.controlplane import ControlPlane
from grove.metrics.service import MetricsService
from grove.operator.wiring import Operator
from grove.scheduler.loop.live import Scheduler
from tests.rbac.rights import accounts, documents

DIRECTORY = Path(os.environ.get("GROVE_AUDIT_DIR", "audit"))
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:nodes"]},
        {"level": "None", "users": ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"]},
        {"level": "Metadata"},
    ],
}
ACCESS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")

_acting: ContextVar[str] = ContextVar("acting", default="")


def pytest_configure(config: pytest.Config) -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    users = accounts(documents())
    _record_planes()
    _act_as(Operator, users["operator"])
    _act_as(Scheduler, users["scheduler"])
    _act_as(MetricsService, users["metrics"])
    _act_as(WebhookService, users["operator"], "start", "run", "lead")
    _impersonate()


def _record_planes() -> None:
    command, started = Blueprint.apiserver, ControlPlane.start
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "grove-system"}}
    access = yaml.safe_dump_all([namespace, *(one for one in documents() if one["kind"] in ACCESS)])
    policy = DIRECTORY / "policy.yaml"
    policy.write_text(yaml.safe_dump(POLICY))

    def apiserver(self: Blueprint) -> list[str]:
        log = DIRECTORY / f"{uuid.uuid4().hex}.jsonl"
        flags = [f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-maxsize=2000"]
        told = command(self)
        return told if any(one.startswith("--audit-") for one in told) else [*told, *flags]

    def start(self: ControlPlane) -> None:
        started(self)
        subprocess.run(
            [self.kubectl, "--kubeconfig", self.kubeconfig, "apply", "--server-side", "--force-conflicts", "-f", "-"],
            input=access,
            text=True,
            capture_output=True,
            check=True,
        )

    Blueprint.apiserver = apiserver  # type: ignore[method-assign]
    ControlPlane.start = start  # type: ignore[method-assign]


def _act_as(component: Any, user: str, *methods: str) -> None:
    for name in methods or ("run",):
        setattr(component, name, _acting_as(user, getattr(component, name)))


def _acting_as(user: str, method: Callable[..., Any]) -> Callable[..., Any]:
    async def acting(self: Any, *args: Any, **options: Any) -> Any:
        elsewhere = isinstance(self, MetricsService) and self._settings.namespace != "grove-system"
        token = _acting.set("" if elsewhere else user)  # its Role is of the namespace that the chart is installed in
        try:
            return await method(self, *args, **options)
        finally:
            _acting.reset(token)

    return acting


def _impersonate() -> None:
    """Sessions of administrators act as the component; one that is a component's own already does."""
    request, opened = aiohttp.ClientSession._request, Transport._open
    own: WeakSet[aiohttp.ClientSession] = WeakSet()

    def open_(self: Transport, credential: Credential) -> aiohttp.ClientSession:
        session = opened(self, credential)
        if _is_account(credential.cert):
            own.add(session)
        return session

    async def asked(self: aiohttp.ClientSession, method: str, url: Any, **options: Any) -> Any:
        user, headers = "" if self in own else _acting.get(), options.get("headers") or {}
        if user and "User-Agent" in headers and "Impersonate-User" not in headers and "Authorization" not in headers:
            options["headers"] = {**headers, "Impersonate-User": user}
        return await request(self, method, url, **options)

    aiohttp.ClientSession._request = asked  # type: ignore[method-assign]
    Transport._open = open_  # type: ignore[method-assign]


def _is_account(cert: bytes) -> bool:
    if not cert:
        return False
    (name,) = x509.load_pem_x509_certificate(cert).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value).startswith("system:serviceaccount:")
