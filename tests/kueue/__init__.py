"""The real Kueue admits, evicts and releases gangs, for `make test-kueue`. Not part of `make test`."""
