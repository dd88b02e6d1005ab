"""`helm install --wait` of Helm 4 on a PodCliqueSet, for `make test-helm`. Not part of `make test`."""
