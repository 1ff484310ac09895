{{/* The name that every object begins with: the release's, or both where it does not tell what this is. */}}
{{- define "portal.name" -}}
{{- $chart := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $chart) (contains $chart .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{/* The same for what has no namespace. */}}
{{- define "portal.clusterName" -}}
{{- $name := include "portal.name" . -}}
{{- ternary $name (printf "%s-%s" $name .Release.Namespace) (eq $name .Release.Namespace) -}}
{{- end }}

{{/* By which one process of this release is found: (list $ "web"). */}}
{{- define "portal.selector" -}}
app.kubernetes.io/name: {{ (index . 0).Chart.Name }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Of every object: (list $ "web"). */}}
{{- define "portal.labels" -}}
{{ include "portal.selector" . }}
app.kubernetes.io/part-of: gpu-quota-portal
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version }}
{{- end }}

{{- define "portal.image" -}}
{{- $image := .Values.image -}}
{{- $name := required "image.repository is missing: where the portal's image lies, such as registry.example.org/gpu-quota-portal" $image.repository -}}
{{- if $image.digest }}{{ $name }}@{{ $image.digest }}{{ else }}{{ $name }}:{{ $image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end }}

{{- define "portal.url" -}}
{{- required "url is missing: how people will reach the portal, such as https://gpu.example.org, or http://localhost:8000 to try it through kubectl port-forward" .Values.url -}}
{{- end }}

{{- define "portal.notebookUrl" -}}
{{- $url := urlParse (include "portal.url" .) -}}
{{- if and (not .Values.notebookUrl) (hasPrefix "localhost" $url.host) -}}
{{ $url.scheme }}://*.{{ $url.host }}
{{- else -}}
{{- required "notebookUrl is missing: where notebooks are served, with * for a notebook's id, such as https://*.example-notebooks.org" .Values.notebookUrl -}}
{{- end -}}
{{- end }}

{{/* The host in an address, without its port. */}}
{{- define "portal.host" -}}
{{- (urlParse .).host | splitList ":" | first -}}
{{- end }}

{{/* The Secret with the keys. */}}
{{- define "portal.keys" -}}
{{- .Values.keys.existingSecret | default (printf "%s-keys" (include "portal.name" .)) -}}
{{- end }}
