{{/* The names of the release's objects begin with this. */}}
{{- define "relserve.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What picks the pods of a component: (list $ "gateway"). */}}
{{- define "relserve.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* All labels of an object of a component. */}}
{{- define "relserve.labels" -}}
{{- $root := index . 0 -}}
{{ include "relserve.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{- define "relserve.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "relserve.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "relserve.secret" -}}
{{- .Values.secret.existing | default (include "relserve.name" .) -}}
{{- end -}}

{{/* "postgres" where a database is shared, else empty: each gateway has a SQLite file. */}}
{{- define "relserve.database" -}}
{{- if or .Values.postgres.enabled .Values.database.url .Values.database.inSecret -}}postgres{{- end -}}
{{- end -}}

{{/* What the schema cannot say: it looks at one value at a time, and what it refuses it prints, secrets too. */}}
{{- define "relserve.validate" -}}
{{- if not (regexMatch "^(postgres(ql)?://.+)?$" .Values.database.url) -}}
{{- fail "database.url: must begin with postgres://" -}}
{{- end -}}
{{- if not (regexMatch "^(.{16,})?$" .Values.secret.adminKey) -}}
{{- fail "secret.adminKey: needs 16 characters" -}}
{{- end -}}
{{- if not (regexMatch "^([A-Za-z0-9._~-]{12,})?$" .Values.postgres.password) -}}
{{- fail "postgres.password: needs 12 characters, letters, digits and ._~- alone, for it stands in an address" -}}
{{- end -}}
{{- if and (gt (int .Values.gateways) 1) (not (include "relserve.database" .)) -}}
{{- fail "gateways: more than one need a database that they share: postgres.enabled, database.url or database.inSecret" -}}
{{- end -}}
{{- if and .Values.postgres.enabled .Values.database.url -}}
{{- fail "database.url: names another database while postgres.enabled is true; one of them" -}}
{{- end -}}
{{- if and .Values.secret.existing (or .Values.database.url .Values.secret.adminKey .Values.postgres.password) -}}
{{- fail "secret.existing: has the secrets, so database.url, secret.adminKey and postgres.password stay empty" -}}
{{- end -}}
{{- if and .Values.database.inSecret (not .Values.secret.existing) -}}
{{- fail "database.inSecret: needs secret.existing, a secret that has the database's address" -}}
{{- end -}}
{{- if and .Values.vllm.enabled (hasKey .Values.config "model") (hasKey (default dict .Values.config.model) "name") -}}
{{- fail "config.model.name: is vllm.model while vllm.enabled is true" -}}
{{- end -}}
{{- end -}}

{{/* Seconds that running relQueries get after SIGTERM. */}}
{{- define "relserve.drainSeconds" -}}
{{- $server := default dict .Values.config.server -}}
{{- div (add (int (get $server "drain_ms_max" | default 30000)) 999) 1000 -}}
{{- end -}}

{{/* The configuration as YAML: what is the chart's own, under the sections of `config`. */}}
{{- define "relserve.config" -}}
{{- $server := dict "listen" (printf "%s:8080" .Values.listenAddress) "health_listen" (printf "%s:8081" .Values.listenAddress) -}}
{{- $config := dict "server" $server "auth" (dict "admin_key" "${RELSERVE_ADMIN_KEY}") -}}
{{- $store := dict "data_dir" "/var/lib/relserve" "node" "${RELSERVE_NODE}" -}}
{{- if include "relserve.database" . -}}
{{- $_ := set $store "database" "${RELSERVE_DATABASE_URL}" -}}
{{- end -}}
{{- $_ := set $config "store" $store -}}
{{- $files := dict "certificate" "/etc/relserve-tls/tls.crt" "certificate_key" "/etc/relserve-tls/tls.key" -}}
{{- if .Values.tls.secret -}}
{{- $_ := merge $server $files -}}
{{- end -}}
{{- if .Values.sql.enabled -}}
{{- $sql := dict "listen" (printf "%s:5433" .Values.listenAddress) -}}
{{- if .Values.tls.secret -}}
{{- $_ := merge $sql $files -}}
{{- end -}}
{{- $_ := set $config "sql" $sql -}}
{{- end -}}
{{- if .Values.vllm.enabled -}}
{{- $_ := set $config "model" (dict "name" .Values.vllm.model) -}}
{{- $dns := printf "%s-vllm.%s.svc.%s." (include "relserve.name" .) .Release.Namespace .Values.clusterDomain -}}
{{- $rows := div (mul (int .Values.vllm.sequencesMax) 6) 5 -}}
{{- $replica := dict "dialect" "vllm" "priority" true "rows_max" $rows -}}
{{- $_ := set $config "discovery" (dict "dns" $dns "port" 8000 "replica" $replica) -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.config)) -}}
{{- end -}}

{{- define "relserve.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end -}}

{{/* A value in TOML, on one line. Helm's own toToml writes whole numbers as 1.0, which the program refuses. */}}
{{- define "relserve.toml.value" -}}
{{- if kindIs "map" . -}}
{{- $map := . -}}
{{- $pairs := list -}}
{{- range keys . | sortAlpha -}}
{{- $value := get $map . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $pairs = append $pairs (printf "%s = %s" (include "relserve.toml.key" .) (include "relserve.toml.value" $value)) -}}
{{- end -}}
{{- end -}}
{ {{- join ", " $pairs -}} }
{{- else if kindIs "slice" . -}}
{{- $values := list -}}
{{- range . }}{{ $values = append $values (include "relserve.toml.value" .) }}{{ end -}}
[{{ join ", " $values }}]
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}

{{/* The lines of a section. */}}
{{- define "relserve.toml.lines" -}}
{{- $section := . -}}
{{- range keys . | sortAlpha -}}
{{- $value := get $section . -}}
{{- if not (kindIs "invalid" $value) }}
{{ include "relserve.toml.key" . }} = {{ include "relserve.toml.value" $value }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* relserve.toml. */}}
{{- define "relserve.toml" -}}
{{- $config := include "relserve.config" . | fromYaml -}}
{{- range $name := keys $config | sortAlpha -}}
{{- $section := get $config $name -}}
{{- if kindIs "slice" $section -}}
{{- range $section }}
[[{{ $name }}]]
{{- include "relserve.toml.lines" . }}
{{ end -}}
{{- else if kindIs "map" $section }}
[{{ $name }}]
{{- include "relserve.toml.lines" $section }}
{{ end -}}
{{- end -}}
{{- end -}}
