#!/usr/bin/env bash
# Clients of Postgres against a server of their own: a free loopback port, a temporary data folder with a table
# `reviews`, the built-in model. usage: tests/clients/run.sh PROGRAM light|heavy [a pattern of test files]
#
# light: psql, psycopg 3 and 2, asyncpg, SQLAlchemy, node's pg, and the queries that Metabase, Grafana and Power
#   BI send about tables. `./test` runs them.
# heavy: pgcli, ODBC, JDBC, dbt, Superset, DuckDB. `cargo xtask nightly` runs them; install.sh says what they
#   need.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$1 which=$2 pattern=${3:-test_*.py}
export work=$(mktemp -d)

mkdir -p "$work/data/tables/1"
cat >"$work/data/tables/1/reviews.csv" <<'CSV'
id,review,stars
1,I loved every minute of it,5
2,The battery died in a day,1
3,"Fine, I guess",3
4,Terrible screen and worse sound,1
5,Best purchase this year,5
CSV
# The clients are tried, not the model: it may say anything.
printf '[model]\ndemo_functions = "all"\n' >"$work/relserve.toml"
. tests/server.sh
serve "$program" --sql 127.0.0.1:0 --config "$work/relserve.toml"
export PGHOST=127.0.0.1 PGPORT="$sql_port" PGUSER=default PGDATABASE=default PGPASSWORD="$key"
export CLIENTS_WORK="$work"

failed=0
# Says what a client's tests came to, in a line of its own.
client() {
  if "${@:2}"; then echo "passed: $1"; else echo "FAILED: $1" && failed=1; fi
}
python() { # NAME ENVIRONMENT PATTERN
  client "$1" "$2/bin/python" -W ignore::ResourceWarning -m unittest discover -s "tests/clients/$which" -p "$3"
}

if [ "$which" = light ]; then
  python "Python's clients and psql" .venv "$pattern"
  if [ -e tests/clients/node/node_modules/installed-lock.json ]; then
    client "node's pg" node --test tests/clients/node/test.mjs
  else
    echo "skipped: node's pg (./npm-ci.sh tests/clients/node)"
  fi
else
  tests/clients/install.sh
  for name in pgcli odbc dbt superset duckdb; do
    case "test_$name.py" in $pattern) python "$name" "tests/clients/heavy/.venv-$name" "test_$name.py" ;; esac
  done
  # The pattern stays one: in quotes it would be a name.
  case test_jdbc.py in $pattern) client JDBC java -cp /usr/share/java/postgresql.jar \
    tests/clients/heavy/jdbc/Jdbc.java ;; esac
fi
exit "$failed"
