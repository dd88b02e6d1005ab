"""Writes the Grafana dashboard of the chart, charts/grove/files/dashboard.json: `python tools/dashboard.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "charts" / "grove" / "files" / "dashboard.json"
WIDTH, HEIGHT = 8, 7

ROWS: dict[str, list[tuple[str, str, list[tuple[str, str]]]]] = {
    "Gangs": [
        ("Gangs that wait", "short", [("max(grove_gang_pending)", "waiting")]),
        (
            "Why they wait",
            "short",
            [('sum by (reason) (rate(grove_gang_attempts_total{result!="placed"}[5m]))', "{{reason}}")],
        ),
        ("From created to placed, p95", "s", [("grove:gang_placed_seconds:p95", "placed")]),
        ("From placed to ready, p95", "s", [("grove:gang_ready_seconds:p95", "ready")]),
        (
            "Placement score, mean",
            "percentunit",
            [("sum(rate(grove_placement_score_sum[15m])) / sum(rate(grove_placement_score_count[15m]))", "score")],
        ),
        (
            "Taken back, evicted, restarted",
            "short",
            [
                ("sum(increase(grove_gang_rollbacks_total[1h]))", "taken back"),
                ("sum(increase(grove_preempted_gangs_total[1h]))", "evicted"),
                ("sum(increase(grove_gang_restarts_total[1h]))", "restarted"),
            ],
        ),
    ],
    "Fleet": [
        (
            "Largest gang that still fits, by level",
            "short",
            [("max by (level) (grove_largest_placeable_gang)", "{{level}}")],
        ),
        ("Fragmentation, by level", "percentunit", [("max by (level) (grove_fragmentation_ratio)", "{{level}}")]),
        (
            "Domains chosen",
            "short",
            [("sum by (layer) (rate(grove_topology_domain_selected_total[15m]))", "{{layer}}")],
        ),
    ],
    "GPUs": [
        ("What GPUs are used for", "short", [("sum by (state) (rate(grove_gpu_seconds_total[5m]))", "{{state}}")]),
        (
            "GPUs by team",
            "short",
            [('sum by (queue) (rate(grove_gpu_seconds_total{state!~"idle|waiting"}[5m]))', "{{queue}}")],
        ),
        (
            "GPUs by set, the ten largest",
            "short",
            [
                (
                    'topk(10, sum by (namespace, set) (rate(grove_gpu_seconds_total{state!~"idle|waiting"}[5m])))',
                    "{{namespace}}/{{set}}",
                )
            ],
        ),
        (
            "Idle share",
            "percentunit",
            [
                (
                    'sum(rate(grove_gpu_seconds_total{state="idle"}[5m])) '
                    '/ sum(rate(grove_gpu_seconds_total{state!="waiting"}[5m]))',
                    "idle",
                )
            ],
        ),
        (
            "GPU-hours of the last day, by state",
            "short",
            [("sum by (state) (increase(grove_gpu_seconds_total[1d])) / 3600", "{{state}}")],
        ),
    ],
    "Sets": [
        (
            "Replicas",
            "short",
            [
                ("sum(grove_set_replicas)", "asked for"),
                ("sum(grove_set_replicas_available)", "available"),
                ("sum(grove_set_replicas_outdated)", "outdated"),
            ],
        ),
        ("Updates", "short", [("sum(grove_rollouts)", "under way")]),
        ("An update stands still", "s", [("max(grove_rollout_still_seconds)", "longest")]),
        ("Autoscalers", "short", [("sum by (way) (increase(grove_autoscale_actions_total[1h]))", "{{way}}")]),
    ],
    "Grove itself": [
        (
            "Decision, p99",
            "s",
            [("histogram_quantile(0.99, sum by (le) (rate(grove_gang_decision_seconds_bucket[5m])))", "p99")],
        ),
        (
            "Reconciles",
            "ops",
            [("sum by (controller) (rate(controller_runtime_reconcile_total[5m]))", "{{controller}}")],
        ),
        (
            "Reconcile errors",
            "ops",
            [('sum by (controller) (rate(controller_runtime_reconcile_total{result="error"}[5m]))', "{{controller}}")],
        ),
        ("Work queues", "short", [("max by (name) (workqueue_depth)", "{{name}}")]),
        (
            "Writes to the API server",
            "reqps",
            [('sum by (verb) (rate(grove_api_requests_total{verb!~"get|list|watch"}[5m]))', "{{verb}}")],
        ),
        ("Memory", "bytes", [('process_resident_memory_bytes{job=~".*grove.*"}', "{{pod}}")]),
        ("CPU", "short", [('rate(process_cpu_seconds_total{job=~".*grove.*"}[5m])', "{{pod}}")]),
    ],
}


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(
            {"type": "row", "title": title, "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}, "id": len(panels) + 1}
        )
        y += 1
        for number, (name, unit, queries) in enumerate(row):
            at = {"h": HEIGHT, "w": WIDTH, "x": number % 3 * WIDTH, "y": y + number // 3 * HEIGHT}
            targets = [
                {"expr": expr, "legendFormat": legend, "refId": chr(65 + index)}
                for index, (expr, legend) in enumerate(queries)
            ]
            panels.append(
                {
                    "type": "timeseries",
                    "title": name,
                    "gridPos": at,
                    "id": len(panels) + 1,
                    "targets": targets,
                    "datasource": {"type": "prometheus", "uid": "${source}"},
                    "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                }
            )
        y += -(-len(row) // 3) * HEIGHT
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "title": "Grove",
        "uid": "grove",
        "schemaVersion": 39,
        "version": 1,
        "tags": ["grove"],
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


if __name__ == "__main__":
    TARGET.write_text(json.dumps(dashboard(), indent=1) + "\n")
