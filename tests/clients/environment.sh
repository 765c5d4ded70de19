# Environments of other people's clients, one each, because their packages exclude each other's. Sourced.
# usage: environment FOLDER FAMILY: what FOLDER/requirements-FAMILY.txt lists is installed into FOLDER/.venv-FAMILY, once
#   for each state of the list; it fails where that cannot be done. lotus needs what tests/vllm/install.sh installs.
. "$(dirname "${BASH_SOURCE[0]}")/load/torch.sh"

environment() {
  local list=$1/requirements-$2.txt environment=$1/.venv-$2
  [ "$2" != lotus ] || "$(dirname "${BASH_SOURCE[0]}")/../vllm/install.sh" --check || return
  cmp -s "$list" "$environment/installed.txt" && return
  rm -rf "$environment"
  if [ "$2" = lotus ]; then torch_environment "$environment"; else python3 -m venv "$environment"; fi
  if "$environment/bin/pip" install --quiet --disable-pip-version-check --no-warn-conflicts -r "$list" >&2; then
    cp "$list" "$environment/installed.txt"
  else
    rm -rf "$environment"
    return 1
  fi
}
