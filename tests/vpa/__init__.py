"""The real VerticalPodAutoscaler, for `make test-vpa`. Not part of `make test`."""
