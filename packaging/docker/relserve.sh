#!/usr/bin/env bash
# The program of the image with its configuration: what `docker run` starts, and what `docker exec` and `kubectl exec`
# find as `relserve`, so that `relserve sign-in` means the database of the server.
#
# A variable RELSERVE_X_FILE names a file with the value of RELSERVE_X: secrets of Docker and of Kubernetes are files,
# and the configuration takes variables, as ${RELSERVE_X}.
set -euo pipefail

for variable in $(compgen -e | grep -E '^RELSERVE_[A-Z0-9_]+_FILE$' || true); do
  name=${variable%_FILE}
  [ -z "${!name+set}" ] || { echo "$name and $variable are both set: one of them" >&2; exit 1; }
  [ -r "${!variable}" ] || { echo "$variable: cannot read ${!variable}" >&2; exit 1; }
  # Without the line's end, which is no part of a secret.
  export "$name=$(cat "${!variable}")"
  unset "$variable"
done

program=${RELSERVE_PROGRAM:-/usr/local/lib/relserve/relserve}
config=(--config "${RELSERVE_CONFIG:-/etc/relserve/relserve.toml}")
case " $* " in *" --config "* | *" --config="*) config=() ;; esac
# Called by the name that people call it by, which its messages repeat.
exec -a relserve "$program" "${config[@]}" "$@"
