{{/*
One clique. Takes root, name, role, part (what the values say of it), replicas, gpus, and where they apply min, after
(names), condition, stage, group, workers, scale (autoscaling of a clique of its own).
*/}}
{{- define "inference.clique" }}
{{- $v := .root.Values }}
{{- $isRouter := has .role (list "router" "launcher") }}
{{- $part := .part | default dict }}
{{- $gpus := .gpus | default 0 | int }}
{{- $given := dict "workers" (.workers | default 0 | int) "gpus" $gpus "model" ($part.model | default $v.model) "stage" (.stage | default "") "group" (.group | default "") "hasOwnCommand" (not (empty $part.command)) }}
{{- $hasCache := and (or $v.modelCache.claimName $v.modelCache.hostPath) (not $isRouter) }}
{{- $hasToken := and $v.hfToken.secretName (not $isRouter) }}
{{- $env := concat $v.env ($part.env | default list) }}
{{- $passed := list }}
{{- range $env }}{{ $passed = append $passed .name }}{{ end }}
{{- if $hasCache }}{{ $passed = append $passed "HF_HOME" }}{{ end }}
{{- if $hasToken }}{{ $passed = append $passed "HF_TOKEN" }}{{ end }}
{{- $preset := fromYaml (include "inference.preset" (merge (dict "root" .root "role" .role "passed" (uniq $passed)) $given)) }}
{{- $own := $part.command | default list }}
{{- $command := $own | default ($preset.command | default list) }}
{{- $args := concat (ternary (list) ($preset.args | default list) (gt (len $own) 0)) ($part.args | default list) }}
{{- $image := $part.image | default $v.image }}
{{- if not $image }}{{ fail (printf "no image for %s: set image%s" .name (ternary ", or router.image" "" $isRouter)) }}{{ end }}
{{- if and $v.engine (not $isRouter) (not $own) (not $given.model) }}{{ fail "the engine needs a model: set model" }}{{ end }}
{{- $env = concat ($preset.env | default list) $env }}
{{- $names := list }}
{{- range $env }}{{ $names = append $names .name }}{{ end }}
{{- if and $hasCache (not (has "HF_HOME" $names)) }}
{{- $env = append $env (dict "name" "HF_HOME" "value" $v.modelCache.mountPath) }}
{{- end }}
{{- if $hasToken }}
{{- $env = append $env (dict "name" "HF_TOKEN" "valueFrom" (dict "secretKeyRef" (dict "name" $v.hfToken.secretName "key" $v.hfToken.key))) }}
{{- end }}
{{- $volumes := concat $v.volumes ($part.volumes | default list) }}
{{- $mounts := concat $v.volumeMounts ($part.volumeMounts | default list) }}
{{- $paths := list }}
{{- range $mounts }}{{ $paths = append $paths (clean .mountPath) }}{{ end }}
{{- if not $isRouter }}
{{- with ternary "" ($v.shmSize | default $preset.shmSize) (has "/dev/shm" $paths) }}
{{- $volumes = append $volumes (dict "name" "shm" "emptyDir" (dict "medium" "Memory" "sizeLimit" .)) }}
{{- $mounts = append $mounts (dict "name" "shm" "mountPath" "/dev/shm") }}
{{- end }}
{{- if $hasCache }}
{{- with $v.modelCache }}
{{- $source := ternary (dict "persistentVolumeClaim" (dict "claimName" .claimName "readOnly" .readOnly)) (dict "hostPath" (dict "path" .hostPath "type" "DirectoryOrCreate")) (ne .claimName "") }}
{{- $volumes = append $volumes (merge (dict "name" "models") $source) }}
{{- $mounts = append $mounts (dict "name" "models" "mountPath" .mountPath "readOnly" .readOnly) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (eq $v.pattern "mpi") $v.mpi.sshSecret }}
{{- $volumes = append $volumes (dict "name" "ssh" "secret" (dict "secretName" $v.mpi.sshSecret "defaultMode" 256)) }}
{{- $mounts = append $mounts (dict "name" "ssh" "mountPath" "/etc/grove-ssh" "readOnly" true) }}
{{- end }}
{{- $resources := deepCopy ($part.resources | default (ternary dict $v.resources $isRouter)) }}
{{- if $gpus }}{{ $resources = mergeOverwrite $resources (dict "limits" (dict $v.gpuResource $gpus)) }}{{ end }}
{{- $claims := concat (ternary list $v.resourceClaims $isRouter) ($part.resourceClaims | default list) }}
{{- if $claims }}
{{- $named := $resources.claims | default list }}
{{- range $claims }}{{ $named = append $named (dict "name" .name) }}{{ end }}
{{- $resources = mergeOverwrite $resources (dict "claims" $named) }}
{{- end }}
{{- $ports := $part.ports | default $preset.ports }}
{{- $annotations := deepCopy ($preset.annotations | default dict) }}
{{- with $preset.metricsPort }}{{ $_ := set $annotations "prometheus.io/port" (toString .) }}{{ end }}
{{- with $preset.metricsPath }}{{ $_ := set $annotations "prometheus.io/path" . }}{{ end }}
{{- $annotations = mergeOverwrite $annotations ($part.annotations | default dict) }}
{{- $labels := deepCopy ($part.labels | default dict) }}
{{- with $v.queue }}{{ $_ := set $labels "kai.scheduler/queue" . }}{{ end }}
{{- $serves := false }}
{{- range $ports }}{{ if eq (.name | default "") "http" }}{{ $serves = true }}{{ end }}{{ end }}
- name: {{ .name }}
  {{- with $labels }}
  labels: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $part.rollingUpdate }}
  rollingUpdate: {{ toJson . }}
  {{- end }}
  spec:
    roleName: {{ .name }}
    replicas: {{ .replicas }}
    {{- with .min }}
    minAvailable: {{ . }}
    {{- end }}
    {{- with .after }}
    startsAfter: {{ toJson . }}
    {{- end }}
    {{- if and .after .condition (ne (.condition | default "") "Ready") }}
    startsAfterCondition: {{ .condition }}
    {{- end }}
    {{- with .scale }}
    autoScalingConfig: {{- . | nindent 6 }}
    {{- end }}
    podSpec:
      terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
      {{- with $v.schedulerName }}
      schedulerName: {{ . }}
      {{- end }}
      {{- $account := $v.serviceAccountName }}
      {{- if or (eq .role "router") (eq $v.engine "dynamo") }}{{ $account = include "inference.account" .root }}{{ end }}
      {{- with $account }}
      serviceAccountName: {{ . }}
      {{- end }}
      {{- with $v.imagePullSecrets }}
      imagePullSecrets: {{ toJson . }}
      {{- end }}
      {{- with $v.podSecurityContext }}
      securityContext: {{ toJson . }}
      {{- end }}
      {{- with $part.nodeSelector | default $v.nodeSelector }}
      nodeSelector: {{ toJson . }}
      {{- end }}
      {{- with $part.tolerations | default $v.tolerations }}
      tolerations: {{ toJson . }}
      {{- end }}
      {{- with $part.affinity | default $v.affinity }}
      affinity: {{ toJson . }}
      {{- end }}
      {{- $podSpec := deepCopy $v.podSpec }}
      {{- range $field, $value := $part.podSpec }}{{ $_ := set $podSpec $field $value }}{{ end }}
      {{- with $podSpec }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      containers:
      - name: {{ if $isRouter }}{{ .role }}{{ else }}engine{{ end }}
        image: {{ $image | quote }}
        {{- with $v.imagePullPolicy }}
        imagePullPolicy: {{ . }}
        {{- end }}
        {{- with $command }}
        command: {{ toJson . }}
        {{- end }}
        {{- with $args }}
        args: {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with $env }}
        env: {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with concat $v.envFrom ($part.envFrom | default list) }}
        envFrom: {{ toJson . }}
        {{- end }}
        {{- with $ports }}
        ports: {{ toJson . }}
        {{- end }}
        {{- range $kind := list "startup" "readiness" "liveness" }}
        {{- $probe := index ($preset.probes | default dict) $kind }}
        {{- if hasKey ($part.probes | default dict) $kind }}{{ $probe = index $part.probes $kind }}{{ end }}
        {{- with $probe }}
        {{ $kind }}Probe: {{ toJson . }}
        {{- end }}
        {{- end }}
        {{- if and $serves $v.drainSeconds }}
        lifecycle: {preStop: {sleep: {seconds: {{ $v.drainSeconds }}}}}
        {{- else if and $preset.outlives $v.drainSeconds }}
        # Longer than the leader's: the leader computes its last answers with this worker.
        lifecycle: {preStop: {sleep: {seconds: {{ add $v.drainSeconds 10 }}}}}
        {{- end }}
        # The end of the log of a container that fails is in the status of its pod, and in `kubectl grove explain`.
        terminationMessagePolicy: FallbackToLogsOnError
        {{- with $v.securityContext }}
        securityContext: {{ toJson . }}
        {{- end }}
        {{- with $resources }}
        resources: {{ toJson . }}
        {{- end }}
        {{- with $mounts }}
        volumeMounts: {{ toJson . }}
        {{- end }}
      {{- with $claims }}
      resourceClaims: {{ toJson . }}
      {{- end }}
      {{- with $volumes }}
      volumes: {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end }}

