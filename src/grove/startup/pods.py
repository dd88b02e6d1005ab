"""Reads and watches pods with the in-cluster credentials: blocking, one connection, standard library only.

If an error can pass by itself, the request is tried again after a growing pause, and the caller never sees it. Such
errors are: no connection, no rights yet, an empty token, an expired version. Every other error is `CannotStart`.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from grove.startup.parents import CLIQUE_LABEL

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE = 50
"""Pods a page: a gang may have hundreds, and we want to stay small."""
KEPT = frozenset(
    (
        "metadata",
        "resourceVersion",
        "continue",
        "items",
        "name",
        "labels",
        CLIQUE_LABEL,
        "deletionTimestamp",
        "status",
        "conditions",
        "type",
        "object",
        "code",
        "message",
        "phase",
        "containerStatuses",
        "state",
        "running",
        "spec",
        "hostname",
        "nodeName",
    )
)
"""What is read of a page or an event, at any depth."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
CONNECT_S, ANSWER_S = 10.0, 30.0
WATCH_S = 300
SILENCE_S = 90.0
"""A watch that says nothing for so long is begun again: its server may be lost. There are bookmarks once a minute, but
only while something is newer, so silence alone is no fault."""

Say = Callable[[str], None]


def _parsed(text: bytes) -> Any:
    """The fields of an answer that the start order reads. Whole pods would need more memory than the container has."""
    return json.loads(text, object_pairs_hook=lambda pairs: {key: value for key, value in pairs if key in KEPT})


class CannotStart(Exception):
    """Something a retry cannot correct: the pod was built wrongly."""


class _Expired(Exception):
    """The version we watch from is too old; list again."""


class _Refused(Exception):
    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"the API server answered {status}: {body[:200]}")
        self.status = status


def _next_line(response: http.client.HTTPResponse) -> bytes:
    """The next event of a watch; empty at its end, and after a long silence."""
    try:
        return response.readline()
    except TimeoutError:
        return b""


class PodWatch:
    """The pods of a namespace under a selector, as a stream of events that never ends by itself."""

    def __init__(self, namespace: str, selector: str, *, say: Say, account: Path = SERVICE_ACCOUNT) -> None:
        self._say, self._account = say, account
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        self._selector = selector
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise CannotStart("KUBERNETES_SERVICE_HOST is not set: this runs inside a pod only")
        self._address = (host, int(port))
        self._connection: http.client.HTTPSConnection | None = None

    def events(self) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """("LIST", None) means: forget what you know, all pods follow, and ("LISTED", None) after the last of them.

        ("QUIET", None) comes when a watch has ended: nothing is new but the time.
        """
        version, pause = "", FIRST_PAUSE_S
        while True:
            try:
                if not version:
                    yield "LIST", None
                    listed = ""
                    for page in self._pages():
                        listed = page["metadata"]["resourceVersion"]
                        for pod in page.get("items") or ():
                            yield "ADDED", pod
                    version = listed  # only now: a list that broke off halfway must start over
                    yield "LISTED", None
                for kind, pod in self._watch(version):
                    version = pod["metadata"]["resourceVersion"]
                    pause = FIRST_PAUSE_S
                    if kind != "BOOKMARK":
                        yield kind, pod
                yield "QUIET", None
                continue  # the server ended the watch in good order; go on from where we are
            except _Expired:
                version = ""
                continue
            except (OSError, http.client.HTTPException, ValueError, KeyError, _Refused) as error:
                self._say(f"cannot watch pods yet: {error}; trying again in {pause:.1f} s")
            finally:
                self._hang_up()
            time.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _pages(self) -> Iterator[dict[str, Any]]:
        more = ""
        while True:
            query = {"labelSelector": self._selector, "limit": str(PAGE)}
            if more:
                query["continue"] = more
            page = _parsed(self._get(query).read())
            yield page
            more = page["metadata"].get("continue", "")
            if not more:
                return

    def _watch(self, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
        query = {
            "labelSelector": self._selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        response = self._get(query, silence_s=SILENCE_S)
        while line := _next_line(response):
            event = _parsed(line)
            if event["type"] == "ERROR":
                if event["object"].get("code") == 410:
                    raise _Expired
                raise _Refused(int(event["object"].get("code", 500)), str(event["object"].get("message", "")))
            yield event["type"], event["object"]

    def _get(self, query: dict[str, str], silence_s: float = ANSWER_S) -> http.client.HTTPResponse:
        """An answer that has begun; the reader waits no longer than `silence_s` for more of it."""
        if self._connection is None:
            context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
            # Python 3.13 sets this flag; certificates of many private cluster authorities lack what it asks for.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            self._connection = http.client.HTTPSConnection(*self._address, context=context, timeout=CONNECT_S)
        if self._connection.sock is None:
            self._connection.connect()
        line = self._connection.sock
        line.settimeout(ANSWER_S)
        # Read each time: the token may not be filled in yet when the pod starts, and it may be rotated later.
        token = (self._account / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "User-Agent": "grove-startup"}
        self._connection.request("GET", f"{self._path}?{urlencode(query)}", headers=headers)
        response = self._connection.getresponse()
        if response.status == 410:
            raise _Expired
        if response.status != 200:
            raise _Refused(response.status, response.read(2000).decode(errors="replace"))
        line.settimeout(silence_s)
        return response

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
