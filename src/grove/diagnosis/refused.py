"""Why the API server refuses the pods of a clique, what to do about it, and the command that does it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from grove.api.podclique import PodClique
from grove.api.quantity import amount, format_amount
from grove.diagnosis.words import refusal

Refused = Sequence[tuple[PodClique, str]]
"""Cliques with the errors of the API server."""

_QUOTA = re.compile(r"exceeded quota: ([^,\s]+), requested: (\S+), used: (\S+), limited: (\S+)")
_ACCOUNT = re.compile(r"service account ([^/\s]+)/([^:\s]+): .*not found")
_LIMIT = re.compile(r"(?:maximum|minimum) \S+ usage per \w+ is [^,\s]+(?:, but (?:limit|request) is [^,\s]+)?")
_SILENT = re.compile(r'failed calling webhook "([^"]+)"')
_DENIED = re.compile(r'admission webhook "([^"]+)" denied the request: ([^\n]+)')
_PRIORITY = re.compile(r"no PriorityClass with name (\S+) was found")


def why_refused(refused: Refused) -> tuple[str, str, str, str]:
    """The level of the cause, the reason, the step, and the command of the step where there is one."""
    quota = next((error for _, error in refused if "quota" in error), None)
    if quota is not None:
        return "quota", _full(quota), "raise the quota, or scale something else down", raised_quota(refused)
    unknown = (refusal(refused[0][1]), "correct what the API server refuses", "")
    cause, step, command = next(filter(None, (_known(error) for _, error in refused)), unknown)
    return "create", f"pods of {refused[0][0].metadata.name} cannot be created: {cause}", step, command


def _full(error: str) -> str:
    """Which quota is used up, and what a pod asks for, from the refusal of the API server."""
    match = _QUOTA.search(error)
    if match is None:
        return f"a ResourceQuota does not let its pods be created: {refusal(error)}"
    asked, used, limit = (_amounts(match[group]) for group in (2, 3, 4))
    each = [
        f"{name} {used.get(name, '0')} of {limit.get(name, '?')} used, a pod asks for {size}"
        for name, size in asked.items()
    ]
    return f"ResourceQuota {match[1]} is full: {'; '.join(each)}"


def _amounts(text: str) -> dict[str, str]:
    """The resources of `pods=1,requests.nvidia.com/gpu=8`."""
    return dict(part.split("=", 1) for part in text.rstrip(",").split(","))


def raised_quota(refused: Refused) -> str:
    """The command that raises a ResourceQuota by what the missing pods of these cliques ask for."""
    quota, hard = "", dict[str, int]()
    for clique, match in {clique.metadata.name: (clique, _QUOTA.search(error)) for clique, error in refused}.values():
        if match is None or quota not in ("", match[1]):
            continue
        quota, missing = match[1], clique.spec.replicas - clique.status.replicas
        asked, used = _amounts(match[2]), _amounts(match[3])
        for resource, size in asked.items():
            before = hard.get(resource, amount(_unit(resource), used.get(resource, "0")))
            hard[resource] = before + missing * amount(_unit(resource), size)
    if not quota:
        return ""
    texts = {resource: format_amount(_unit(resource), total) for resource, total in hard.items()}
    patch = json.dumps({"spec": {"hard": texts}}, separators=(",", ":"))
    return f"kubectl -n {refused[0][0].metadata.namespace} patch resourcequota {quota} -p '{patch}'"


def _unit(resource: str) -> str:
    return resource.removeprefix("requests.").removeprefix("limits.")


def _known(error: str) -> tuple[str, str, str] | None:
    """Why the API server does not let a pod be made, what to do about it, and the command, for what happens often."""
    if match := _ACCOUNT.search(error):
        command = f"kubectl -n {match[1]} create serviceaccount {match[2]}"
        return f"there is no ServiceAccount {match[2]}", "create it, or correct serviceAccountName", command
    if match := _PRIORITY.search(error):
        return f"there is no PriorityClass {match[1]}", "create it, or correct priorityClassName", ""
    if match := _LIMIT.search(error):
        step = "correct the resources of the pod template, or the LimitRange of the namespace"
        return f"LimitRange: {match[0]}", step, ""
    if match := _SILENT.search(error):
        step = f"start the program that serves webhook {match[1]}, or remove its configuration"
        return f"webhook {match[1]} does not answer", step, ""
    if match := _DENIED.search(error):
        return (
            f"webhook {match[1]} denies them: {match[2]}",
            "correct the pod template, or the policy of the webhook",
            "",
        )
    if "violates PodSecurity" in error:
        step = "correct the pod template, or loosen the Pod Security level of the namespace"
        return "the namespace's Pod Security level forbids them", step, ""
    return None
