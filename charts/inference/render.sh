#!/bin/sh
# Renders an example of every pattern into examples/. Needs helm 3 (HELM names another one); tests admit and play them.
set -eu
cd "$(dirname "$0")"
helm="${HELM:-helm}"
for pattern in aggregated aggregatedMultiNode disaggregated agentic mpi; do
  name=$(echo "$pattern" | sed 's/\([A-Z]\)/-\1/g' | tr '[:upper:]' '[:lower:]')
  {
    echo "# helm template $name charts/inference --set pattern=$pattern,topologyName=fake-nodes,pack.system=block,pack.instance=rack"
    "$helm" template "$name" . --namespace default --kube-version 1.35.0 \
      --set "pattern=$pattern,topologyName=fake-nodes,pack.system=block,pack.instance=rack"
  } > "examples/$name.yaml"
done
