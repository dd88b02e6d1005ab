{{/*
What each engine needs, as YAML: command, args, env, ports, probes, shmSize. Every template takes a dict with
  root, role (engine, leader, worker or router), stage (empty, prefill or decode), group (name of the scaling group; empty
  for a pod of its own), workers, gpus, model, passed (names of the environment that the values give),
  hasOwnCommand (the values replace the command).
A leader is pod 0 of its clique; workers have the ranks after it.
*/}}

{{- define "inference.preset" }}
{{- if has .root.Values.engine (list "vllm" "sglang" "trtllm" "dynamo" "llamacpp") }}
{{- include (printf "inference.engine.%s" .root.Values.engine) . }}
{{- end }}
{{- end }}

{{/* Start order of leader and workers, the metric to scale by, and whether the preset can run a router. */}}
{{- define "inference.facts" }}
{{- $e := .root.Values.engine }}
{{- $mpi := has $e (list "llamacpp" "trtllm") }}
workers: {{ if $mpi }}beforeLeader{{ else }}afterLeader{{ end }}
condition: {{ if or $mpi (not $e) }}Ready{{ else }}Started{{ end }}
router: {{ if $e }}last{{ else }}{{ ternary "first" "last" (eq .root.Values.pattern "disaggregated") }}{{ end }}
runsRouter: {{ has $e (list "sglang" "dynamo") }}
{{- if eq $e "trtllm" }}
metric: grove_ttft_p95_seconds
target: {type: Value, value: "2"}
{{- else if and (eq $e "dynamo") (eq (.stage | default "") "prefill") }}
metric: dynamo_component_inflight_requests
target: {type: AverageValue, averageValue: "4"}
{{- else if eq (.stage | default "") "decode" }}
metric: grove_kv_cache_usage
target: {type: Value, value: 700m}
{{- else }}
metric: grove_requests_waiting
target: {type: AverageValue, averageValue: "4"}
{{- end }}
{{- end }}

{{/* Host name of pod `index` of a member clique of this pod's own group replica. */}}
{{- define "inference.peer" -}}
$(GROVE_PCSG_NAME)-$(GROVE_PCSG_INDEX)-{{ .clique }}-{{ .index }}.$(GROVE_HEADLESS_SERVICE)
{{- end }}

{{- define "inference.httpProbes" }}
probes:
  startup: {httpGet: {path: {{ .path }}, port: {{ .port }}}, periodSeconds: 10, failureThreshold: 360}
  readiness: {httpGet: {path: {{ .path }}, port: {{ .port }}}, periodSeconds: 5, timeoutSeconds: 5}
  liveness: {httpGet: {path: {{ .live | default .path }}, port: {{ .port }}}, periodSeconds: 20, timeoutSeconds: 10, failureThreshold: 6}
{{- end }}

{{/* Processes of a pod pass data in /dev/shm: NCCL, and the engines themselves. */}}
{{- define "inference.shm" -}}
shmSize: 16Gi
{{- end }}

