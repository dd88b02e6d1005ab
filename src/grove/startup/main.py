"""`grove startup --podcliques=<name>:<minimum> …`: exits 0 once every parent has its minimum of pods.

A pod counts when it is Ready. `--condition=Started` counts pods whose containers run, `--condition=Created` pods that
have a node. The argument is absent for Ready: pods of operators without this feature have the same arguments.

Exit 1, with one line that says why, when waiting cannot help: wrong arguments, files that are not mounted, SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from grove.startup.parents import CLIQUE_LABEL, CONDITIONS, GANG_LABEL, READY, BadArgument, Readiness, parse_parents
from grove.startup.pods import SERVICE_ACCOUNT, CannotStart, PodWatch

POD_INFO = Path("/var/grove/pod-info")
SAY_EVERY_S = 60.0


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadArgument(message)


def main(argv: Sequence[str]) -> int:
    try:
        arguments = _parser().parse_args(argv)
        _wait(parse_parents(arguments.podcliques), arguments.condition, arguments.pod_info, arguments.account)
    except (BadArgument, CannotStart) as error:
        print(f"grove startup: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Arguments(prog="grove startup", description="Wait for the pods that this pod starts after.")
    parser.add_argument(
        "-p",
        "--podcliques",
        action="append",
        default=[],
        metavar="NAME:MINIMUM",
        help="a parent, and how many of its pods must satisfy the condition",
    )
    parser.add_argument("--condition", choices=CONDITIONS, default=READY, help="what a pod must be to count")
    parser.add_argument("--pod-info", type=Path, default=POD_INFO, help="where the downward API files are mounted")
    parser.add_argument("--account", type=Path, default=SERVICE_ACCOUNT, help="where token and ca.crt are mounted")
    return parser


def _wait(parents: dict[str, int], condition: str, pod_info: Path, account: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_stop_on_signal, daemon=True).start()
    namespace, gang = _mounted(pod_info / "namespace"), _mounted(pod_info / "podgangname")
    selector = f"{GANG_LABEL}={gang},{CLIQUE_LABEL} in ({','.join(sorted(parents))})"
    readiness = Readiness(parents, condition, now=time.time)
    watch = PodWatch(namespace, selector, say=_say, account=account)
    shown, shown_at, listed = "", 0.0, False
    for kind, pod in watch.events():
        if pod is None:
            listed = kind != "LIST"
            if not listed:
                readiness.forget()
        elif kind == "DELETED":
            readiness.lost(pod)
        else:
            readiness.saw(pod)
        if not listed:
            continue  # an old pod with the host name of a parent may be further down the list
        if readiness.is_enough:
            _say(f"all are {condition.lower()}: {readiness}")
            return
        if str(readiness) != shown or time.monotonic() - shown_at > SAY_EVERY_S:
            shown, shown_at = str(readiness), time.monotonic()
            _say(f"waiting for {shown}" + ("" if condition == READY else f" {condition}"))


def _mounted(path: Path) -> str:
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise CannotStart(f"cannot read {path}: {error.strerror}") from error
    if not text:
        raise CannotStart(f"{path} is empty")
    return text


def _say(line: str) -> None:
    print(f"grove startup: {line}", flush=True)


def _stop_on_signal() -> None:
    """A thread of its own: a handler would not run before a read that began just after the signal came to its end."""
    signal.sigwait({signal.SIGTERM})
    print("grove startup: asked to stop before all parents were there", file=sys.stderr, flush=True)
    os._exit(1)
