#!/usr/bin/env python3
"""Asks an OpenAI-compatible server a question and looks at the answer. Needs Python only.

    ask.py http://localhost:8080 --model tiny-a             one question, one answer
    ask.py http://localhost:8080 --model tiny-a --repeat 3  greedy decoding: every answer must be the same

Ends with 0 if the server answered as it should, else with 1 and the reason.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.request

PROMPT = "How do I open a file and read its lines?"


class Failed(Exception):
    """The server did not answer as it should; the text says how."""


class OtherModel(Failed):
    """Another model answered."""

    def __init__(self, name: object, wanted: str) -> None:
        super().__init__(f"the model {name!r} answered, not {wanted!r}")
        self.name = name


def answer(url: str, model: str, prompt: str, tokens: int, chat: bool = False, timeout_s: float = 60.0) -> str:
    """The text that the model adds to a prompt, or raises Failed."""
    body: dict[str, object] = {"model": model, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    body |= {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
    path = "/v1/chat/completions" if chat else "/v1/completions"
    request = urllib.request.Request(
        url.rstrip("/") + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as got:
            found = json.load(got)
    except urllib.error.HTTPError as error:
        raise Failed(f"HTTP {error.code}: {error.read(300).decode(errors='replace')}") from error
    except (OSError, ValueError) as error:
        raise Failed(str(error) or type(error).__name__) from error
    if found.get("model") != model:
        raise OtherModel(found.get("model"), model)
    written = found.get("usage", {}).get("completion_tokens")
    if written != tokens:
        raise Failed(f"{tokens} tokens were asked for, and {written} came")
    choice = found["choices"][0]
    text: str = choice["message"]["content"] if chat else choice["text"]
    if not text.strip():
        raise Failed("the answer is empty")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--chat", action="store_true", help="ask /v1/chat/completions")
    parser.add_argument("--repeat", type=int, default=1, help="how often to ask; the answers must be equal")
    given = parser.parse_args()
    texts = []
    for _ in range(given.repeat):
        began = time.monotonic()
        try:
            text = answer(given.url, given.model, given.prompt, given.tokens, given.chat)
        except Failed as error:
            print(f"asked {given.url}: no answer: {error}", file=sys.stderr)
            return 1
        print(f"asked     {given.prompt}\nanswered  {text!r} in {time.monotonic() - began:.2f} s", flush=True)
        texts.append(text)
    if len(set(texts)) > 1:
        print("the answers differ", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
