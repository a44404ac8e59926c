#!/usr/bin/env bash
# The shop's web service on SQLite and an embedded DynamoDB: built, captured, filled, followed by a relay, served.
# `bash jobs/shop.sh` runs it; PORT=8001 for another port. Ctrl-C ends all of it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export MIGRATOR_HOME=.migrator/shop
export MIGRATOR_SOURCE_URL=sqlite:///$MIGRATOR_HOME/shop.db
unset MIGRATOR_ENDPOINT_URL
job=jobs/ecommerce.yaml
port=${PORT:-8000}

say() { printf '\n$ %s\n' "$*"; }
run() { say "$@"; "$@"; }

if [ -f "$MIGRATOR_HOME/shop.pid" ] && kill -0 "$(cat "$MIGRATOR_HOME/shop.pid")" 2>/dev/null; then
  echo "jobs/shop.sh: a shop is running in $MIGRATOR_HOME (process $(cat "$MIGRATOR_HOME/shop.pid")); stop it first" >&2
  exit 2
fi
[ ! -d "$MIGRATOR_HOME" ] || migrator local stop >/dev/null
rm -rf "$MIGRATOR_HOME"
mkdir -p "$MIGRATOR_HOME"
echo $$ >"$MIGRATOR_HOME/shop.pid"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; migrator local stop >/dev/null' EXIT

run python docker/shop/build.py --scale "${SCALE:-1}" "$MIGRATOR_SOURCE_URL"
run migrator table create "$job"
run migrator capture install "$job"
run migrator backfill "$job"
say "migrator relay $job   # in the background; its log: $MIGRATOR_HOME/relay.log"
migrator relay "$job" >"$MIGRATOR_HOME/relay.txt" 2>"$MIGRATOR_HOME/relay.log" &
say "uvicorn --app-dir docker/shop --port $port app:app"
printf 'It answers at http://127.0.0.1:%s/docs. In another terminal: export MIGRATOR_HOME=%s MIGRATOR_SOURCE_URL=%s, then\n' \
  "$port" "$MIGRATOR_HOME" "$MIGRATOR_SOURCE_URL"
printf '  python docker/shop/load.py http://127.0.0.1:%s        migrator cutover advance %s recent_orders\n\n' "$port" "$job"
uvicorn --app-dir docker/shop --port "$port" --no-access-log --log-level warning app:app
