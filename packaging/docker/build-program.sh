#!/usr/bin/env bash
# Compiles the program for an architecture of the image; packaging/Dockerfile calls it.
# usage: build-program.sh tools ARCHITECTURE
#        build-program.sh program ARCHITECTURE PROFILE OUTPUT
set -euo pipefail

architecture=${2:?}
case $architecture in
  amd64) target=x86_64-unknown-linux-gnu tools=x86-64-linux-gnu ;;
  arm64) target=aarch64-unknown-linux-gnu tools=aarch64-linux-gnu ;;
  *) echo "no image for $architecture: amd64 or arm64" >&2; exit 1 ;;
esac
is_own=$([ "$(dpkg --print-architecture)" = "$architecture" ] && echo yes || echo no)

case ${1:?} in
  tools)
    rustup target add "$target"
    # The C of SQLite, ring and zstd, and the linker: another architecture's need a compiler that makes its code.
    if [ "$is_own" = no ]; then
      apt-get update
      apt-get install --yes --no-install-recommends "crossbuild-essential-$architecture"
      rm -rf /var/lib/apt/lists/*
    fi
    ;;
  program)
    profile=${3:?} output=${4:?}
    if [ "$is_own" = no ]; then
      variable=${target//-/_}
      export "CARGO_TARGET_${variable^^}_LINKER=$tools-gcc" "CC_$variable=$tools-gcc" "CXX_$variable=$tools-g++" "AR_$variable=$tools-ar"
    fi
    # Names of functions stay, for backtraces; lines of code are most of the size.
    cargo build --locked --package relserve --profile "$profile" --target "$target" \
      --config "profile.$profile.debug=false" --config "profile.$profile.strip='debuginfo'"
    cp "target/$target/$profile/relserve" "$output"
    ;;
  *) echo "tools or program, not $1" >&2; exit 1 ;;
esac
