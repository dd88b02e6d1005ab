"""The running scheduler: it follows the cluster, decides, binds and reports.

- live: `Scheduler(client, config).run()` connects everything below.
- following: events of the API server become changes of the state.
- turn: one turn: what changed, then every unit that is due, in order.
- moving: moves gangs that run, so that others fit.
- holds: holds capacity for units that wait, and for pods that are being replaced.
- deciding: calls the core, on the event loop or in a thread.
- writes: binds, evicts, and writes statuses and events.
- state: the cluster, and one record for each unit.
- diagnosis: answers `explain` and `queue` without a decision.
- metrics, gpu_meter: numbers.

A package imports only those below it; `lint-imports` keeps it so.
"""
