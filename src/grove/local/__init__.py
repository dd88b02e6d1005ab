"""A real Kubernetes control plane on this machine: etcd, API server, controller manager and scheduler.

The tests and `grove up` use it. Nothing is imported here on purpose: `grove.local.binaries` runs
before the project's virtual environment exists, so this package must load with the standard library alone.
"""
