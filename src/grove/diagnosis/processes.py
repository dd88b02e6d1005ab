"""Whether the operator and the scheduler run, and the sign of it: a lease that is held, else ready pods."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

from grove.api.core import Lease, Pod
from grove.api.labels import NAME
from grove.api.words import many
from grove.config import LeaderElection as OperatorLease
from grove.diagnosis.words import age
from grove.kube.client import Client
from grove.kube.errors import Forbidden
from grove.scheduler.model.config import LeaderElection as SchedulerLease

RUNS, UNSURE, DOWN = "ok", "warning", "failed"
HANDOVER = timedelta(seconds=30)
"""Time in which another process takes a lease that was given back."""
OPERATOR, SCHEDULER = "grove-operator", "grove-scheduler"


@dataclass(frozen=True, slots=True)
class Process:
    """`sign` is the evidence: which process leads, or since when none does."""

    name: str
    state: str = UNSURE
    sign: str = ""

    @property
    def is_down(self) -> bool:
        return self.state == DOWN

    @property
    def sentence(self) -> str:
        return f"{self.name} does not run ({self.sign.replace('; ', ', ')})"  # a list cuts a reason at semicolons


@dataclass(frozen=True, slots=True)
class Processes:
    operator: Process = Process(OPERATOR)
    scheduler: Process = Process(SCHEDULER)

    @property
    def down(self) -> tuple[Process, ...]:
        return tuple(process for process in (self.operator, self.scheduler) if process.is_down)


async def read_processes(client: Client, now: datetime) -> Processes:
    """Both; nothing is said of a process for lack of rights to look."""

    async def process(name: str, lease: str) -> Process:
        try:
            return Process(name, *await sign_of_life(client, name, lease, now))
        except Forbidden:
            return Process(name)

    operator, scheduler = await asyncio.gather(
        process(OPERATOR, OperatorLease().resource_name), process(SCHEDULER, SchedulerLease().resource_name)
    )
    return Processes(operator, scheduler)


async def sign_of_life(client: Client, app: str, lease_name: str, now: datetime) -> tuple[str, str]:
    """Its state and the evidence: the leader, else its pods.

    A lease that expired without release is always a fault. One that was given back is a fault if no pod is ready: the
    process ended in good order, and no other process leads.
    """
    expired = given_back = ""
    try:
        for lease in (await client.list(Lease, fields=f"metadata.name={lease_name}")).items:
            holder, renewed = lease.spec.holder_identity, lease.spec.renew_time
            if renewed is None:
                continue
            quiet, lasts = now - renewed, timedelta(seconds=lease.spec.lease_duration_seconds or 15)
            if not holder:
                if quiet > HANDOVER:
                    given_back = given_back or f"no process leads for {age(renewed, now)}: the last leader ended"
                continue
            if quiet < lasts:
                return RUNS, f"{holder} leads"
            if quiet < 2 * lasts:  # clocks differ, and another may just be taking over
                return UNSURE, f"{holder} leads, but last renewed its lease {age(renewed, now)} ago"
            expired = f"no process leads for {age(renewed, now)}: {holder} was the last leader"
    except Forbidden:
        pass
    pods = (await client.list(Pod, labels=f"{NAME}={app}")).items
    ready = sum(pod.is_ready for pod in pods)
    if expired or (given_back and not ready):
        counted = f"; {ready} of {many(len(pods), 'pod')} ready" if pods else ""
        return DOWN, f"{expired or given_back}{counted}"
    if not pods:
        return UNSURE, "no sign of it: no lease is held and no pod carries its label"
    return (RUNS if ready else DOWN), f"{ready} of {many(len(pods), 'pod')} ready"
