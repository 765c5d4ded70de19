"""Breaks each thing once, in a copy, and sees the test that is there for it fail: a test that cannot fail proves nothing.

usage: .venv/bin/python breaks.py [PART OF A TEST'S NAME]      (four minutes)
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from packages import HERE, ROOT

CHART = "packaging/helm/relserve"
GATEWAY, POSTGRES, VLLM = (f"{CHART}/templates/{name}.yaml" for name in ["gateway", "postgres", "vllm"])
HELPERS, SERVICE, EXTRAS = (f"{CHART}/templates/{name}" for name in ["_helpers.tpl", "service.yaml", "extras.yaml"])
COMPOSE, DOCKERFILE, UNIT = "packaging/compose.yaml", "packaging/Dockerfile", "packaging/systemd/relserve.service"
TRACES = "packaging/compose.traces.yaml"

# A file, what stands in it once, what stands there instead, the test that has to fail, and what it has to say.
BREAKS = [
    (GATEWAY, "kind: StatefulSet", "kind: StatefulSets", "objects_are_those", "no StatefulSets of apps/v1"),
    (GATEWAY, "podManagementPolicy: Parallel", "podManagement: Parallel", "objects_are_those", "podManagement"),
    (GATEWAY, "automountServiceAccountToken: false", "automountServiceAccountTokens: false", "objects_are_those", "Tokens"),
    (GATEWAY, "fsGroup: 10001", 'fsGroup: "10001"', "objects_are_those", "fsGroup"),
    (VLLM, "periodSeconds: 5\n", "period: 5\n", "objects_are_those", "period"),
    (SERVICE, "clusterIP: None", "clusterIPs: None", "objects_are_those", "clusterIPs"),
    (SERVICE, 'name: {{ include "relserve.name" . }}-pods', 'name: {{ include "relserve.name" . }}', "objects_are_those", "twice"),
    (GATEWAY, "apiVersion: apps/v1", "apiVersion: apps/v1\napiVersion: apps/v1", "selectors_pick", "twice in one map"),
    (GATEWAY, "  template:\n    metadata:\n      labels: {{- include \"relserve.labels\" (list . \"gateway\")",
     "  template:\n    metadata:\n      labels: {{- include \"relserve.labels\" (list . \"gate\")", "selectors_pick", "own pods"),
    (GATEWAY, "serviceName: {{ include \"relserve.name\" . }}-pods", "serviceName: {{ include \"relserve.name\" . }}",
     "selectors_pick", "no headless service"),
    (EXTRAS, '(list . "gateway") | nindent 6 }}\n{{- end }}\n{{- if .Values.serviceMonitor', '(list . "vllm") | nindent 6 }}\n{{- end }}\n{{- if .Values.serviceMonitor',
     "selectors_pick", "PodDisruptionBudget"),
    (EXTRAS, '      relserve/scraped: "yes"', '      relserve/scraped: "no"', "selectors_pick", "ServiceMonitor"),
    (EXTRAS, "port: health", "port: metrics", "selectors_pick", "no port metrics"),
    (GATEWAY, "path: /readyz, port: health", "path: /readyz, port: healthy", "ports_are_there", "readinessProbe"),
    (SERVICE, "targetPort: sql", "targetPort: postgres", "ports_are_there", "no port postgres"),
    (f"{CHART}/templates/ingress.yaml", '"https" "http" (ne $', '"https" "web" (ne $', "ports_are_there", "Ingress"),
    (GATEWAY, "key: database-url", "key: url", "what_is_named_is_there", "has no url"),
    (GATEWAY, 'configMap: {name: {{ include "relserve.name" . }}}', "configMap: {name: other}", "what_is_named_is_there", "ConfigMap other"),
    (GATEWAY, "        - name: scratch\n          emptyDir: {}\n", "", "what_is_named_is_there", "volumes"),
    (HELPERS, "serviceAccount.name | default (include", 'serviceAccount.name | default (printf "x%s" (include', "helm_finds", ""),
    (GATEWAY, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "nothing_is_root", "root file system"),
    (GATEWAY, "runAsUser: 10001", "runAsUser: 0", "nothing_is_root", "may be root"),
    (POSTGRES, "capabilities: {drop: [ALL]}", "capabilities: {drop: [CHOWN]}", "nothing_is_root", "keeps privileges"),
    (f"{CHART}/values.yaml", "tag: 17.6-bookworm}", "tag: latest}", "helm_finds", "/postgres/image/tag"),
    (HELPERS, '"database" "${RELSERVE_DATABASE_URL}"', '"database" (.Values.database.url | default "postgres://a")', "nothing_is_root", "outside of secrets"),
    (HELPERS, '"node" "${RELSERVE_NODE}"', '"node" "relserve"', "the_configuration_is_valid_and_fits", "one name"),
    (HELPERS, '"data_dir" "', '"data_folder" "', "the_configuration_is_valid_and_fits", "data_"),
    (HELPERS, '"rows_max" $rows', '"rows_most" $rows', "the_configuration_is_valid_and_fits", "rows_most"),
    (HELPERS, '"health_listen" (printf "%s:8081"', '"health_listen" (printf "%s:8082"', "the_configuration_is_valid_and_fits", "8082"),
    (HELPERS, "{{- toJson . -}}\n{{- end -}}\n{{- end -}}", "{{- . -}}\n{{- end -}}\n{{- end -}}", "the_configuration_is_valid_and_fits", "TOMLDecodeError"),
    (GATEWAY, "add 5 $drain 10", "add 5 10", "the_configuration_is_valid_and_fits", "while it drains"),
    (GATEWAY, "path: /healthz, port: health, scheme: {{ $scheme }}}\n            periodSeconds: 10", "path: /healthz, port: health}\n            periodSeconds: 10",
     "the_configuration_is_valid_and_fits", "scheme"),
    (GATEWAY, "name: RELSERVE_ADMIN_KEY", "name: RELSERVE_KEY", "the_configuration_is_valid_and_fits", "environment"),
    (GATEWAY, "mountPath: /etc/relserve-tls", "mountPath: /etc/tls", "the_configuration_is_valid_and_fits", "not mounted"),
    (VLLM, "clusterIP: None", "type: ClusterIP", "the_configuration_is_valid_and_fits", "clusterIP"),
    (VLLM, "            - --scheduling-policy\n            - priority\n", "", "the_configuration_is_valid_and_fits", "told to mind it"),
    (f"{CHART}/values.yaml", "drainSeconds: 60", "drainSeconds: 10", "the_configuration_is_valid_and_fits", "before the gateways know"),
    (HELPERS, '(mul (int .Values.vllm.sequencesMax) 6) 5', '(mul (int .Values.vllm.sequencesMax) 5) 5', "reach_the_configuration", "rows_max"),
    (f"{CHART}/templates/vllm.yaml", "replicas: {{ .Values.vllm.replicas }}", "replicas: 1", "reach_the_objects", "relserve-vllm"),
    (f"{CHART}/templates/secret.yaml", "default (randAlphaNum 40) }}\napiVersion", 'default "change-me" }}\napiVersion', "by_chance_or_given", "no default"),
    (f"{CHART}/values.schema.json", '"listen": false', '"listen": true', "refused_by_name", "config.server.listen"),
    (HELPERS, '{{- fail "secret.existing:', '{{- print "secret.existing:', "refused_by_name", "secret.existing"),
    (f"{CHART}/values.schema.json", '"workbooks"', '"notebooks"', "schema_knows", "workbooks"),
    (f"{CHART}/values.yaml", 'podAnnotations: {}', "podAnnotations: {}\npodNotes: {}", "schema_knows", "podNotes"),
    (f"{CHART}/templates/NOTES.txt", "statefulset/{{ $name }}", "statefulset/gateway", "notes_name", "gateway"),
    (COMPOSE, "./compose/secrets.sh", "./compose/secret.sh", "files_and_volumes", "secret.sh"),
    (COMPOSE, "volumes:\n  secrets:\n", "volumes:\n", "files_and_volumes", "secrets"),
    (COMPOSE, "image: relserve:0.1.0", "image: relserve", "images_are_pinned", "gateway"),
    (COMPOSE, "${RELSERVE_ADMIN_KEY:-}", "${RELSERVE_ADMIN_KEY:-change-me}", "no_secret_stands", "RELSERVE_ADMIN_KEY"),
    (COMPOSE, "postgres: {condition: service_healthy}", "postgres: {condition: service_started}", "wait_for_what", "service_"),
    (COMPOSE, "127.0.0.1:8080:8080", "8080:8080", "published_to_this", "8080"),
    ("packaging/compose/relserve.toml", "[store]", "[stored]", "Compose.test_the_configuration", "stored"),
    ("packaging/compose/relserve.toml", "priority = true", "urgent = true", "Compose.test_the_configuration", "urgent"),
    (COMPOSE, "stop_grace_period: 45s", "stop_grace_period: 20s", "Compose.test_the_configuration", "30000"),
    (TRACES, "http://jaeger:4318", "http://jaeger:4317", "traces_go_to", "4317"),
    (TRACES, "127.0.0.1:16686:16686", "16686:16686", "traces_go_to", "16686"),
    (TRACES, "    environment:", "    command: [serve]\n    environment:", "traces_go_to", "command"),
    (TRACES, "jaeger:2.10.0", "jaeger:latest", "traces_go_to", "latest"),
    ("packaging/compose/secrets.sh", '[ ! -s "$folder/$1" ] || return 0', ":", "secrets_are_made_once", "changes nothing"),
    (DOCKERFILE, "FROM debian:bookworm-slim", "FROM debian", "linter_of_dockerfiles", "DL3006"),
    (DOCKERFILE, "COPY client client", "COPY clients client", "what_is_copied", "clients"),
    (".dockerignore", "tests\n", "tests\nclient\n", "what_is_copied", "client"),
    (".dockerignore", "**/node_modules\n", "", "what_is_copied", "node_modules"),
    (DOCKERFILE, "--from=page /source/addins", "--from=pages /source/addins", "stages_copy_from", "pages"),
    (DOCKERFILE, "USER 10001:10001", "USER root", "small_and_not_root", "not 0"),
    (DOCKERFILE, "HEALTHCHECK", "#HEALTHCHECK", "small_and_not_root", "HEALTHCHECK"),
    (DOCKERFILE, "FROM --platform=$BUILDPLATFORM rust", "FROM rust", "builders_own", "rust"),
    (DOCKERFILE, "ARG RUST=1.", "ARG RUST=0.", "toolchain_is", "ARG RUST"),
    ("packaging/docker/relserve.toml", "8081", "8082", "Image.test_the_configuration", "8082"),
    ("packaging/docker/build-program.sh", "esac\nis_own", "is_own", "scripts_are_shell", "syntax error"),
    ("packaging/docker/relserve.sh", '*" --config="*) config=()', '*" --conf="*) config=()', "names_the_configuration", "--config=/b"),
    ("packaging/docker/relserve.sh", '  unset "$variable"\n', "", "secrets_that_are_files", "_FILE"),
    (UNIT, "ProtectSystem=strict", "ProtectSystem=strictly", "systemd_finds_nothing", "strictly"),
    ("packaging/systemd/gpu.conf", "PrivateDevices=no", "PrivateDevices=never", "systemd_finds_nothing", "never"),
    (UNIT, "CapabilityBoundingSet=\n", "", "may_do_little", "exposure level"),
    (UNIT, "kill -HUP", "kill -USR1", "as_hard_as", "HUP"),
    (UNIT, "TimeoutStopSec=60", "TimeoutStopSec=20", "it_fits_the_configuration", "30000"),
    (UNIT, "LimitCORE=0", "LimitCORE=infinity", "as_hard_as", "LimitCORE"),
    (UNIT, "LimitNOFILE=65536", "LimitNOFILE=4096", "it_fits_the_configuration", "4096"),
    ("packaging/systemd/relserve.toml", "# certificate_key", "# certificate_file", "it_fits_the_configuration", "certificate_file"),
    ("packaging/systemd/relserve.sysusers.conf", "u relserve", "u relserver", "user_is_made", "relserver"),
]


def broken(folder, path, old, new):
    """A root of which one file is another."""
    for entry in ROOT.iterdir():
        if entry.name not in ["packaging", ".dockerignore"]:
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "packaging", folder / "packaging")
    shutil.copy(ROOT / ".dockerignore", folder)
    text = (folder / path).read_text()
    assert old in text, f"{path} has no {old!r}: this list is older"
    (folder / path).write_text(text.replace(old, new, 1))


def main():
    wanted, wrong, count = (sys.argv[1:] or [""])[0], 0, 0
    for path, old, new, test, named in BREAKS:
        if wanted not in test:
            continue
        with tempfile.TemporaryDirectory() as folder:
            broken(pathlib.Path(folder), path, old, new)
            done = subprocess.run(
                [sys.executable, "-m", "unittest", "discover", "-k", f"*{test}*"], cwd=HERE,
                env={**os.environ, "RELSERVE_ROOT": folder}, text=True, capture_output=True, check=False)
        count += 1
        is_seen = done.returncode != 0 and named in done.stderr and "Ran 0 tests" not in done.stderr
        wrong += not is_seen
        print(f"{'seen' if is_seen else 'MISSED'}: {path}: {old.strip().splitlines()[0]} -> {(new.strip() or '-').splitlines()[0]}", flush=True)
        if not is_seen:
            print(done.stderr[-1500:])
    print(f"{count - wrong} of {count} breaks were seen")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
