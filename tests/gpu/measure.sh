#!/usr/bin/env bash
# What docs/CUDA.md wants of a GPU, beside its peers in the same run: `measure.sh [PART...]`, all parts without one. Made into a folder
# of its own by tests/gpu/kit.sh; what it makes goes into ./out, or $OUT.
#
#   check     every family, without and with NCCL, in bf16, in eight bits and in four, against the processor's engine
#   logits    the same against torch, on checkpoints with random weights
#   steps     decode and prefill of 7B and 8B shapes against the card's own limits (STEPS: shapes, formats and cases of
#             the bench: qwen2.5-7b llama-3-8b qwen2.5-0.5b, bf16 fp8 q4 kv-q8 kv-fp8, decode prefill shared)
#   peers     the same shapes with transformers' continuous batching
#   workload  what steps cost and the lines fitted to it; 100 relQueries under every policy (SHAPE, RATES, POLICIES); wants the server of
#             gpu-kit-server.tar.xz, unpacked in the same place
#
# PEER_DEVICE=cpu DEVICE=cpu tries `logits`, `peers` and `workload` out where there is no GPU. What needs one and finds none is skipped
# and named, as is what lacks the server; the script ends with 0 only where every part that was asked for has run, and with 2 where some
# were skipped and none failed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$PWD/out}
device=${DEVICE:-cuda:0} peer_device=${PEER_DEVICE:-cuda}
shape=${SHAPE:-qwen2.5-0.5b} rates=${RATES:-"2 8 32"}
policies=${POLICIES:-fcfs,sarathi,static-priority,relserve,relserve-pp,relserve-dp,marginal-work}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
failed=0 skipped=()

# NVIDIA's libraries as Python's packages bring them; NCCL's goes by another name than it is looked for.
site=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
for folder in "$site"/nvidia/*/lib; do LD_LIBRARY_PATH="$folder:${LD_LIBRARY_PATH:-}"; done
nccl=$(find "$site/nvidia" -name 'libnccl.so.2' 2>/dev/null | head -n 1)
[ -n "$nccl" ] && ln -s "$nccl" "$work/libnccl.so"
export LD_LIBRARY_PATH="$work:${LD_LIBRARY_PATH:-}"

part() { echo; echo "== $1, $(date -u +%FT%TZ)"; }
# A part that is a GPU's alone, where there is none: it has measured nothing, whatever its programs end with.
has_gpu() { nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }
skip() { echo "skipped: $1 needs a GPU, and nvidia-smi finds none"; skipped+=("$1"); }
# Whether a part that runs on these devices can; `cpu` is always there.
needs() {
  local name=$1 on
  shift
  for on in "$@"; do
    case $on in cpu) ;; *) has_gpu || { skip "$name"; return 1; } ;; esac
  done
}
run() { echo "+ $*"; "$@" || { echo "FAILED ($?): $*"; failed=1; }; }
# The same for a program that passes over what it finds no GPU, or no library, for, and says so.
run_on_gpu() {
  local name=$1 ended
  shift
  echo "+ $*"
  "$@" 2>&1 | tee "$work/said"
  ended=${PIPESTATUS[0]}
  [ "$ended" = 0 ] || { echo "FAILED ($ended): $*"; failed=1; return; }
  grep -qE '^(skipped|nothing is measured): ' "$work/said" && skipped+=("$name")
  return 0
}
checkpoint() {
  [ -d "$work/$1" ] && return
  case "$1" in
    *-[78]b) # everything but the weights as a small one has it
      run "$here/checkpoint" qwen2-tiny "$work/$1"
      run "$here/checkpoint" "$1" "$work/$1/shape.json"
      mv "$work/$1/shape.json" "$work/$1/config.json"
      run python3 "$here/peers.py" weights "$work/$1/config.json" "$work/$1" "$peer_device"
      ;;
    *) run "$here/checkpoint" "$1" "$work/$1" ;;
  esac
}

check() {
  part check
  needs check cuda || return 0
  run_on_gpu check "$here/cuda-test" on_a_card --nocapture --test-threads 1
}

logits() {
  part logits
  needs logits "$device" "$peer_device" || return 0
  local folders=()
  for name in ${LOGITS:-llama-tiny mistral-tiny qwen2-tiny qwen3-tiny opt-tiny llama-125m llama-125m-bf16 qwen2.5-0.5b}; do
    checkpoint "$name"
    "$here/logits" "$work/$name" "$device" "$work/$name.logits" >"$work/$name.tokens" || { echo "FAILED: logits of $name"; failed=1; continue; }
    folders+=("$work/$name")
  done
  # One process: torch takes longer to start than all of this.
  run python3 "$here/peers.py" logits "$peer_device" "${folders[@]}"
}

steps() {
  part steps
  needs steps cuda || return 0
  run_on_gpu steps "$here/cuda-bench" ${STEPS:-}
}

peers() {
  part peers
  needs peers "$peer_device" || return 0
  for name in ${PEERS:-qwen2.5-7b llama-3-8b}; do
    "$here/checkpoint" "$name" "$work/$name.json" && run python3 "$here/peers.py" speed "$work/$name.json" "$peer_device"
  done
}

workload() {
  part workload
  needs workload "$device" || return 0
  [ -x "$here/relserve" ] || { echo "skipped: workload needs what gpu-kit-server.tar.xz has"; skipped+=(workload); return; }
  checkpoint "$shape"
  run "$here/relserve" calibrate "$work/$shape" --device "$device"
  for rate in $rates; do
    run "$here/loadgen" compare "$here/paper.toml" --rate "$rate" --server "$here/relserve" \
      --server-args "--model $work/$shape --device $device" --policies "$policies" --out "$out/rate-$rate"
  done
}

{
  uname -srm
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem --format=csv 2>&1
  python3 -c 'import torch, transformers; print("torch", torch.__version__, "transformers", transformers.__version__)'
  for one in ${@:-check logits steps peers workload}; do "$one"; done
  echo
  if [ "$failed" != 0 ]; then
    echo "SOME FAILED"
  elif [ ${#skipped[@]} != 0 ]; then
    echo "SKIPPED, as is said above: ${skipped[*]}"
  else
    echo "all parts ran"
  fi
} 2>&1 | tee "$out/measured.txt"
case $(tail -n 1 "$out/measured.txt") in
  "all parts ran") exit 0 ;;
  SKIPPED*) exit 2 ;;
  *) exit 1 ;;
esac