{{/* The account of pods that read the API server: what the values name, else the one that the chart makes for them. */}}
{{- define "inference.account" -}}
{{- if .Values.serviceAccountName }}{{ .Values.serviceAccountName }}
{{- else if or (eq .Values.engine "dynamo") (and (eq .Values.engine "sglang") (eq (include "inference.hasRouter" .) "true")) }}{{ .Release.Name }}-discovery
{{- end }}
{{- end }}

{{- define "inference.hasRouter" -}}
{{- $v := .Values }}
{{- if eq $v.pattern "mpi" }}false
{{- else if eq (toString $v.router.enabled) "auto" }}{{ or (has $v.pattern (list "disaggregated" "agentic")) (eq $v.engine "dynamo") }}
{{- else }}{{ $v.router.enabled }}
{{- end }}
{{- end }}

{{/* Name of the clique of an instance that answers: NAME-leader, or NAME where there are no workers. */}}
{{- define "inference.leaderName" -}}
{{ .name }}{{ if .part.workers }}-leader{{ end }}
{{- end }}

{{/* What the values say about start order, else what the engine needs. */}}
{{- define "inference.order" }}
{{- $facts := fromYaml (include "inference.facts" (dict "root" .)) }}
{{- range $key := list "workers" "condition" "router" }}
{{ $key }}: {{ index $.Values.startOrder $key | default (index $facts $key) }}
{{- end }}
{{- end }}

