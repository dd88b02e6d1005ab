"""The HTTPS server in front of the rules: decode, fetch what the rules ask for, answer.

A fault inside becomes an answer with status 500 and a line in the log, never a dropped connection. With failure policy
Fail, a webhook that does not answer stops every write of its kinds. All replicas serve, leader or not.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec
import structlog
from aiohttp import web

from grove.admission.certs.serving import ServedCertificate
from grove.admission.rules.request import Answer, BadReview, Request, envelope
from grove.admission.rules.review import VALIDATE_SET, Admission
from grove.admission.serving.reader import ClusterReader
from grove.admission.serving.registration import WEBHOOK_NAMES
from grove.api.faults import failure_status
from grove.api.fields import mapping, text
from grove.api.meta import Json
from grove.kube.handover import HandOver
from grove.kube.tracing import Traces

LARGEST_OBJECT = 3 * 1024 * 1024
"""What an API server takes as the body of a request."""
LARGEST_BODY = 2 * LARGEST_OBJECT + 1024 * 1024
"""A review carries two objects in an envelope that names kinds, options and all groups of the user."""
BODY_S = 10.0
"""As long as an API server waits for the answer. Any client in the cluster may connect and then send nothing."""
SHUTDOWN_S = 5.0

log = structlog.get_logger(__name__)


class WebhookServer:
    """Serves `admission` over TLS. `start` returns when it listens; `port` 0 takes a free one."""

    def __init__(
        self,
        admission: Admission,
        reader: ClusterReader,
        certificate: ServedCertificate,
        *,
        host: str = "",
        port: int = 9443,
        traces: Traces | None = None,
        hand_over: HandOver | None = None,
    ) -> None:
        self.admission, self._reader, self._certificate = admission, reader, certificate
        self._hand_over = hand_over
        self._host, self.port, self._traces = host, port, traces
        self._runner: web.AppRunner | None = None

    @property
    def is_serving(self) -> bool:
        return self._runner is not None and self._certificate.is_loaded

    async def start(self) -> None:
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        site = web.TCPSite(runner, self._host or None, self.port, ssl_context=self._certificate.listening)
        try:
            await site.start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        self.port = runner.addresses[0][1]
        log.info("webhook server listens", port=self.port)

    async def stop(self) -> None:
        """Stops listening, lets reviews under way finish."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def application(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY)
        for path in WEBHOOK_NAMES:
            app.router.add_post(path, self._review)
        if self._hand_over is not None:
            self._hand_over.watch(app)
        return app

    async def _review(self, http: web.Request) -> web.Response:
        path = http.path
        try:
            async with asyncio.timeout(BODY_S):
                body = await http.read()
        except TimeoutError:
            return _plain(408, f"the review did not come within {BODY_S:g} s")
        except web.HTTPRequestEntityTooLarge:
            return _plain(413, f"the review is larger than {LARGEST_BODY} bytes")
        try:
            request = Request.of(msgspec.json.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadReview) as error:
            return _plain(400, f"not an AdmissionReview: {error}")
        began = self._traces.now() if self._traces is not None else None
        try:
            known = await self._reader.fetch(self.admission.needs(path, request))
            answered = self.admission.review(path, request, known)
            payload = msgspec.json.encode(answered)
        except Exception as error:
            log.exception("review failed", path=path, uid=request.uid)
            status = failure_status(500, "InternalError", f"admission failed: {type(error).__name__}: {error}")
            answered = envelope(request.uid, Answer(status))
            payload = msgspec.json.encode(answered)
        if self._traces is not None and began is not None and path == VALIDATE_SET:
            self._record(self._traces, began, request, mapping(answered.get("response")))
        return web.Response(body=payload, content_type="application/json")

    def _record(self, traces: Traces, began: datetime, request: Request, response: Json) -> None:
        """Validation is traced, and not defaulting: the API server gives a new object its uid in between."""
        uid = text(mapping(request.new.get("metadata")).get("uid"))
        if uid and not request.raw.get("dryRun"):
            refused = text(mapping(response.get("status")).get("message")) if not response.get("allowed") else ""
            traces.record(uid, "admission", began, attributes={"operation": request.operation}, error=refused)


def _plain(code: int, message: str) -> web.Response:
    reason = {400: "BadRequest", 408: "Timeout", 413: "RequestEntityTooLarge"}[code]
    body = {"apiVersion": "v1", "kind": "Status", **failure_status(code, reason, message)}
    return web.Response(status=code, body=msgspec.json.encode(body), content_type="application/json")
