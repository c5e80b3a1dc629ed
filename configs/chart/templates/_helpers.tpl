{{/* The API groups for which there are rules, as JSON. */}}
{{- define "fenced.groups" -}}
{{- $groups := list }}
{{- if .Values.apiGroups }}
{{- $groups = .Values.apiGroups }}
{{- else }}
{{- range .Capabilities.APIVersions }}
{{- $groups = append $groups (first (splitList "/" .)) }}
{{- end }}
{{- end }}
{{- $groups = without $groups "fenced.io" }}
{{- if .Values.requests }}
{{- $groups = append $groups "fenced.io" }}
{{- end }}
{{- toJson (uniq $groups) }}
{{- end }}

{{/* The account of fenced, to which roles are bound. */}}
{{- define "fenced.subject" -}}
{kind: ServiceAccount, name: fenced, namespace: {{ .Release.Namespace }}}
{{- end }}

{{/* The labels of the pod of fenced. */}}
{{- define "fenced.selector" -}}
app.kubernetes.io/name: fenced
app.kubernetes.io/component: daemon
{{- end }}
