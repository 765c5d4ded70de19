#!/usr/bin/env bash
# Puts what measures a GPU into target/gpu-kit, for a machine that has a GPU and no Rust: programs without their debug information,
# scenarios and scripts. target/gpu-kit.tar.xz has all but the server, which `workload` alone runs and which is four times as large as
# the rest: target/gpu-kit-server.tar.xz. There: `gpu-kit/measure.sh`.
set -euo pipefail
cd "$(dirname "$0")/../.."
kit=target/gpu-kit
rm -rf "$kit"
mkdir -p "$kit"
# One profile for all, as dependencies take longest. Without optimisation across crates, which takes two cores more than twenty minutes.
cargo build --profile quick --package relserve --package loadgen
cargo build --profile quick --package engine --example checkpoint --example logits
executable() { sed -n 's/^ *Executable .*(\(.*\))$/\1/p'; }
test=$(cargo test --profile quick --package engine --test cuda --no-run 2>&1 | executable)
bench=$(cargo bench --profile quick --package engine --bench cuda --no-run 2>&1 | executable)
strip -o "$kit/cuda-test" "$test"
strip -o "$kit/cuda-bench" "$bench"
for program in relserve loadgen examples/checkpoint examples/logits; do
  strip -o "$kit/$(basename "$program")" "target/quick/$program"
done
cp tests/gpu/measure.sh tests/gpu/peers.py loadgen/scenarios/paper.toml "$kit"
tar -C target --exclude relserve -cJf target/gpu-kit.tar.xz gpu-kit
tar -C target -c gpu-kit/relserve | xz --x86 --lzma2=preset=9,dict=192MiB >target/gpu-kit-server.tar.xz
du -h target/gpu-kit*.tar.xz
