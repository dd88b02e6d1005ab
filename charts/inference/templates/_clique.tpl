{{/* One clique. Takes root, name, replicas, min, image, args, gpus (0: a router or launcher), after (names). */}}
{{- define "inference.clique" }}
- name: {{ .name }}
  {{- if and .root.Values.queue }}
  labels: {kai.scheduler/queue: {{ .root.Values.queue | quote }}}
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
    podSpec:
      {{- with .root.Values.schedulerName }}
      schedulerName: {{ . }}
      {{- end }}
      {{- with .root.Values.serviceAccountName }}
      serviceAccountName: {{ . }}
      {{- end }}
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{ toJson . }}
      {{- end }}
      containers:
      - name: {{ if .gpus }}engine{{ else }}main{{ end }}
        image: {{ .image | quote }}
        {{- with .args }}
        args: {{ toJson . }}
        {{- end }}
        {{- with .root.Values.env }}
        env: {{ toJson . }}
        {{- end }}
        resources:
          {{- if .gpus }}
          limits: {nvidia.com/gpu: {{ .gpus }}}
          {{- else }}
          requests: {cpu: "2", memory: 4Gi}
          {{- end }}
{{- end }}

{{/* Leader and workers of an instance. Takes root, name, part (instances, workers, gpus …), after. */}}
{{- define "inference.instance" }}
{{- $leader := printf "%s-leader" .name }}
{{- include "inference.clique" (dict "root" .root "name" $leader "replicas" 1 "image" .root.Values.image "args" .part.leaderArgs "gpus" .part.gpus "after" .after) }}
{{- include "inference.clique" (dict "root" .root "name" (printf "%s-worker" .name) "replicas" .part.workers "image" .root.Values.image "args" .part.workerArgs "gpus" .part.gpus "after" (list $leader)) }}
{{- end }}

{{- define "inference.group" }}
- name: {{ .name }}
  cliqueNames: [{{ .name }}-leader, {{ .name }}-worker]
  replicas: {{ .part.instances }}
  minAvailable: {{ .part.minAvailable }}
  {{- if and .root.Values.topologyName .root.Values.pack.instance }}
  topologyConstraint:
    pack: {required: {{ .root.Values.pack.instance }}}
  {{- end }}
{{- end }}
