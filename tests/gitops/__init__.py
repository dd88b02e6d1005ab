"""The real krew installs the plugin, and an API server has the real kinds of gateways, for `make test-gitops`.

Not part of `make test`.
"""