{{/* autoScalingConfig or scaleConfig. Takes root, scaling (the values), kind, stage. Empty if it is off. */}}
{{- define "inference.scale" -}}
{{- with .scaling }}
{{- if .maxReplicas }}
{{- $facts := fromYaml (include "inference.facts" $) -}}
minReplicas: {{ .minReplicas }}
maxReplicas: {{ .maxReplicas }}
metrics:
- type: Object
  object:
    describedObject: {apiVersion: grove.io/v1alpha1, kind: {{ $.kind }}, name: self}
    metric: {name: {{ .metric | default $facts.metric | quote }}}
    target: {{ toJson (.target | default $facts.target) }}
{{- end }}
{{- end }}
{{- end }}

{{/* True if a part of the pattern has an autoscaler. */}}
{{- define "inference.autoscales" -}}
{{- $v := .Values }}
{{- $parts := list }}
{{- if eq $v.pattern "agentic" }}{{ $parts = $v.agentic.models }}
{{- else if eq $v.pattern "disaggregated" }}{{ $parts = list $v.disaggregated.prefill $v.disaggregated.decode }}
{{- else }}{{ $parts = list (index $v $v.pattern) }}
{{- end }}
{{- $found := false }}
{{- range $parts }}{{ if dig "autoscaling" "maxReplicas" 0 . }}{{ $found = true }}{{ end }}{{ end }}
{{- $found }}
{{- end }}

{{/* Leader and workers of an instance. Takes root, name, stage, part (instances, workers, gpus …), after. */}}
{{- define "inference.instance" }}
{{- $order := fromYaml (include "inference.order" .root) }}
{{- $leader := include "inference.leaderName" . }}
{{- $worker := printf "%s-worker" .name }}
{{- $shared := dict "root" .root "stage" .stage "group" .name "workers" .part.workers "gpus" .part.gpus }}
{{- $after := .after | default list }}
{{- $condition := "Ready" }}
{{- if and .part.workers (eq $order.workers "beforeLeader") }}
{{- $after = append $after $worker }}
{{- $condition = $order.condition }}
{{- end }}
{{- if not .part.workers }}
{{- include "inference.clique" (merge (dict "name" $leader "role" "engine" "replicas" 1 "part" .part.leader "after" $after) $shared) }}
{{- else }}
{{- include "inference.clique" (merge (dict "name" $leader "role" "leader" "replicas" 1 "part" .part.leader "after" $after "condition" $condition) $shared) }}
{{- include "inference.clique" (merge (dict "name" $worker "role" "worker" "replicas" .part.workers "part" .part.worker "after" (ternary (list $leader) (list) (eq $order.workers "afterLeader")) "condition" $order.condition) $shared) }}
{{- end }}
{{- end }}

{{- define "inference.group" }}
- name: {{ .name }}
  cliqueNames: [{{ include "inference.leaderName" . }}{{ if .part.workers }}, {{ .name }}-worker{{ end }}]
  replicas: {{ .part.instances }}
  minAvailable: {{ .part.minAvailable }}
  {{- with .part.rollingUpdate }}
  rollingUpdate: {{ toJson . }}
  {{- end }}
  {{- with include "inference.scale" (dict "root" .root "scaling" .part.autoscaling "kind" "PodCliqueScalingGroup" "stage" .stage) }}
  scaleConfig: {{- . | nindent 4 }}
  {{- end }}
  {{- if and .root.Values.topologyName .root.Values.pack.instance }}
  topologyConstraint:
    {{- if not .root.Values.pack.system }}
    topologyName: {{ .root.Values.topologyName }}
    {{- end }}
    pack: {required: {{ .root.Values.pack.instance }}}
  {{- end }}
{{- end }}
