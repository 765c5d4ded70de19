#!/usr/bin/env bash
# What docs/CUDA.md wants of a GPU, beside its peers in the same run: `measure.sh [PART...]`, all parts without one. Made into a folder
# of its own by tests/gpu/kit.sh; what it makes goes into ./out, or $OUT.
#
#   check     every family, without and with NCCL, in bf16, in eight bits and in four, against the processor's engine
#   logits    the same against torch, on checkpoints with random weights
#   steps     decode and prefill of 7B and 8B shapes against the card's own limits (STEPS: shapes, formats and cases of the bench)
#   peers     the same shapes with transformers' continuous batching
#   workload  what steps cost and the lines fitted to it; 100 relQueries under every policy (SHAPE, RATES, POLICIES)
#
# PEER_DEVICE=cpu DEVICE=cpu tries the parts out where there is no GPU.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$PWD/out}
device=${DEVICE:-cuda:0} peer_device=${PEER_DEVICE:-cuda}
shape=${SHAPE:-qwen2.5-0.5b} rates=${RATES:-"2 8 32"}
policies=${POLICIES:-fcfs,sarathi,static-priority,relserve,relserve-pp,relserve-dp,marginal-work}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
failed=0

# NVIDIA's libraries as Python's packages bring them; NCCL's goes by another name than it is looked for.
site=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
for folder in "$site"/nvidia/*/lib; do LD_LIBRARY_PATH="$folder:${LD_LIBRARY_PATH:-}"; done
nccl=$(find "$site/nvidia" -name 'libnccl.so.2' 2>/dev/null | head -n 1)
[ -n "$nccl" ] && ln -s "$nccl" "$work/libnccl.so"
export LD_LIBRARY_PATH="$work:${LD_LIBRARY_PATH:-}"

part() { echo; echo "== $1, $(date -u +%FT%TZ)"; }
run() { echo "+ $*"; "$@" || { echo "FAILED ($?): $*"; failed=1; }; }
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
  run "$here/cuda-test" on_a_card --nocapture --test-threads 1
}

logits() {
  part logits
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
  run "$here/cuda-bench" ${STEPS:-}
}

peers() {
  part peers
  for name in ${PEERS:-qwen2.5-7b llama-3-8b}; do
    "$here/checkpoint" "$name" "$work/$name.json" && run python3 "$here/peers.py" speed "$work/$name.json" "$peer_device"
  done
}

workload() {
  part workload
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
  [ "$failed" = 0 ] && echo "all parts ran" || echo "SOME FAILED"
} 2>&1 | tee "$out/measured.txt"
grep -q '^all parts ran' "$out/measured.txt"
