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

import aiohttp
import pytest
import yaml

from grove.admission.serving.service import WebhookService
from grove.local.blueprint import Blueprint
from grove.local.controlplane import ControlPlane
from grove.metrics.service import MetricsService
from grove.operator.wiring import Operator
from grove.scheduler.loop.live import Scheduler
from tests.rbac.rights import accounts, documents

DIRECTORY = Path(os.environ.get("GROVE_AUDIT_DIR", "audit"))
POLICY = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:nodes"]},
        {"level": "None", "users": ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"]},
        {"level": "Metadata"},
    ],
}  # fmt: skip
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
            input=access, text=True, capture_output=True, check=True,
        )  # fmt: skip

    Blueprint.apiserver = apiserver  # type: ignore[method-assign]
    ControlPlane.start = start  # type: ignore[method-assign]


def _act_as(component: Any, user: str, *methods: str) -> None:
    for name in methods or ("run",):
        setattr(component, name, _acting_as(user, getattr(component, name)))


def _acting_as(user: str, method: Callable[..., Any]) -> Callable[..., Any]:
    async def acting(self: Any, *args: Any, **options: Any) -> Any:
        token = _acting.set(user)
        try:
            return await method(self, *args, **options)
        finally:
            _acting.reset(token)

    return acting


def _impersonate() -> None:
    request = aiohttp.ClientSession._request

    async def asked(self: aiohttp.ClientSession, method: str, url: Any, **options: Any) -> Any:
        user, headers = _acting.get(), options.get("headers") or {}
        if user and "User-Agent" in headers and "Impersonate-User" not in headers and "Authorization" not in headers:
            options["headers"] = {**headers, "Impersonate-User": user}
        return await request(self, method, url, **options)

    aiohttp.ClientSession._request = asked  # type: ignore[method-assign]
