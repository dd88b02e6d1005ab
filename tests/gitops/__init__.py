"""The real krew installs the plugin, for `make test-gitops`. Not part of `make test`."""
