#!/usr/bin/env bash
# Installs what the heavy clients need: Debian's packages, and a Python environment for each client that is one,
# because their packages exclude each other's. usage: tests/clients/install.sh
set -euo pipefail
cd "$(dirname "$0")/heavy"

missing=()
for package in libpostgresql-jdbc-java openjdk-17-jdk-headless odbc-postgresql unixodbc; do
  dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

for list in requirements-*.txt; do
  name=${list#requirements-} environment=.venv-${name%.txt}
  if ! cmp -s "$list" "$environment/installed.txt"; then
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check -r "$list"
    cp "$list" "$environment/installed.txt"
  fi
done
