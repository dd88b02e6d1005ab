"""The three programs of the VerticalPodAutoscaler, built once from their public Go module, with its CRDs."""

from __future__ import annotations

from tests.support.go_programs import GoPrograms

VPA = GoPrograms(
    name="vpa",
    module="k8s.io/autoscaler/vertical-pod-autoscaler",
    version="1.8.1",
    programs={f"vpa-{part}": f"./pkg/{part}" for part in ("recommender", "updater", "admission-controller")},
    crds=("deploy",),
    variable="GROVE_VPA",
)

if __name__ == "__main__":
    VPA.main()
