"""The running scheduler: it follows the cluster, decides, binds and reports.

- live: `Scheduler(client, config).run()` connects everything below.
- follower, view, gang_trees: events come in; the state of the cluster; gangs as the core reads them.
- unit, counted_pods, pod_reader: parts of that state: records of units, pods on nodes, waiting pods.
- cycle: one turn: what changed, then every unit that is due, in order.
- placing: one unit: reserves and binds its placement.
- holds_behind: ends holds of units behind a unit, where the unit takes their capacity.
- refusals: a unit without a place gets a reason to wait, and units like it get the same reason.
- answer_checks: whether an answer that took long still holds.
- decisions: calls the core, on the event loop or in a thread.
- bind, nominations, evictions: binds placements or rolls them back; preempts; deletes and evicts pods.
- victim_search: looks for victims, and for places that become free when terminating pods are gone.
- long_wait_holds, replacements: hold capacity for gangs that wait long, and for pods that are being replaced.
- order_changes: wakes units that come before the owner of a hold now.
- movable, moves: gangs that may be moved, with plans for it; moves a gang on request.
- repack_steps, self_repack: carries out a plan move by move; does so of its own accord.
- hold_restorer: reads back what an earlier scheduler held.
- pending_reservations: Reservations that wait for a placement.
- report, metrics: status, conditions, events and numbers.
- quota_follower: follows ElasticQuotas and KAI's queues.
- optional_kinds: follows kinds that a cluster may lack.
- diagnosis: answers `explain` and `queue` without a decision.
"""
