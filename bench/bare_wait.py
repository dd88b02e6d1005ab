"""The least that waiting for a parent costs: an interpreter and the standard library, one list, one watch, the end.

    python -m bench.bare_wait ACCOUNT_FOLDER CLIQUE

It does the work of `grove startup` for one parent clique of one pod, and nothing else. It has no order of parents, and
accepts only the right answer.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
from pathlib import Path
from urllib.parse import quote


def main(account: Path, clique: str) -> None:
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    server = http.client.HTTPSConnection(host, port, context=tls)
    headers = {"Authorization": f"Bearer {(account / 'token').read_text()}"}
    path = f"/api/v1/namespaces/default/pods?labelSelector={quote(f'grove.io/podclique={clique}')}"
    server.request("GET", path, headers=headers)
    pods = json.loads(server.getresponse().read())
    print("waiting for", clique, flush=True)
    version = pods["metadata"]["resourceVersion"]
    server.request("GET", f"{path}&watch=true&resourceVersion={version}", headers=headers)
    for line in server.getresponse():
        conditions = json.loads(line)["object"]["status"].get("conditions") or ()
        if any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
