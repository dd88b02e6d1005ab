"""The program krew, built once from its public Go module."""

from __future__ import annotations

from tests.support.go_programs import GoPrograms

KREW = GoPrograms(
    name="krew",
    module="sigs.k8s.io/krew",
    version="0.4.4",
    programs={"krew": "./cmd/krew"},
    crds=(),
    variable="GROVE_KREW",
)

if __name__ == "__main__":
    KREW.main()
