"""The leader: writes the host file from Grove's names and runs mpiexec, again and again.

    leader.py HOSTS PROCESSES PROGRAM      HOSTS are separated by commas

The pod stays: a leader that ends would be started again by the kubelet. Its state is in /tmp/answer: the last line
that the program wrote. A run that fails ends the leader, so that a missing worker is seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

PERIOD_S = float(os.environ.get("PERIOD_S", "30"))


def main(hosts: list[str], processes: str, program: str) -> None:
    listed = Path("/tmp/hosts")  # noqa: S108
    listed.write_text("".join(f"{host}\n" for host in hosts))
    # Workers connect back to mpiexec, and only the full name of a pod resolves on other nodes.
    own = "{GROVE_PCLQ_NAME}-{GROVE_PCLQ_POD_INDEX}.{GROVE_HEADLESS_SERVICE}".format_map(os.environ)
    command = ["mpiexec", "-localhost", own, "-launcher", "ssh", "-f", str(listed), "-n", processes, sys.executable, program]
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(done.stdout + done.stderr, end="", flush=True)
        if done.returncode:
            sys.exit(f"mpiexec ended with {done.returncode}")
        Path("/tmp/answer").write_text(done.stdout.strip().splitlines()[-1])  # noqa: S108
        time.sleep(PERIOD_S)


if __name__ == "__main__":
    main(sys.argv[1].split(","), sys.argv[2], sys.argv[3])
