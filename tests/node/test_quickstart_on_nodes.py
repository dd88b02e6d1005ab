"""docs/quickstart.md followed on two real nodes, from `helm install` to an answered request and back.

Commands that need kind, k3s or a registry are marked on the page and not run here. The chart's llama.cpp preset is what
the page installs, so its answer is the proof of that preset too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grove.local import gobuild
from grove.local.binaries import cache_root
from grove.local.nodes.cluster import RealCluster
from tests.node.conftest import IMAGES
from tests.support import quickstart

ROOT = Path(__file__).parents[2]
ARCHIVES = ("grove.tar", "grove-initc.tar", "engines/llama-cpp-rpc.tar")


@pytest.fixture(scope="module")
def shell(bare_nodes: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A shell in the checkout, with helm and kubectl, on a cluster whose nodes have the images."""
    for archive in ARCHIVES:
        bare_nodes.import_image(IMAGES / archive)
    programs = tmp_path_factory.mktemp("bin")
    (programs / "helm").symlink_to(os.environ.get("HELM") or gobuild.build_helm(cache_root()))
    (programs / "kubectl").symlink_to(bare_nodes.kubectl_program)
    homes = {f"HELM_{kind}_HOME": str(programs / "home") for kind in ("CACHE", "CONFIG", "DATA")}
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **homes, "PATH": path, "KUBECONFIG": str(bare_nodes.kubeconfig)}
    with subprocess.Popen(
        ["bash"],
        cwd=ROOT,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as running:
        yield running
        assert running.stdin is not None
        running.stdin.write("kill $(jobs -p) 2> /dev/null\nexit\n")
        running.stdin.flush()


def said(shell: subprocess.Popen[str], command: str) -> tuple[int, str]:
    """Exit code of a command that is typed into the shell, and what it writes."""
    assert shell.stdin is not None
    assert shell.stdout is not None
    shell.stdin.write(
        f'{command}\necho; echo "the end: $?"\n'
        if command.endswith("&")
        else f'{command}; code=$?; echo; echo "the end: $code"\n'
    )
    shell.stdin.flush()
    lines: list[str] = []
    while not (line := shell.stdout.readline()).startswith("the end: "):
        assert line, f"the shell ended after: {command}\n{''.join(lines)}"
        lines.append(line)
    return int(line.split()[-1]), "".join(lines).strip()


def test_every_command_of_the_page_works_and_the_request_is_answered(
    shell: subprocess.Popen[str], bare_nodes: RealCluster
) -> None:
    answers = []
    for command in quickstart.run_here():
        code, text = said(shell, command)
        print(f"$ {command}\n{text}")
        assert code == 0, f"{command}\n{text}\n{bare_nodes.why()}"
        if command.startswith("curl "):
            answers.append(json.loads(text))
    (answer,) = answers
    assert answer["model"] == "tiny-a"
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["choices"][0]["text"] != ""
    # The set is gone as soon as its pods are being deleted; their containers have a minute to end.
    of_chat = ("--selector", "app.kubernetes.io/part-of=chat")
    said(shell, f"kubectl wait pods {' '.join(of_chat)} --for=delete --timeout=5m")
    assert bare_nodes.get("pods", *of_chat)["items"] == []
