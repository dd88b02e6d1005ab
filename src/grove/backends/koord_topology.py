"""Koordinator's picture of the cluster, its ClusterNetworkTopology: made from a ClusterTopologyBinding, or compared.

It is one chain of layers from broad to narrow that ends in the node; the cluster as its root goes without saying. The
scheduler reads only the object called `default`.
"""

from __future__ import annotations

from collections.abc import Mapping

from grove.api.labels import MANAGED_BY, OPERATOR
from grove.api.meta import Json, Resource
from grove.api.topology import ClusterTopologyBinding
from grove.backends.base import TopologySync

NETWORK_TOPOLOGY = Resource(
    "scheduling.koordinator.sh", "v1alpha1", "ClusterNetworkTopology", "clusternetworktopologies", namespaced=False
)
DEFAULT = "default"
NODE_LAYER = "NodeTopologyLayer"
HOSTNAME = "kubernetes.io/hostname"


def network_topology(binding: ClusterTopologyBinding, layers: Mapping[str, str]) -> Json:
    """The object for a binding; `layers` are names of layers by node label key, else a level's own name is taken."""
    chain: list[Json] = []
    for level in binding.spec.levels:
        if level.key == HOSTNAME:
            continue  # the layer of nodes itself, which is always there
        layer: Json = {"topologyLayer": layers.get(level.key, level.domain), "labelKey": [level.key]}
        chain.append(_below(chain, layer))
    chain.append(_below(chain, {"topologyLayer": NODE_LAYER}))
    metadata = {"name": DEFAULT, "labels": {MANAGED_BY: OPERATOR}}
    return NETWORK_TOPOLOGY.manifest(metadata, spec={"networkTopologySpec": chain})


def network_drift(
    binding: ClusterTopologyBinding, layers: Mapping[str, str], reference: str, observed: Json | None
) -> TopologySync:
    """The comparison of a binding's levels with the layers of the scheduler.

    They must be the same, in the same order.
    """
    if reference != DEFAULT:
        return TopologySync(False, f"Koordinator reads only the ClusterNetworkTopology {DEFAULT}, not {reference}")
    if observed is None:
        return TopologySync(False, f"there is no ClusterNetworkTopology {DEFAULT}")
    wanted = _shown(network_topology(binding, layers))
    actual = _shown(observed)
    generation = int(observed["metadata"].get("generation") or 0)
    if actual == wanted:
        return TopologySync(True, observed_generation=generation)
    message = f"ClusterNetworkTopology {DEFAULT} has layers {', '.join(actual)}, not {', '.join(wanted)}"
    return TopologySync(False, message, generation)


def _below(chain: list[Json], layer: Json) -> Json:
    return layer | ({"parentTopologyLayer": chain[-1]["topologyLayer"]} if chain else {})


def _shown(topology: Json) -> list[str]:
    """Layers from broad to narrow with the labels they are read from; a chain may be written in any order."""
    rows = {
        str(layer.get("parentTopologyLayer") or ""): layer
        for layer in (topology.get("spec") or {}).get("networkTopologySpec") or ()
    }
    at, layers = next((name for name in ("", "ClusterTopologyLayer") if name in rows), ""), []
    while (row := rows.pop(at, None)) is not None:
        at = str(row.get("topologyLayer") or "")
        labels = () if at == NODE_LAYER else row.get("labelKey") or ()
        layers.append(f"{at}({'|'.join(labels)})" if labels else at)
    return layers
