{{- define "tidewheel.name" -}}
{{- if contains "tidewheel" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-tidewheel" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tidewheel.selector" -}}
app.kubernetes.io/name: tidewheel
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "tidewheel.labels" -}}
{{ include "tidewheel.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end }}

{{- define "tidewheel.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end }}

{{- define "tidewheel.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "tidewheel.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tidewheel.storeVariable" -}}
- name: TIDEWHEEL_STORE
  valueFrom:
    secretKeyRef:
      name: {{ .Values.postgres.secretName | quote }}
      key: {{ .Values.postgres.secretKey | quote }}
{{- end }}

{{- define "tidewheel.pod" -}}
metadata:
  labels:
    {{- include "tidewheel.labels" . | nindent 4 }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  # The drain, and what it takes to close the store.
  terminationGracePeriodSeconds: {{ add .Values.drainSeconds 20 }}
  securityContext:
    {{- include "tidewheel.podSecurity" . | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "tidewheel.selector" . | nindent 10 }}
  containers:
    - name: tidewheel
      image: {{ include "tidewheel.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - serve
        - --listen=0.0.0.0:7400
        - --admin-key-file=/etc/tidewheel/admin-key
        - --drain={{ .Values.drainSeconds }}s
        - --log-format=json
        {{- if not .Values.postgres.secretName }}
        - --data=/var/lib/tidewheel/data
        {{- end }}
      env:
        {{- if .Values.postgres.secretName }}
        {{- include "tidewheel.storeVariable" . | nindent 8 }}
        {{- end }}
        {{- range $name, $value := .Values.settings }}
        - name: {{ $name }}
          value: {{ $value | quote }}
        {{- end }}
      ports:
        - {name: http, containerPort: 7400}
      # A start may have much to read.
      startupProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 2
        failureThreshold: 150
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        periodSeconds: 2
        timeoutSeconds: 2
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        {{- include "tidewheel.restricted" . | nindent 8 }}
      volumeMounts:
        - {name: admin-key, mountPath: /etc/tidewheel, readOnly: true}
        {{- if not .Values.postgres.secretName }}
        - {name: data, mountPath: /var/lib/tidewheel}
        {{- end }}
  volumes:
    - name: admin-key
      secret:
        secretName: {{ required "adminKey.secretName must name a secret with the first admin's key" .Values.adminKey.secretName | quote }}
        defaultMode: 0440
        items:
          - {key: {{ .Values.adminKey.secretKey | quote }}, path: admin-key}
{{- end }}
