"""Helm 4, built once from its public Go module."""

from __future__ import annotations

from tests.support.go_programs import GoPrograms

HELM = GoPrograms(
    name="helm",
    module="helm.sh/helm/v4",
    version="4.3.1",
    programs={"helm": "./cmd/helm"},
    crds=(),
    variable="GROVE_HELM4",
)

if __name__ == "__main__":
    HELM.main()
