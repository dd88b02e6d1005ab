"""Start order on a real node: kubelet, containerd and runc, for `make test-node`. Not part of `make test`."""
