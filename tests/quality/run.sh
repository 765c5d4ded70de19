#!/usr/bin/env bash
# A trained model's answers in each format beside those of transformers in f32: 200 prompts to SmolLM2-135M-Instruct, as
# `relserve pull` takes it out of a Python package, on a server of each format's own. The table says what share of answers
# and tokens is the same and how far the distributions are; a format that is further off than its kind explains fails.
# usage: tests/quality/run.sh PROGRAM [FORMAT ..]
# formats: f32, the weights as transformers writes them, so that nothing is rounded; stored, the file as it is; stored-f32,
#   stored-f16 and stored-bf16, as `engine.dtype` keeps it; q8, q8-wide and q4 (`--quantize`); kv-q8, q8-kv-q8 and q4-kv-q8
#   (`--kv q8` too)
# It installs PyTorch and transformers into .venv-quality (5 GB, minutes), and skips with a line where they or the model
# cannot be had. RELSERVE_QUALITY_MODEL is a GGUF file or a folder to use instead of that model; it has no limits.
set -euo pipefail
program=$(realpath "$1")
[ -x "$program" ] || { echo "no program: $program" >&2; exit 2; }
model=${RELSERVE_QUALITY_MODEL:+$(realpath "$RELSERVE_QUALITY_MODEL")}
cd "$(dirname "$0")/../.."
shift
[ $# -gt 0 ] || set -- f32 stored-f32 stored q8 q8-wide q4 kv-q8 q4-kv-q8

skip() { echo "skipped: $*"; exit 0; }
wanted=tests/quality/requirements.txt
if ! cmp -s "$wanted" .venv-quality/installed.txt; then
  python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
    skip "no python3 from 3.10 on with venv"
  rm -rf .venv-quality
  python3 -m venv .venv-quality
  .venv-quality/bin/pip install --quiet --disable-pip-version-check --no-cache-dir -r "$wanted" ||
    skip "PyTorch and transformers could not be installed"
  cp "$wanted" .venv-quality/installed.txt
fi

shared=$(mktemp -d)
trap 'rm -rf "$shared"' EXIT
if [ -z "$model" ]; then
  # No hub: it has the same model in bf16, and it is the file in four bits whose answers are known.
  said=$(HF_ENDPOINT=http://127.0.0.1:9 "$program" pull smollm2-135m-instruct --data-dir target/quality) ||
    skip "SmolLM2-135M-Instruct could not be fetched"
  model=${said##*--model }
fi
# All that is asked of transformers is here: no hub is looked for.
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error TOKENIZERS_PARALLELISM=false TQDM_DISABLE=1 OMP_WAIT_POLICY=passive
.venv-quality/bin/python tests/quality/quality.py reference "$model" "$shared"

failed=0
for format in "$@"; do
  served=$model options=() settings=
  case $format in
    f32) served=$shared/f32 ;;
    stored) ;;
    stored-f32 | stored-f16 | stored-bf16) settings="dtype = \"${format#stored-}\"" ;;
    q8 | q8-wide | q4) options=(--quantize "$format") ;;
    kv-q8) options=(--kv q8) ;;
    q8-kv-q8 | q4-kv-q8) options=(--quantize "${format%-kv-q8}" --kv q8) ;;
    *) echo "no format: $format" >&2; exit 2 ;;
  esac
  # A shell of its own, for a server of its own and its end.
  (
    work=$(mktemp -d)
    . tests/server.sh
    printf '[engine]\n%s\n' "$settings" >"$work/relserve.toml"
    serve "$program" --config "$work/relserve.toml" --device cpu --model "$served" "${options[@]}"
    SERVER=$server RELSERVE_BASE_URL=$address RELSERVE_API_KEY=$key \
      .venv-quality/bin/python tests/quality/quality.py ask "$format" "$shared"
  ) || failed=1
done
exit "$failed"
