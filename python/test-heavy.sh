#!/usr/bin/env bash
# The Python package's heavy tests: types, the wheel, and the integrations whose libraries are large, each in an
# environment of its own. A family that cannot be installed is skipped with a line that says so; spark needs Java, and
# lotus what tests/vllm/install.sh installs.
# usage: python/test-heavy.sh PROGRAM [FAMILY ..] with the families types, wheel, daft, ray, spark, lotus
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")"
shift
families=("$@")
[ "$#" -gt 0 ] || families=(types wheel daft ray spark lotus)

./test.sh --install
work=$(mktemp -d)
. ../tests/server.sh
. ../tests/clients/environment.sh
printf '[model]\ndemo_functions = "all"\n' >"$work/relserve.toml"
serve "$program" --config "$work/relserve.toml"
export RELSERVE_URL="$address" RELSERVE_KEY="$key"
# No library tells its makers about these runs.
export DO_NOT_TRACK=1 LITELLM_LOCAL_MODEL_COST_MAP=True RAY_USAGE_STATS_ENABLED=0

failed=0
said() { # FAMILY COMMAND ..
  if "${@:2}"; then echo "passed: $1"; else echo "FAILED: $1" && failed=1; fi
}

# What goes to PyPI: both forms hold the licence and its index would take them, and the wheel works as a user installs it,
# without the sources and with its types.
wheel() {
  local python=$work/wheel/bin/python
  cmp ../LICENSE LICENSE &&
    python3 -m venv "$work/wheel" &&
    "$python" -m pip install --quiet --disable-pip-version-check build==1.6.1 twine==7.0.0 &&
    "$python" -m build --outdir "$work/dist" . >"$work/built" &&
    "$python" -m twine check --strict "$work/dist"/* &&
    tar -tzf "$work/dist"/*.tar.gz | grep /LICENSE$ &&
    "$python" -m zipfile -l "$work/dist"/*.whl | grep /licenses/LICENSE &&
    "$python" -m pip install --quiet --disable-pip-version-check "$work/dist"/*.whl &&
    (cd / && "$work/wheel/bin/python" -c '
import pathlib, relserve
assert (pathlib.Path(relserve.__file__).parent / "py.typed").exists()
assert relserve.Client().models()')
}

for family in "${families[@]}"; do
  case $family in
    types) said types .venv-core/bin/mypy ;;
    wheel) said wheel wheel ;;
    *)
      if [ "$family" = spark ] && ! java -version 2>/dev/null; then
        echo "skipped: spark (there is no Java)"
      elif environment . "$family"; then
        said "$family" env PYTHONPATH=src ".venv-$family/bin/python" -m pytest "heavy/test_$family.py"
      else
        echo "skipped: $family (its packages could not be installed)"
      fi
      ;;
  esac
done
exit "$failed"
