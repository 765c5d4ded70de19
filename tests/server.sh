# Starts a server for tests: sourced, with `work` a folder of the caller's that is removed at the end.
# usage: serve PROGRAM [arguments of `relserve serve`]
# It sets address and key, and with `--sql` in the arguments sql_port. With `keyless` set, the server has no keys.
serve() {
  mkfifo "$work/said"
  RELSERVE_SHOW_KEY=1 "$1" serve --listen 127.0.0.1:0 --data-dir "$work/data" "${@:2}" >"$work/said" 2>"$work/log" &
  server=$!
  trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

  # The server says its address, its first key and its port of SQL; they are read while it still writes, so
  # nothing is polled.
  address= key= sql_port=
  local last=${keyless:+RelServe}
  last=${last:-API key: }
  case " $* " in *" --sql "*) last='SQL: ' ;; esac
  while read -r line; do
    case $line in
      *" on http://"*) address=${line##* on } ;;
      "API key: "*) key=${line#API key: } ;;
      "SQL: "*) sql_port=${line##* -p } sql_port=${sql_port%% *} ;;
    esac
    case $line in "$last"*) break ;; esac
  done <"$work/said"
  if [ -z "$address" ] || [ -z "$key${keyless:-}" ]; then
    echo "the server did not start:" >&2
    cat "$work/log" >&2
    exit 1
  fi
}
