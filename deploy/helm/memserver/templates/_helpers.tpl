{{- define "memserver.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "memserver.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "memserver.labels" -}}
{{ include "memserver.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "memserver.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Of a container that needs nothing of the node: what the policy "restricted" of Kubernetes wants. */}}
{{- define "memserver.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "memserver.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "memserver.appRoleSecret" -}}
{{ .Values.postgres.appRoleSecret | default (printf "%s-app-role" (include "memserver.name" .)) }}
{{- end }}

{{- /* Each key of these secrets is a file in /run/secrets/memserver. */}}
{{- define "memserver.secrets" -}}
{{- if .Values.database.existingSecret }}
- secret:
    name: {{ .Values.database.existingSecret }}
    items:
      - {key: url, path: database-url}
      - {key: app-url, path: database-app-url}
      {{- if .Values.readReplicas }}
      - {key: read-url, path: database-read-url}
      {{- end }}
{{- else }}
- secret:
    name: {{ include "memserver.name" . }}-postgres-app  # the operator writes it
    items:
      - {key: uri, path: database-url}
- secret:
    name: {{ include "memserver.appRoleSecret" . }}
    items:
      - {key: url, path: database-app-url}
      {{- if .Values.readReplicas }}
      - {key: read-url, path: database-read-url}
      {{- end }}
{{- end }}
- secret:
    name: {{ .Values.adminKey.existingSecret }}
    items:
      - {key: admin-key, path: admin-key}
{{- with .Values.llm.existingSecret }}
- secret:
    name: {{ . }}
    items:
      - {key: api-key, path: llm-api-key}
{{- end }}
{{- range $name, $from := .Values.secretSettings }}
{{- if hasPrefix "MEMSERVER_" $name }}
- secret:
    name: {{ $from.name }}
    items:
      - {key: {{ $from.key | quote }}, path: {{ $name }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "memserver.volumes" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- include "memserver.secrets" . | trim | nindent 6 }}
- name: home
  emptyDir:
    sizeLimit: {{ .Values.home.sizeLimit }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "memserver.mounts" -}}
- {name: secrets, mountPath: /run/secrets/memserver, readOnly: true}
- {name: home, mountPath: /var/lib/memserver}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "memserver.environment" -}}
- name: MEMSERVER_DATABASE_URL_FILE
  value: /run/secrets/memserver/database-url
- name: MEMSERVER_DATABASE_APP_URL_FILE
  value: /run/secrets/memserver/database-app-url
{{- if .Values.readReplicas }}
- name: MEMSERVER_DATABASE_READ_URL_FILE
  value: /run/secrets/memserver/database-read-url
{{- end }}
- name: MEMSERVER_ADMIN_KEY_FILE
  value: /run/secrets/memserver/admin-key
{{- if .Values.llm.existingSecret }}
- name: MEMSERVER_LLM_API_KEY_FILE
  value: /run/secrets/memserver/llm-api-key
{{- end }}
- name: MEMSERVER_LLM_BASE_URL
  value: {{ .Values.llm.baseUrl | default (printf "http://%s-vllm:8000/v1" (include "memserver.name" .)) | quote }}
- name: MEMSERVER_LLM_MODEL
  value: {{ .Values.llm.model | quote }}
- name: MEMSERVER_WORKERS
  value: {{ .Values.workers | quote }}
- name: MEMSERVER_LOG_FORMAT
  value: json
{{- with .Values.ingress.trustedProxies }}
- name: MEMSERVER_TRUSTED_PROXIES
  value: {{ join "," . | quote }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- range $name, $from := .Values.secretSettings }}
{{- if hasPrefix "MEMSERVER_" $name }}
- name: {{ $name }}_FILE
  value: /run/secrets/memserver/{{ $name }}
{{- else }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef: {name: {{ $from.name }}, key: {{ $from.key | quote }}}
{{- end }}
{{- end }}
{{- end }}
