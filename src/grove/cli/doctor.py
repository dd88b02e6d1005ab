"""`doctor`: is Grove installed, reachable and complete here? Every finding comes with its remedy.

Each check is one function that asks one question (`checks_installed`, `checks_running`). A check the user has no rights
for is skipped and says so; the others still answer. When none is left, that is a fault too: silence is not health.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from grove.cli.access import RUNNING, Answer, Options, answer, cluster_command

if TYPE_CHECKING:
    from grove.cli.findings import Finding
    from grove.kube.client import Client

    Check = Callable[[], Awaitable[list[Finding]]]

FREE = ("server", "kinds", "rights")
"""Checks that answer everybody: what a server says to whoever asks, and tells of nothing that runs."""
FAILED = 1
"""Exit code when a check failed; warnings are for people."""


@click.command()
@click.option(
    "--takeover", is_flag=True, help="Only say what will happen to sets that the Go operator made, in all namespaces."
)
@cluster_command()
def doctor(options: Options, takeover: bool) -> int:
    """Check the server, CRDs, admission, operator, schedulers, node labels and your rights; say how to mend faults.

    Nothing is written: whether admission answers is asked by a dry run. Exit codes: 0 no fault, 1 something failed or
    you may look at nothing.
    """
    now = datetime.now(UTC)
    if takeover:
        return answer(options, lambda client, _: takeover_answer(client, options.namespace, now))
    return answer(options, lambda client, namespace: doctor_answer(client, namespace, now))


async def takeover_answer(client: Client, namespace: str, now: datetime) -> Answer:
    """What moving in will do, set by set; of one namespace if one is named."""
    from grove.cli import checks_installed, checks_takeover

    return await _answer(
        [
            ("server", lambda: checks_installed.server(client)),
            ("kinds", lambda: checks_takeover.definitions(client)),
            ("operator", lambda: checks_takeover.rivals(client, now)),
            ("takeover", lambda: checks_takeover.takeovers(client, namespace)),
        ]
    )


async def doctor_answer(client: Client, namespace: str, now: datetime) -> Answer:
    from grove.cli import checks_installed, checks_running, checks_schedulers

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
    from grove.cli.checks_installed import BIND
    from grove.cli.findings import FAIL, SKIP, Finding, painted
    from grove.kube.errors import Forbidden

    found: list[Finding] = []
    saw_something = False
    for name, check in checks:
        try:
            found += await check()
            saw_something = saw_something or name not in FREE
        except Forbidden as error:
            found.append(Finding(name, SKIP, f"you may not look: {error}"))
        if name == "kinds" and any(one.state == FAIL for one in found):
            break  # without the kinds every other question has the same answer
    else:
        if not saw_something:
            text = "nothing of Grove was checked: you may look at none of it"
            found.append(Finding("rights", FAIL, text, BIND))
    code = FAILED if any(one.state == FAIL for one in found) else RUNNING
    return Answer(found, lambda width: painted(found, width), code)
