# Makes the secrets of compose.yaml in a folder, each once: what the environment says, else chance.
# usage: sh secrets.sh FOLDER
set -eu
folder=$1

# 32 letters and digits: they need no escape in a database's address.
chance() { head -c 4096 /dev/urandom | LC_ALL=C tr -dc A-Za-z0-9 | head -c 32; }

keep() {
  [ ! -s "$folder/$1" ] || return 0
  printf %s "$2" >"$folder/$1.new"
  # Postgres and the gateway are different users; nobody else has this folder.
  chmod 0444 "$folder/$1.new"
  mv "$folder/$1.new" "$folder/$1"
}

case "${POSTGRES_PASSWORD:-}" in
  *[!A-Za-z0-9._~-]*) echo "POSTGRES_PASSWORD: letters, digits and . _ ~ - alone, for it stands in an address" >&2; exit 1 ;;
esac
keep database-password "${POSTGRES_PASSWORD:-$(chance)}"
keep admin-key "${RELSERVE_ADMIN_KEY:-$(chance)}"
