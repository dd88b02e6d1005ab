"""Examples for the end of every `--help`: lines to copy, as people type them."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "completion": ("kubectl grove completion bash > ~/.local/share/bash-completion/completions/kubectl-grove",),
    "console": (
        "kubectl grove console",
        "kubectl grove console --context prod --no-open --port 8321",
        "kubectl grove console --prometheus http://127.0.0.1:9090 --grafana https://grafana.example.com",
    ),
    "convert": ("kubectl grove convert old.yaml > new.yaml", "kubectl grove convert --to grove.ai set.yaml"),
    "crds": ("grove crds --apply --dialects", "grove crds > crds.yaml"),
    "demo": ("grove demo", "grove demo --seed 7 --speed 4"),
    "doctor": ("kubectl grove doctor",),
    "down": ("grove down",),
    "events": (
        "kubectl grove events chat",
        "kubectl grove events pod/chat-0-worker-x2k4p",
        "kubectl grove events chat -w",
    ),
    "takeover": ("kubectl grove takeover", "kubectl grove takeover --back --dry-run", "kubectl grove takeover --back"),
    "explain": ("kubectl grove explain chat", "kubectl grove explain pg/chat-0", "kubectl grove explain chat -o json"),
    "exec": ("kubectl grove exec chat/decode/0 leader -- nvidia-smi", "kubectl grove exec chat/front -it -- sh"),
    "repack": (
        "kubectl grove repack --for chat",
        "kubectl grove repack --for chat --apply",
        "kubectl grove repack --fleet",
    ),
    "restart": (
        "kubectl grove restart chat/decode/1",
        "kubectl grove restart pg/chat-0 --dry-run",
        "kubectl grove restart chat --yes --no-follow",
    ),
    "fleet": (
        "grove fleet lab --for 7d",
        "grove fleet company --json company.json --html company.html",
        "grove fleet --compare before.json after.json",
    ),
    "logs": (
        "kubectl grove logs chat --tail 20",
        "kubectl grove logs chat/decode/0 leader -f",
        "kubectl grove logs chat/decode --since 10m",
    ),
    "metrics": ("grove metrics --port 6443",),
    "nodes": ("grove nodes --count 16 --gpus 8",),
    "operator": ("grove operator --config operator.yaml",),
    "plan": (
        "kubectl grove plan -f samples/disaggregated.yaml",
        "kubectl grove plan --scale chat/decode=4",
        "kubectl grove plan --drain node-7",
    ),
    "queue": ("kubectl grove queue -A", "kubectl grove queue -w"),
    "record": ("grove record --for 8h --out mine.yaml",),
    "replay": ("grove replay /var/lib/grove/journal",),
    "reserve": (
        "kubectl grove reserve -f samples/disaggregated.yaml --for 2h",
        "kubectl grove reserve chat --standing 1",
    ),
    "rollout": ("kubectl grove rollout status chat", "kubectl grove rollout undo chat --to-revision 3"),
    "rollout history": ("kubectl grove rollout history chat", "kubectl grove rollout history chat --revision 2"),
    "rollout pause": ("kubectl grove rollout pause chat",),
    "rollout promote": ("kubectl grove rollout promote chat --to 1", "kubectl grove rollout promote chat/decode --yes"),
    "rollout restart": ("kubectl grove rollout restart chat",),
    "rollout resume": ("kubectl grove rollout resume chat",),
    "rollout status": ("kubectl grove rollout status chat", "kubectl grove rollout status chat -w"),
    "rollout undo": ("kubectl grove rollout undo chat", "kubectl grove rollout undo chat --to-revision 3"),
    "scale": (
        "kubectl grove scale chat 2",
        "kubectl grove scale chat/decode 4 --replica 0",
        "kubectl grove scale chat/decode 0 --dry-run",
    ),
    "scaleref": ("kubectl grove scaleref chat/decode",),
    "scheduler": ("grove scheduler --config scheduler.yaml",),
    "simulate": ("grove simulate -f samples/disaggregated.yaml",),
    "startup": ("grove startup --podcliques chat-0-leader:1",),
    "status": ("kubectl grove status -A", "kubectl grove status -l team=search --sort-by gpus -o wide"),
    "top": ("kubectl grove top", "kubectl grove top -A"),
    "topology": ("kubectl grove topology", "kubectl grove topology --svg fleet.svg"),
    "tree": ("kubectl grove tree chat", "kubectl grove tree chat -w --no-pods"),
    "up": ("grove up", "grove up --nodes 64", "grove up status", "grove up --foreground", "grove up --dialects"),
    "usage": (
        "kubectl grove usage",
        "kubectl grove usage -A --since 168h --prometheus http://prometheus.monitoring:9090",
        "kubectl grove usage -A --prices prices.yaml -o json",
    ),
    "version": ("grove version",),
    "webhooks": ("grove webhooks", "grove webhooks --remove"),
}


def epilog(name: str) -> str | None:
    """The examples of a command, as lines that click does not fill; None for one without any."""
    lines = EXAMPLES.get(name, ())
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) if lines else None
