"""A Kubernetes cluster inside the process, for tests, the demo and what-if runs.

`cluster` assembles it; `client` is what a controller gets: the protocol that `grove.kube` speaks over HTTP. `store`
and `server` are the API server, `schema`, `cel` and `custom` its custom kinds; `pods`, `disruption`, `quota`, `tokens`,
`gc` and `lifecycle` what a control plane does by itself. `nodes` plays the kubelets over any client, also a real
server's. `loop` makes time virtual, `faults` and `crash` make life hard. Its likeness to the real thing is held by
the contract tests, which run the same code on both.
"""