{{- define "inference.podIP" -}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
{{- end }}

{{- define "inference.engine.vllm" }}
{{- $nodes := add .workers 1 }}
{{- $leader := include "inference.peer" (dict "clique" (printf "%s-leader" .group) "index" 0) }}
{{- $args := list "serve" .model "--tensor-parallel-size" (max .gpus 1 | toString) }}
{{- with .root.Values.servedModelName }}{{ $args = concat $args (list "--served-model-name" .) }}{{ end }}
{{- with .stage }}{{ $args = concat $args (list "--kv-transfer-config" `{"kv_connector":"NixlConnector","kv_role":"kv_both"}`) }}{{ end }}
{{- if .workers }}
{{- $args = concat $args (list "--pipeline-parallel-size" (toString $nodes) "--nnodes" (toString $nodes) "--master-addr" $leader "--master-port" "29555") }}
{{- end }}
{{- if ne .role "router" }}
{{ include "inference.shm" . }}
env:
{{ include "inference.podIP" . }}
- {name: VLLM_HOST_IP, value: $(POD_IP)}
{{- if .stage }}
- {name: VLLM_NIXL_SIDE_CHANNEL_HOST, value: $(POD_IP)}
{{- end }}
{{- if eq .role "worker" }}
# The rank of a worker is its index plus one: the shell adds it.
command: [sh, -c, 'exec vllm "$@" --node-rank $((GROVE_PCLQ_POD_INDEX + 1)) --headless', vllm]
args: {{ toJson $args }}
{{- else }}
command: [vllm]
args: {{ toJson (concat $args (list "--host" "0.0.0.0" "--port" "8000") (ternary (list "--node-rank" "0") (list) (gt (int .workers) 0))) }}
ports: [{name: http, containerPort: 8000}]
metricsPort: 8000
{{- include "inference.httpProbes" (dict "path" "/health" "port" "http") }}
{{- end }}
{{- end }}
{{- end }}

{{- define "inference.engine.sglang" }}
{{- $nodes := add .workers 1 }}
{{- $leader := include "inference.peer" (dict "clique" (printf "%s-leader" .group) "index" 0) }}
{{- $v := .root.Values }}
{{- if eq .role "router" }}
command: [python3, -m, sglang_router.launch_router]
{{- $of := printf "app.kubernetes.io/part-of=%s" .root.Release.Name }}
{{- $args := list "--host" "0.0.0.0" "--port" "8000" "--service-discovery" "--service-discovery-port" "30000" "--service-discovery-namespace" .root.Release.Namespace }}
{{- if eq $v.pattern "disaggregated" }}
{{- range $stage := list "prefill" "decode" }}
{{- $clique := include "inference.leaderName" (dict "name" $stage "part" (index $v.disaggregated $stage)) }}
{{- $args = concat $args (list (printf "--%s-selector" $stage) $of (printf "grove.io/clique-name=%s" $clique)) }}
{{- end }}
{{- $args = append $args "--pd-disaggregation" }}
{{- else }}
{{- $args = concat $args (list "--selector" $of "grove.io/clique-name=engine") }}
{{- end }}
args: {{ toJson $args }}
ports: [{name: http, containerPort: 8000}]
{{- include "inference.httpProbes" (dict "path" "/readiness" "live" "/liveness" "port" "http") }}
{{- else }}
{{ include "inference.shm" . }}
{{- $args := list "--model-path" .model "--tp-size" (mul (max .gpus 1) $nodes | toString) }}
{{- with $v.servedModelName }}{{ $args = concat $args (list "--served-model-name" .) }}{{ end }}
{{- with .stage }}{{ $args = concat $args (list "--disaggregation-mode" . "--disaggregation-bootstrap-port" "8998") }}{{ end }}
{{- if .workers }}{{ $args = concat $args (list "--nnodes" (toString $nodes) "--dist-init-addr" (printf "%s:20000" $leader)) }}{{ end }}
{{- if eq .role "worker" }}
command: [sh, -c, 'exec python3 -m sglang.launch_server "$@" --node-rank $((GROVE_PCLQ_POD_INDEX + 1))', sglang]
args: {{ toJson $args }}
{{- else }}
command: [python3, -m, sglang.launch_server]
args: {{ toJson (concat $args (list "--host" "0.0.0.0" "--port" "30000" "--enable-metrics") (ternary (list "--node-rank" "0") (list) (gt (int .workers) 0))) }}
ports: [{name: http, containerPort: 30000}]
metricsPort: 30000
{{- if eq .stage "prefill" }}
# The router reads the bootstrap port here.
annotations: {sglang.ai/bootstrap-port: "8998"}
{{- end }}
{{- include "inference.httpProbes" (dict "path" "/health" "port" "http") }}
{{- end }}
{{- end }}
{{- end }}

{{- define "inference.engine.trtllm" }}
{{- $nodes := add .workers 1 }}
{{- $gpus := max .gpus 1 }}
{{- $serve := list "trtllm-serve" "serve" .model "--host" "0.0.0.0" "--port" "8000" "--tp_size" (toString $gpus) }}
{{- if ne .role "router" }}
{{ include "inference.shm" . }}
{{- end }}
{{- if eq .role "worker" }}
# sshd ends at once without this folder.
command: [sh, -c, 'mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -p 2222 "$@"', sshd]
ports: [{name: ssh, containerPort: 2222}]
probes:
  readiness: {tcpSocket: {port: ssh}, periodSeconds: 5}
{{- else if ne .role "router" }}
{{- if .workers }}
# mpirun starts a rank for each GPU of every pod. The ssh of the image reads its port and key from its own configuration.
{{- $hosts := list (printf "localhost:%v" $gpus) }}
{{- range $i := until (int .workers) }}
{{- $hosts = append $hosts (printf "%s:%v" (include "inference.peer" (dict "clique" (printf "%s-worker" $.group) "index" $i)) $gpus) }}
{{- end }}
{{- /* mpirun gives the ranks of other pods only the environment that it is asked to. Its own settings stay here. */}}
{{- $exported := list }}
{{- range .passed }}{{ if not (hasPrefix "OMPI_" .) }}{{ $exported = concat $exported (list "-x" .) }}{{ end }}{{ end }}
command: [mpirun]
args: {{ toJson (concat (list "-n" (mul $gpus $nodes | toString) "--host" (join "," $hosts) "--allow-run-as-root") $exported (list "trtllm-llmapi-launch") $serve (list "--pp_size" (toString $nodes))) }}
{{- else }}
command: [trtllm-serve]
args: {{ toJson (rest $serve) }}
{{- end }}
ports: [{name: http, containerPort: 8000}]
metricsPort: 8000
metricsPath: /prometheus/metrics
{{- include "inference.httpProbes" (dict "path" "/health" "port" "http") }}
{{- end }}
{{- end }}

{{- define "inference.engine.dynamo" }}
{{- $v := .root.Values }}
env:
{{ include "inference.podIP" . }}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: DYN_DISCOVERY_BACKEND, value: kubernetes}
- {name: DYN_NAMESPACE, value: {{ .root.Release.Name | quote }}}
- {name: DYN_TCP_RPC_HOST, value: $(POD_IP)}
- {name: DYN_SYSTEM_HOST, value: $(POD_IP)}
- {name: DYN_SYSTEM_PORT, value: "9090"}
{{- if and .stage (eq $v.dynamoBackend "vllm") }}
- {name: VLLM_NIXL_SIDE_CHANNEL_HOST, value: $(POD_IP)}
{{- end }}
# Without it a worker never says that it is ready.
- {name: DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS, value: '["generate"]'}
{{- if eq .role "router" }}
command: [python3, -m, dynamo.frontend]
args: [--http-port, "8000", --router-mode, kv]
ports: [{name: http, containerPort: 8000}]
metricsPort: 8000
{{- include "inference.httpProbes" (dict "path" "/live" "port" "http") }}
{{- else }}
{{ include "inference.shm" . }}
{{- $backend := $v.dynamoBackend }}
{{- if and .workers (not .hasOwnCommand) }}{{ fail "the preset dynamo runs each engine in one pod: set workers to 0, or give command and args" }}{{ end }}
{{- $model := ternary "--model-path" "--model" (has $backend (list "mocker" "sglang")) }}
{{- $args := list $model .model }}
{{- if and (ne $backend "mocker") (gt (int .gpus) 1) }}
{{- $args = concat $args (list (ternary "--tp-size" "--tensor-parallel-size" (eq $backend "sglang")) (toString .gpus)) }}
{{- end }}
{{- with $v.servedModelName }}{{ $args = concat $args (list (ternary "--model-name" "--served-model-name" (eq $backend "mocker")) .) }}{{ end }}
{{- /* How a KV cache gets from prefill to decode: NIXL. */}}
{{- with .stage }}
{{- $args = concat $args (list "--disaggregation-mode" .) }}
{{- if eq $backend "vllm" }}{{ $args = concat $args (list "--kv-transfer-config" `{"kv_connector":"NixlConnector","kv_role":"kv_both"}`) }}{{ end }}
{{- if eq $backend "sglang" }}{{ $args = concat $args (list "--disaggregation-transfer-backend" "nixl") }}{{ end }}
{{- if eq $backend "trtllm" }}{{ $args = concat $args (list "--trtllm.cache_transceiver_config.backend" "DEFAULT") }}{{ end }}
{{- if and (eq $backend "trtllm") (eq . "prefill") }}{{ $args = concat $args (list "--trtllm.disable_overlap_scheduler" "true") }}{{ end }}
{{- end }}
command: [python3, -m, dynamo.{{ $backend }}]
args: {{ toJson $args }}
ports: [{name: system, containerPort: 9090}]
metricsPort: 9090
{{- include "inference.httpProbes" (dict "path" "/health" "live" "/live" "port" "system") }}
{{- end }}
{{- end }}

