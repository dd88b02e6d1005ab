"""`doctor`: is Grove installed, reachable and complete here? Every finding comes with its remedy.

Each check is one function that asks one question (`checks_installed`, `checks_running`). A check the user has no rights
for is skipped and says so; the others still answer. When none is left, that is a fault too: silence is not health.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from grove.answers import checks_installed, checks_running, checks_schedulers, checks_takeover
from grove.answers.answer import RUNNING, Answer
from grove.answers.checks_installed import BIND
from grove.answers.findings import FAIL, SKIP, Finding, painted
from grove.kube.client import Client
from grove.kube.errors import Forbidden

Check = Callable[[], Awaitable[list[Finding]]]

FREE = ("server", "kinds", "rights")
"""Checks whose answers need no rights: what the API server says to every caller."""

FAILED = 1
"""Exit code when a check failed; warnings are for people."""


async def takeover_answer(client: Client, namespace: str, now: datetime) -> Answer:
    """The effects of a takeover, set by set; of one namespace if it is given."""
    return await _answer(
        [
            ("server", lambda: checks_installed.server(client)),
            ("kinds", lambda: checks_takeover.definitions(client)),
            ("operator", lambda: checks_takeover.rivals(client, now)),
            ("takeover", lambda: checks_takeover.takeovers(client, namespace)),
        ]
    )


async def doctor_answer(client: Client, namespace: str, now: datetime) -> Answer:
    return await _answer(
        [
            ("server", lambda: checks_installed.server(client)),
            ("kinds", lambda: checks_installed.kinds(client)),
            ("dialects", lambda: checks_installed.dialects(client, now)),
            ("admission", lambda: checks_installed.admission(client, namespace, now)),
            ("operator", lambda: checks_running.operator(client, now)),
            ("scheduler", lambda: checks_running.scheduler(client, now)),
            ("schedulers", lambda: checks_schedulers.schedulers(client)),
            ("topology", lambda: checks_running.topology(client)),
            ("rights", lambda: checks_installed.rights(client, namespace)),
        ]
    )


async def _answer(checks: list[tuple[str, Check]]) -> Answer:
    findings: list[Finding] = []
    saw_something = False
    for name, check in checks:
        try:
            findings += await check()
            saw_something = saw_something or name not in FREE
        except Forbidden as error:
            findings.append(Finding(name, SKIP, f"you may not look: {error}"))
        if name == "kinds" and any(finding.state == FAIL for finding in findings):
            break  # without the kinds every other question has the same answer
    else:
        if not saw_something:
            text = "nothing of Grove was checked: you may look at none of it"
            findings.append(Finding("rights", FAIL, text, BIND))
    code = FAILED if any(finding.state == FAIL for finding in findings) else RUNNING
    return Answer(findings, lambda width: painted(findings, width), code)
