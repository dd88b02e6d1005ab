"""The program krew and the kinds of gateways, built or fetched once from public Go modules."""

from __future__ import annotations

from tests.support.go_programs import GoPrograms

GATEWAY_API = GoPrograms(
    name="gateway-api",
    module="sigs.k8s.io/gateway-api",
    version="1.3.0",
    programs={},
    crds=("config/crd/standard",),
    variable="GROVE_GATEWAY_API",
)
INFERENCE_EXTENSION = GoPrograms(
    name="gateway-api-inference-extension",
    module="sigs.k8s.io/gateway-api-inference-extension",
    version="1.0.0",
    programs={},
    crds=("config/crd/bases",),
    variable="GROVE_INFERENCE_EXTENSION",
)
KREW = GoPrograms(
    name="krew",
    module="sigs.k8s.io/krew",
    version="0.4.4",
    programs={"krew": "./cmd/krew"},
    crds=(),
    variable="GROVE_KREW",
)

if __name__ == "__main__":
    for module in (GATEWAY_API, INFERENCE_EXTENSION, KREW):
        module.main()
