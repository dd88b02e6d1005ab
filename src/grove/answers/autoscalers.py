"""Reads autoscalers for answers about sets."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from grove.answers.answer import Answer
from grove.api import labels
from grove.api.core import HorizontalPodAutoscaler
from grove.api.meta import Object
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.diagnosis.autoscalers import ScalerLine
from grove.diagnosis.seen import every
from grove.kube.client import Client
from grove.kube.errors import Forbidden, NotFound
from grove.show.columns import table


async def read_autoscalers(client: Client, namespace: str) -> list[HorizontalPodAutoscaler]:
    """All of a namespace, or of all; none where they are not served or may not be read."""
    try:
        return await every(client, HorizontalPodAutoscaler, namespace)
    except (Forbidden, NotFound):
        return []


def with_autoscalers(answer: Answer, lines: list[ScalerLine], *, everywhere: bool) -> Answer:
    """An answer of one row a set, with the autoscalers of each: in the data, and as a table below the picture."""
    if not lines:
        return answer
    rows: list[Any] = [
        {**asdict(row), "autoscalers": [_data(line) for line in lines if _belongs(line, row)]} for row in answer.data
    ]

    def paint(width: int) -> RenderableType:
        return Group(answer.paint(width), Text(""), scaler_table(lines, width, everywhere=everywhere))

    return replace(answer, data=rows, paint=paint)


def scaler_table(lines: list[ScalerLine], width: int, *, everywhere: bool = False) -> RenderableType:
    titles = ("NAMESPACE", "AUTOSCALER", "REPLICAS", "LIMITS", "METRICS", "WHY IT DOES NOT MOVE")
    rows = [
        (
            line.namespace,
            line.name,
            # An autoscaler that asks for 0 although its minimum is higher has computed nothing yet.
            f"{line.current}"
            if line.desired in (line.current, 0 if line.least else -1)
            else f"{line.current} → {line.desired}",
            f"{line.least}–{line.most}",
            ", ".join(line.measures),
            line.why,
        )
        for line in lines
    ]
    return table(titles, rows, width, may_go=("LIMITS",) if everywhere else ("NAMESPACE", "LIMITS"))


def measured_clique(scaled: Object, pcs: PodCliqueSet) -> str:
    """The clique whose first pod stands for a unit of what is scaled; empty for a clique, whose pods all count."""
    template = pcs.spec.template
    if isinstance(scaled, PodCliqueSet):
        return template.metrics_clique(pcs.metadata.annotations)
    if isinstance(scaled, PodCliqueScalingGroup):
        replica = scaled.metadata.labels.get(labels.REPLICA_INDEX, "0")
        prefix = f"{pcs.metadata.name}-{replica}-"
        config = template.find_group(scaled.metadata.name.removeprefix(prefix))
        return template.metrics_clique_of(config) if config is not None else ""
    return ""


def _belongs(line: ScalerLine, row: Any) -> bool:
    return (line.namespace, line.set_name) == (row.namespace, row.name)


def _data(line: ScalerLine) -> dict[str, Any]:
    return {
        "name": line.name,
        "replicas": line.current,
        "desired": line.desired,
        "minReplicas": line.least,
        "maxReplicas": line.most,
        "metrics": list(line.measures),
        "why": line.why,
    }
