#!/usr/bin/env bash
# Load generators of others against a server of their own, each with its usual settings and few requests.
# usage: tests/clients/load/run.sh PROGRAM CLIENT ..    clients: aiperf guidellm vllm
# guidellm and vllm (`vllm bench serve`) need what tests/vllm/install.sh installs. A client that cannot be had is skipped
# with a line, and the exit status is then 3.
# RELSERVE_CLIENTS_MODEL serves another model than the built-in one: a folder or a file as `--model` takes it.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")"
shift

work=$(mktemp -d)
. ../../server.sh
. ./torch.sh
printf '[model]\nname = "relserve-demo"\ndemo_functions = "all"\n' >"$work/relserve.toml"
serve "$program" --config "$work/relserve.toml" ${RELSERVE_CLIENTS_MODEL:+--model "$RELSERVE_CLIENTS_MODEL"}
for row in $(seq 20); do
  printf '{"prompt": "Is review %s good? Text: a wonderful film.", "text": "Is review %s good? Text: a wonderful film."}\n' "$row" "$row"
done >"$work/prompts.jsonl"
tokenizer=../../../models/demo
# No client tells its makers about these runs, and none asks a hub for a tokenizer that is a folder here.
export DO_NOT_TRACK=1 HF_HUB_OFFLINE=1

# Says what a client counted, and fails where that is not 20 requests, all answered.
count() { # CLIENT REPORT COUNTS: of the report, `found`, in Python: how many were answered and how many failed
  python3 - "$@" <<'PY'
import json, sys
client, report, counts = sys.argv[1:]
answered, failed = eval(counts, {"found": json.load(open(report))})
print(f"{client}: {answered:.0f} requests, {failed:.0f} failed")
sys.exit((answered, failed) != (20, 0))
PY
}

# Told that it is offline, it looks for a folder in the hub's cache; else it reads it as it is.
aiperf() {
  env -u HF_HUB_OFFLINE .venv-aiperf/bin/aiperf profile --model relserve-demo --url "$address" --api-key "$key" --endpoint-type chat --streaming \
    --input-file "$work/prompts.jsonl" --custom-dataset-type single_turn --tokenizer "$tokenizer" --use-server-token-count \
    --request-count 20 --concurrency 4 --artifact-dir "$work/aiperf" --ui simple
  count aiperf "$work/aiperf/profile_export_aiperf.json" \
    'found["request_count"]["avg"], (found.get("error_request_count") or {"avg": 0})["avg"]'
}

guidellm() {
  .venv-guidellm/bin/guidellm run \
    --backend "kind=openai_http,target=$address,model=relserve-demo,api_key=$key,max_tokens=16" \
    --data "kind=json_file,path=$work/prompts.jsonl" --tokenizer "kind=huggingface_auto,model=$tokenizer" \
    --profile kind=concurrent,streams=4 --constraint kind=max_requests,count=20 \
    --output "kind=json,path=$work/guidellm.json" --disable-console-interactive
  count guidellm "$work/guidellm.json" \
    '[found["benchmarks"][0]["metrics"]["request_totals"][name] for name in ("successful", "errored")]'
}

# Chats with the prompts, then completions of random tokens, which is what it sends when it is told neither.
vllm() {
  local bench=(.venv-vllm/bin/python -m vllm.entrypoints.cli.main bench serve --base-url "$address" --model relserve-demo
    --tokenizer "$tokenizer" --num-prompts 20 --max-concurrency 4 --disable-tqdm --save-result --result-dir "$work")
  local counts='found["completed"], found["failed"]'
  export OPENAI_API_KEY=$key
  "${bench[@]}" --backend openai-chat --endpoint /v1/chat/completions --dataset-name custom \
    --dataset-path "$work/prompts.jsonl" --custom-output-len 16 --result-filename chats.json
  "${bench[@]}" --random-input-len 64 --random-output-len 16 --ignore-eos --result-filename completions.json
  count "vllm, chats" "$work/chats.json" "$counts" && count "vllm, completions" "$work/completions.json" "$counts"
}

environment() { # CLIENT
  local list=requirements-$1.txt environment=.venv-$1
  [ "$1" = aiperf ] || ../../vllm/install.sh --check || return
  cmp -s "$list" "$environment/installed.txt" && return
  rm -rf "$environment"
  if [ "$1" = aiperf ]; then python3 -m venv "$environment"; else torch_environment "$environment"; fi &&
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-warn-conflicts -r "$list" >&2 &&
    cp "$list" "$environment/installed.txt"
}

failed=0 skipped=0
for client in "$@"; do
  if ! environment "$client"; then
    echo "skipped: $client (its packages could not be installed)"
    skipped=3
  elif "$client"; then
    echo "passed: $client"
  else
    echo "FAILED: $client"
    failed=1
  fi
done
[ "$failed" = 0 ] || exit 1
exit "$skipped"
