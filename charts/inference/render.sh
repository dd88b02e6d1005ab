#!/bin/sh
# Renders every file of values/ into examples/. Needs helm 3 (HELM names another one); tests admit and simulate the results.
# Run it after every change of the chart (`make charts`); a test notices when it was forgotten.
set -eu
export LC_ALL=C # the order of files is part of the digest
cd "$(dirname "$0")"
helm="${HELM:-helm}"
digest=$(cat Chart.yaml values.yaml values.schema.json templates/* values/* | sha256sum | cut -c1-16)
mkdir -p examples
for file in values/*.yaml; do
  name=$(basename "$file" .yaml)
  {
    echo "# helm template $name charts/inference -f charts/inference/$file (digest $digest)"
    "$helm" template "$name" . --namespace default --kube-version 1.35.0 -f "$file"
  } > "examples/$name.yaml"
done
