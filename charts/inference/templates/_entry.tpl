{{- define "inference.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Name of the clique that answers requests. */}}
{{- define "inference.entry" -}}
{{- $v := .Values }}
{{- if eq (include "inference.hasRouter" .) "true" }}router
{{- else if eq $v.pattern "aggregatedMultiNode" }}{{ include "inference.leaderName" (dict "name" "engine" "part" $v.aggregatedMultiNode) }}
{{- else if eq $v.pattern "disaggregated" }}{{ include "inference.leaderName" (dict "name" "decode" "part" $v.disaggregated.decode) }}
{{- else if eq $v.pattern "agentic" }}{{ (first $v.agentic.models).name }}
{{- else if eq $v.pattern "mpi" }}launcher
{{- else }}engine
{{- end }}
{{- end }}

{{- define "inference.entryPods" -}}
app.kubernetes.io/part-of: {{ .Release.Name }}
grove.io/clique-name: {{ include "inference.entry" . }}
{{- end }}

{{/* Name of the container port where engines have their metrics. */}}
{{- define "inference.metricsPort" -}}
{{ ternary "system" "http" (eq .Values.engine "dynamo") }}
{{- end }}
