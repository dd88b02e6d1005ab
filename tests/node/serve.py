"""A server for the containers of these tests: not ready until told, and it knows to the millisecond when it began.

GET /ready is its readiness probe; POST /ready and POST /unready change the answer; GET /began is the time of its start.
"""

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BEGAN = time.time()
PORT = 8080
told = {"ready": False}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(200 if self.path == "/began" or told["ready"] else 503)

    def do_POST(self) -> None:
        told["ready"] = self.path == "/ready"
        self._answer(200)

    def _answer(self, status: int) -> None:
        body = f"{BEGAN:.3f}".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("", PORT), Answers).serve_forever()
