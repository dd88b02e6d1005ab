"""Kueue, built once from its public Go module, with its CRDs and webhook configurations beside it."""

from __future__ import annotations

from tests.support.go_programs import GoPrograms

KUEUE = GoPrograms(
    name="kueue",
    module="sigs.k8s.io/kueue",
    version="0.15.2",
    programs={"kueue": "./cmd/kueue"},
    crds=("config/components/crd/bases", "config/components/webhook"),
    variable="GROVE_KUEUE",
)

if __name__ == "__main__":
    KUEUE.main()
