{{/* What all processes have in common: the specification of a pod that runs (dict "root" $ "name" "web" "container" YAML).
     Besides: "account" (it talks to clusters), "grace" in seconds, "waits" for what before it begins, "restart" policy,
     "claim" of a volume that it has at /backup. */}}
{{- define "portal.pod" -}}
{{- $ := .root -}}
serviceAccountName: {{ include "portal.name" $ }}
automountServiceAccountToken: {{ .account | default false }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .grace | default 30 }}
{{- with .restart }}
restartPolicy: {{ . }}
{{- end }}
{{- include "portal.placement" (list $ .name) }}
securityContext:
  {{- toYaml $.Values.podSecurityContext | nindent 2 }}
initContainers:
  {{- if $.Values.trustedCertificates }}
  - name: trusted-certificates
    command: [sh, -c, 'cat "$(python -m certifi)" /trusted/*.crt > /tmp/trusted.crt']
    {{- include "portal.container" $ | nindent 4 }}
      - {name: trusted, mountPath: /trusted, readOnly: true}
  {{- end }}
  - name: waits
    command: [python, manage.py, wait_for, {{ .waits | default "migrations" }}]
    {{- include "portal.environment" $ | nindent 4 }}
    {{- include "portal.container" $ | nindent 4 }}
containers:
  - name: portal
    {{- .container | nindent 4 }}
    {{- include "portal.environment" $ | nindent 4 }}
    resources:
      {{- toYaml (index $.Values .name).resources | nindent 6 }}
    {{- include "portal.container" $ | nindent 4 }}
      {{- if .claim }}
      - {name: backup, mountPath: /backup}
      {{- end }}
volumes:
  {{- with .claim }}
  - {name: backup, persistentVolumeClaim: {claimName: {{ . }}}}
  {{- end }}
  - {name: data, emptyDir: {}}
  - {name: tmp, emptyDir: {}}
  {{- with $.Values.files }}
  - {name: files, secret: {secretName: {{ . }}}}
  {{- end }}
  {{- with $.Values.trustedCertificates }}
  - {name: trusted, configMap: {name: {{ . }}}}
  {{- end }}
{{- end }}

{{/* Ends with volumeMounts, to which more may be added. */}}
{{- define "portal.container" -}}
image: {{ include "portal.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
  {{- if .Values.files }}
  - {name: files, mountPath: /etc/portal, readOnly: true}
  {{- end }}
{{- end }}

{{- define "portal.environment" -}}
envFrom:
  - configMapRef: {name: {{ include "portal.name" . }}}
  - secretRef: {name: {{ include "portal.keys" . }}}
  {{- range .Values.settingsFrom }}
  - secretRef: {name: {{ . }}}
  {{- end }}
{{- $database := .Values.database.secret }}
{{- $redis := .Values.redis.secret }}
{{- if or $database.name $redis.name }}
env:
  {{- if $database.name }}
  - name: DATABASE_URL
    valueFrom: {secretKeyRef: {name: {{ $database.name }}, key: {{ $database.key }}}}
  {{- end }}
  {{- if $redis.name }}
  - name: REDIS_URL
    valueFrom: {secretKeyRef: {name: {{ $redis.name }}, key: {{ $redis.key }}}}
  {{- end }}
{{- end }}
{{- end }}

{{/* Where pods go: (list $ "web"). Those of one kind stand apart where that is possible. */}}
{{- define "portal.placement" -}}
{{- $ := index . 0 }}
{{- with $.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- $selector := include "portal.selector" . }}
  {{- range tuple "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
  {{- end }}
{{- end }}

{{/* The metadata of a pod: (list $ "web"). It changes with the settings, so that the processes read them again. */}}
{{- define "portal.podMetadata" -}}
{{- $ := index . 0 }}
labels:
  {{- include "portal.selector" . | nindent 2 }}
  app.kubernetes.io/part-of: gpu-quota-portal
  {{- with $.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/settings: {{ include "portal.settings" $ | sha256sum }}
  {{- with $.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