{{- define "inference.engine.llamacpp" }}
{{- if eq .role "worker" }}
command: [rpc-server]
args: [-H, 0.0.0.0, -p, "50052"]
ports: [{name: rpc, containerPort: 50052}]
# A startup probe and no readiness probe: rpc-server serves one connection at a time, and the leader keeps that connection.
probes:
  startup: {tcpSocket: {port: rpc}, periodSeconds: 1, failureThreshold: 120}
outlives: true
{{- else if ne .role "router" }}
{{- $args := list "--model" .model "--host" "0.0.0.0" "--port" "8080" "--metrics" }}
{{- with .root.Values.servedModelName }}{{ $args = concat $args (list "--alias" .) }}{{ end }}
{{- if .workers }}
{{- $hosts := list }}
{{- range $i := until (int .workers) }}
{{- $hosts = append $hosts (printf "%s:50052" (include "inference.peer" (dict "clique" (printf "%s-worker" $.group) "index" $i))) }}
{{- end }}
{{- $args = concat $args (list "--rpc" (join "," $hosts) "--n-gpu-layers" "99") }}
{{- end }}
command: [llama-server]
args: {{ toJson $args }}
ports: [{name: http, containerPort: 8080}]
metricsPort: 8080
{{- include "inference.httpProbes" (dict "path" "/health" "port" "http") }}
{{- end }}
{{- end }}
