"""The page "How many nodes do I need?": its file, its commands, and its conclusions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec

PAGE = Path(__file__).parents[2] / "docs" / "how-many-nodes.md"


def test_the_runs_lead_to_what_the_page_concludes(tmp_path):
    text = PAGE.read_text()
    (tmp_path / "mine.yaml").write_text(re.findall(r"```yaml\n(.*?)```", text, re.S)[0])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for commands in re.findall(r"```bash\n(.*?)```", text, re.S):
        subprocess.run(["bash", "-e", "-c", commands], cwd=tmp_path, env=os.environ | {"PATH": path}, check=True)
    runs = {n: msgspec.json.decode((tmp_path / f"mine-{n}.json").read_bytes()) for n in (4, 8, 10)}
    served = {n: run["serving"]["chat"]["servedShare"] for n, run in runs.items()}
    still = {n: len(run["stillWaiting"]) for n, run in runs.items()}
    finished = {n: run["batch"]["finished"] for n, run in runs.items()}
    assert served[4] < 0.95 < 0.99 < served[8] <= served[10]
    assert still[4] > still[8] > still[10] == 0
    assert finished[4] < finished[8] < finished[10]
    assert all(run["promises"] == [] for run in runs.values())
