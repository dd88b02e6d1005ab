"""Kubernetes for asyncio: what a controller needs to read, follow and change a cluster, and nothing about Grove.

- config, credentials: the cluster, and the user at it.
- client, http: the protocol that all code uses, and its HTTP side (with transport, wire and watch).
- cache: objects kept up to date (informer follows one kind, store holds it).
- workqueue, controller: the next key, and its reconcile.
- writes: many writes at once, and careful writes after a failure.
- events, lease: events for users, and the election of one leader.
- run, logs, metrics: the process around it.
"""
