"""`doctor`: is Grove installed, reachable and complete here? Every finding comes with its remedy.

Each check is one function that asks one question (`checks_installed`, `checks_running`). A check the user has no rights
for is skipped and says so; the others still answer. When none is left, that is a fault too: silence is not health.
"""

from __future__ import annotations

from datetime import UTC, datetime

import click

from grove.cli.access import Options, answer, cluster_command


@click.command()
@click.option(
    "--takeover", is_flag=True, help="Only say what happens to sets that the Go operator made, in all namespaces."
)
@cluster_command()
def doctor(options: Options, takeover: bool) -> int:
    """Check the server, CRDs, admission, operator, schedulers, node labels and your rights; say how to correct faults.

    Writes nothing: a dry run asks whether admission answers. Exit codes: 0 no fault, 1 something failed or
    you have no right to read.
    """
    from grove.answers.doctor import doctor_answer, takeover_answer

    now = datetime.now(UTC)
    if takeover:
        return answer(options, lambda client, _: takeover_answer(client, options.namespace, now))
    return answer(options, lambda client, namespace: doctor_answer(client, namespace, now))
