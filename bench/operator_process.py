"""An operator in a process of its own, for the benchmarks: says its CPU, memory, reconciles and API calls when asked.

`python -m bench.operator_process KUBECONFIG`; every line on stdin is answered by one line of JSON on stdout.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time

from grove.config import load_configuration
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.kube.logs import configure_logs
from grove.kube.metrics import RECONCILES
from grove.kube.run import run_process
from grove.operator.wiring import Operator


async def main(kubeconfig: str, config: str) -> None:
    async with HttpClient(load_config(kubeconfig), user_agent="grove-operator") as client:
        operator = Operator(client, load_configuration(config), startup_image="grove/startup:bench", tune_gc=True)

        def answer() -> None:
            if not sys.stdin.readline():
                return
            usage = {
                "cpu_s": time.process_time(),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "looks": {
                    f"{sample.labels['controller']} {sample.labels['result']}": sample.value
                    for family in RECONCILES.collect()
                    for sample in family.samples
                    if sample.name.endswith("_total") and sample.value
                },
                "calls": {f"{verb} {what}": n for (verb, what), n in sorted(client.calls.items())},
            }
            print(json.dumps(usage), flush=True)

        asyncio.get_running_loop().add_reader(sys.stdin, answer)
        await operator.run(on_ready=lambda: print("ready", flush=True))


if __name__ == "__main__":
    configure_logs("error", "text")
    sys.exit(run_process(lambda: main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")))
