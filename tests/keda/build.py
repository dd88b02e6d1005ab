"""KEDA's operator and metrics server, built once from their public Go module, with KEDA's CRDs beside them.

About twenty minutes on two cores: the module brings the clients of everything that KEDA can read.
"""

from __future__ import annotations

from tests.support.go_programs import GoPrograms

KEDA = GoPrograms(
    name="keda",
    module="github.com/kedacore/keda/v2",
    version="2.21.0",
    programs={"keda-operator": "./cmd/operator", "keda-adapter": "./cmd/adapter"},
    crds=("config/crd/bases",),
    variable="GROVE_KEDA",
)

if __name__ == "__main__":
    KEDA.main()
