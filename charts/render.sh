#!/bin/sh
# Renders the chart again: install.yaml for clusters without Helm, grove-scheduler.yaml for those that also take manifests
# of the dialects, and the fullest rendering there is, for tests.
# Needs helm 3 (HELM names another one). Run it after every change of the chart; a test notices when it was forgotten.
set -eu
export LC_ALL=C # the order of files is part of the digest
cd "$(dirname "$0")"
helm="${HELM:-helm}"
digest=$(cat grove/Chart.yaml grove/values.yaml grove/templates/* grove/files/* every-option.yaml | sha256sum | cut -c1-16)

render() { # render <how it was made> <arguments of helm template>...
  echo "# Made by charts/render.sh from charts/grove (digest $digest); change the chart, not this file."
  echo "# $1"
  shift
  "$helm" template grove grove --namespace grove-system --kube-version 1.35.0 "$@"
}

# The namespace first: kubectl applies in the order of the file.
with_namespace() { # with_namespace <file> <arguments of render>...
  file=$1
  shift
  {
    render "$@" --no-hooks
    printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: grove-system\n  labels:\n    app.kubernetes.io/part-of: grove\n'
  } > "$file.new"
  awk 'BEGIN { RS = "---\n" } { doc[NR] = $0 } END {
    printf "%s", doc[1]; printf "---\n%s", doc[NR]
    for (i = 2; i < NR; i++) printf "---\n%s", doc[i] }' "$file.new" > "$file"
  rm "$file.new"
}

with_namespace install.yaml "Everything Grove needs in a cluster: kubectl apply --server-side -f install.yaml"

# The same in two files, with the dialects: kubectl apply -f grove-crds.yaml (made by `make crds`), then this one.
with_namespace grove-scheduler.yaml "Scheduler and operator, after grove-crds.yaml: kubectl apply -f grove-scheduler.yaml" \
  --set dialects.enabled=true --set crdInstaller.enabled=false

render "With every option on; read by tests." --values every-option.yaml > ../tests/unit/charts/every-option.rendered.yaml
