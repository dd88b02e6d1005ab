{{/* Labels of every object. Call with (dict "root" $ "name" "grove-operator" "component" "operator"). */}}
{{- define "grove.labels" -}}
{{ include "grove.selector" . }}
app.kubernetes.io/part-of: grove
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "grove.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "grove.operatorLabels" -}}
{{ include "grove.labels" (dict "root" . "name" "grove-operator" "component" "operator") }}
{{- end }}

{{- define "grove.schedulerLabels" -}}
{{ include "grove.labels" (dict "root" . "name" "grove-scheduler" "component" "scheduler") }}
{{- end }}

{{- define "grove.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if hasPrefix "sha256:" $tag -}}
{{ .Values.image.repository }}@{{ $tag }}
{{- else -}}
{{ .Values.image.repository }}:{{ $tag }}
{{- end -}}
{{- end }}

{{/* Names of the schedulers that sets may use, comma-separated with commas at both ends. */}}
{{- define "grove.profiles" -}}
,default-scheduler,{{ range .Values.config.scheduler.profiles }}{{ .name }},{{ end }}
{{- end }}

{{/* The OperatorConfiguration: config as given, without what only the chart reads. */}}
{{- define "grove.operatorConfig" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := unset $config.server.healthProbes "enable" -}}
{{- if not $config.leaderElection.resourceNamespace -}}
{{- $_ := set $config.leaderElection "resourceNamespace" .Release.Namespace -}}
{{- end -}}
{{- if and (eq $config.server.webhooks.certProvisionMode "cert-manager") (not $config.server.webhooks.certManagerCertificate) -}}
{{- $_ := set $config.server.webhooks "certManagerCertificate" (printf "%s/grove-operator" .Release.Namespace) -}}
{{- end -}}
{{- range $key, $value := .Values.topologyAwareScheduling -}}
{{- $_ := set $config.topologyAwareScheduling $key $value -}}
{{- end -}}
{{- if eq (toString (dig "featureGates" "GroveIntegration" true .Values.scheduler.config)) "false" -}}
{{- range $config.scheduler.profiles -}}
{{- if eq .name "grove-scheduler" -}}
{{- $_ := set . "config" (merge (dict "groveIntegration" false) (default dict .config)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .Values.dialects.enabled -}}
{{- $_ := set $config "dialects" (dict "enabled" true) -}}
{{- end -}}
{{- $account := printf "system:serviceaccount:%s:%s" .Release.Namespace .Values.scheduler.serviceAccount.name -}}
{{- $_ := set $config.authorizer "exemptServiceAccountUserNames" (append (default list $config.authorizer.exemptServiceAccountUserNames) $account | uniq) -}}
{{- toYaml (merge (dict "apiVersion" "operator.config.grove.io/v1alpha1" "kind" "OperatorConfiguration") $config) -}}
{{- end }}

{{- define "grove.schedulerConfig" -}}
{{- $config := deepCopy .Values.scheduler.config -}}
{{- if not $config.leaderElection.resourceNamespace -}}
{{- $_ := set $config.leaderElection "resourceNamespace" .Release.Namespace -}}
{{- end -}}
{{- toYaml (merge (dict "apiVersion" "scheduler.config.grove.io/v1alpha1" "kind" "SchedulerConfiguration") $config) -}}
{{- end }}

{{/* The name carries the content's hash, so that a changed file is a new rollout. */}}
{{- define "grove.operatorConfigName" -}}
grove-operator-cm-{{ include "grove.operatorConfig" . | sha256sum | trunc 8 }}
{{- end }}

{{- define "grove.schedulerConfigName" -}}
grove-scheduler-cm-{{ include "grove.schedulerConfig" . | sha256sum | trunc 8 }}
{{- end }}

{{/* Replicas on different nodes where there are some. Call with (dict "given" affinity "selector" labels). */}}
{{- define "grove.affinity" -}}
{{- if .given -}}
{{ toYaml .given }}
{{- else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- .selector | nindent 10 }}
{{- end -}}
{{- end }}

{{/* Replicas in different zones where nodes name theirs. Call with (dict "given" constraints "selector" labels). */}}
{{- define "grove.spread" -}}
{{- $zones := dict "maxSkew" 1 "topologyKey" "topology.kubernetes.io/zone" "whenUnsatisfiable" "ScheduleAnyway" -}}
{{- $ours := dict "labelSelector" (dict "matchLabels" (fromYaml .selector)) -}}
{{- $constraints := list -}}
{{- range (.given | default (list $zones)) -}}
{{- $constraints = append $constraints (merge (deepCopy .) $ours) -}}
{{- end -}}
{{- toYaml $constraints -}}
{{- end }}

{{/* Whether deployment.env brings its own init image. */}}
{{- define "grove.hasInitImage" -}}
{{- range .Values.deployment.env }}{{ if eq .name "GROVE_INIT_CONTAINER_IMAGE" }}yes{{ end }}{{ end -}}
{{- end }}

{{/* Run when the operator and its rights are gone: before, it would put the webhook configurations back. */}}
{{- define "grove.afterUninstall" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}
