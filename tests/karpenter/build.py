"""Karpenter with its provider of KWOK nodes, built once from its public Go module, with Karpenter's CRDs beside it."""

from __future__ import annotations

from tests.support.go_programs import GoPrograms

KARPENTER = GoPrograms(
    name="karpenter",
    module="sigs.k8s.io/karpenter",
    version="1.14.0",
    programs={"karpenter-kwok": "./kwok"},
    crds=("pkg/apis/crds", "kwok/apis/crds"),
    variable="GROVE_KARPENTER",
)

if __name__ == "__main__":
    KARPENTER.main()
