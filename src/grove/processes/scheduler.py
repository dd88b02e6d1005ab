"""The process around the scheduler: client, leader election, probes, metrics, journal."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from grove.diagnosis.reasons import sentence
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.kube.lease import Leadership, process_identity
from grove.kube.metrics import watch_requests
from grove.kube.run import probes
from grove.kube.tracing import traces_asked_for
from grove.scheduler.loop.following.quota_follower import watch_queues
from grove.scheduler.loop.gpu_meter import GpuMeter
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.loop.metrics import sizes_in, watch_headroom
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.replay.journal import Journal, RecordedSnapshot


async def serve(config: SchedulerConfiguration, kubeconfig: Path | None, context: str, record: Path | None) -> None:
    cluster = load_config(kubeconfig, context=context)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            HttpClient(cluster, user_agent="grove-scheduler", max_writes=config.bind_concurrency + 16)
        )
        leadership = None
        if config.leader_election.enabled:
            # The election has a client of its own: the other one may not write before there is a leader.
            voter = await stack.enter_async_context(HttpClient(cluster, user_agent="grove-scheduler-election"))
            election = config.leader_election
            leadership = Leadership(
                voter,
                election.resource_namespace,
                election.resource_name,
                process_identity(),
                lease_s=election.lease_duration,
                renew_s=election.renew_deadline,
                retry_s=election.retry_period,
            )
            client.write_guard = leadership.may_write
        journal = Journal(record) if record is not None else None
        if journal is not None:
            stack.callback(journal.close)
        traces, end_traces = traces_asked_for("grove-scheduler")
        stack.callback(end_traces)
        running = Scheduler(
            client,
            config,
            tune_gc=True,
            tape=journal,
            snapshot=RecordedSnapshot(journal) if journal is not None else None,
            say=sentence,
            traces=traces,
        )
        watch_headroom(running.view.snapshot, sizes_in(running.view))
        watch_queues(running.quotas, running.view)
        watch_requests(client.calls)
        running.beside.append(GpuMeter(running.view, SYSTEM).run)
        if config.server.port >= 0:
            server = config.server
            await stack.enter_async_context(
                probes(server.port, host=server.bind_address, ready=lambda: running.is_ready)
            )
        await stack.enter_async_context(running.following())
        if leadership is None:
            await running.schedule()
        else:
            await leadership.lead(running.lead)
