#!/usr/bin/env bash
# The image built and run, alone and as packaging/compose.yaml has it: podman or docker, a Postgres, real signals.
# usage: tests/packaging/image.sh PROGRAM     the last stage of packaging/Dockerfile, over a program that is built
#        tests/packaging/image.sh --whole     the whole Dockerfile, at the profile `quick`: half an hour on two cores
# Options of `build` that a machine needs (a proxy, certificates) stand in IMAGE_BUILD_OPTIONS. Exits with 3 and a reason
# where there is no engine, no composer, or no base image.
set -euo pipefail
[ "${1:?a program, or --whole}" = --whole ] || program=$(realpath "$1")
cd "$(dirname "$0")"
skipped() { echo "skipped: $*"; exit 3; }

engine=$(command -v podman || command -v docker) || skipped "neither podman nor docker is here"
"$engine" info >/dev/null 2>&1 || skipped "${engine##*/} does not run here"
if [ "${engine##*/}" = podman ]; then
  # Its own default, OCI, has no health checks.
  format=(--format docker)
  if ! cmp -s image.txt .venv-image/installed.txt; then
    rm -rf .venv-image
    python3 -m venv .venv-image && .venv-image/bin/pip install --quiet --disable-pip-version-check -r image.txt ||
      skipped "podman-compose could not be installed"
    cp image.txt .venv-image/installed.txt
  fi
  composer="$PWD/.venv-image/bin/podman-compose"
else
  format=()
  docker compose version >/dev/null 2>&1 || skipped "docker has no compose"
  composer="docker compose"
fi
root=$(realpath ../..)
bases=$(sed -nE 's/^FROM (--platform=\S+ )?(debian:\S+).*/\2/p' "$root/packaging/Dockerfile"
  sed -nE 's/^ *image: (postgres:\S+)/\1/p' "$root/packaging/compose.yaml" | sort -u)
for base in $bases; do
  "$engine" image inspect "docker.io/library/$base" >/dev/null 2>&1 || "$engine" pull --quiet "docker.io/library/$base" >/dev/null 2>&1 ||
    skipped "$base is not here and cannot be fetched"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=relserve-test-$$
cp -r "$root/packaging" "$root/LICENSE" "$work"
# Before anything else can fail: by the name that stands in it, what is cleaned up would be a composition that somebody uses.
sed -i -E "s/^name: .*/name: $name/" "$work/packaging/compose.yaml"
cleanup() {
  (cd "$work/packaging" 2>/dev/null && $composer --file compose.yaml down --volumes) >/dev/null 2>&1 || true
  "$engine" rm --force --volumes "$name-alone" >/dev/null 2>&1 || true
  "$engine" volume rm "$name-alone" >/dev/null 2>&1 || true
  "$engine" image rm "localhost/$name:0.1.0" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT

# The Dockerfile as it is; where a program is given, its last stage, which takes that in place of the compiled one.
options=("${format[@]}" --tag "localhost/$name:0.1.0")
# shellcheck disable=SC2206 # words of options
options+=(${IMAGE_BUILD_OPTIONS:-})
if [ "$1" = --whole ]; then
  "$engine" build "${options[@]}" --build-arg PROFILE=quick --file "$root/packaging/Dockerfile" "$root"
else
  cp "$program" "$work/relserve"
  awk '/^FROM debian/ { last = 1 } last' "$root/packaging/Dockerfile" | sed 's#^COPY --from=program /relserve #COPY relserve #' >"$work/Dockerfile"
  "$engine" build "${options[@]}" --file "$work/Dockerfile" "$work"
fi

# compose.yaml with a port and an image of this run's own too, and without the model that would be fetched.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed -i -E -e "s/127\.0\.0\.1:8080:8080/127.0.0.1:$port:8080/" -e "s#image: relserve:.*#image: localhost/$name:0.1.0#" \
  -e '/^    build:/,/dockerfile:/d' -e 's/command: \[serve, --default-model.*/command: [serve]/' "$work/packaging/compose.yaml"
ENGINE=$engine COMPOSER=$composer NAME=$name URL=http://127.0.0.1:$port FOLDER=$work/packaging python3 image_run.py
