# Environments for clients that need PyTorch, which takes gigabytes: what they do not install themselves they look up in
# that of vLLM's build for processors, which tests/vllm/install.sh installs. Sourced.
# usage: torch_environment FOLDER
torch_environment() {
  local vllm
  vllm=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../../.venv-vllm")
  "$vllm/bin/python" -m venv "$1" &&
    echo "$vllm"/lib/python3*/site-packages >"$(echo "$1"/lib/python3*/site-packages)/vllm.pth"
}
