"""Two of everything: what happens to decisions, and to writes, when the leader goes. `make test-failover`."""
