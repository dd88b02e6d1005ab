#!/usr/bin/env python3
"""A load generator: clients that ask without a pause, and a count of what came back. Needs Python only.

    load.py http://localhost:8080 --model tiny-a --clients 4 --seconds 60

Each request opens a new connection, so that a Service spreads them. A request fails if its answer is not complete.
At the end, or at SIGTERM or Ctrl-C, it writes one line of JSON:
{"sent": 120, "answered": 118, "failed": 2, "reasons": {"HTTP 503: ...": 2}, "first_s": 0.4}
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections import Counter

from ask import PROMPT, Failed, OtherModel, answer


class Load:
    """Clients in threads. `stop` lets requests that run end, and returns the counts."""

    def __init__(self, url: str, models: list[str], clients: int, tokens: int, words: int, chat: bool) -> None:
        self._url, self._models, self._tokens, self._words, self._chat = url, models, tokens, words, chat
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._reasons: Counter[str] = Counter()
        self._answered, self._asked = 0, 0
        self._first_s: float | None = None
        self._began = time.monotonic()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number: int) -> None:
        while not self._end.is_set():
            with self._lock:
                self._asked += 1
                turn = self._asked
            # Different words for every request: a prefix cache must not answer.
            prompt = " ".join([PROMPT, *(f"w{number}x{turn}x{word}" for word in range(self._words))])
            reason = self._failure(prompt)
            with self._lock:
                if reason:
                    self._reasons[reason] += 1
                else:
                    self._answered += 1
                    self._first_s = self._first_s or time.monotonic() - self._began
            if reason:
                time.sleep(0.2)

    def _failure(self, prompt: str) -> str:
        """Why a request for the first model got no answer; empty if that model answered, or one of the others."""
        try:
            answer(self._url, self._models[0], prompt, self._tokens, self._chat)
        except OtherModel as error:
            return "" if error.name in self._models else str(error)[:120]
        except Failed as error:
            return str(error)[:120]
        return ""

    def wait(self, seconds: float) -> None:
        self._end.wait(seconds or None)

    def end(self) -> None:
        self._end.set()

    def stop(self) -> dict[str, object]:
        self._end.set()
        for thread in self._threads:
            thread.join()
        failed = sum(self._reasons.values())
        counts: dict[str, object] = {"sent": self._asked, "answered": self._answered, "failed": failed}
        return counts | {"reasons": dict(self._reasons), "first_s": self._first_s and round(self._first_s, 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model", action="append", required=True, help="again: another model may answer as well")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0, help="0: until SIGTERM")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--words", type=int, default=0, help="words that are added to the prompt")
    parser.add_argument("--chat", action="store_true")
    given = parser.parse_args()
    load = Load(given.url, given.model, given.clients, given.tokens, given.words, given.chat)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: load.end())
    load.wait(given.seconds)
    print(json.dumps(load.stop()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
