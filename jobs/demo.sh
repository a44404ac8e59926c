#!/usr/bin/env bash
# The shop, from SQL to one table while it is open: built fresh, checked, captured, filled and followed while customers
# go on ordering, verified, asked. `make demo` runs it; SCALE=10 for more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export MIGRATOR_HOME=.migrator/demo
export MIGRATOR_SOURCE_URL=sqlite:///$MIGRATOR_HOME/shop.db
unset MIGRATOR_ENDPOINT_URL
job=jobs/ecommerce.yaml

say() { printf '\n$ %s\n' "$*"; }
run() { say "$@"; "$@"; }
ask() { run migrator query "$job" "$@"; }

# Stopped before its folder goes: a server that runs on would write into a folder that is no longer there.
[ ! -d "$MIGRATOR_HOME" ] || migrator local stop >/dev/null
rm -rf "$MIGRATOR_HOME"
mkdir -p "$MIGRATOR_HOME"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; migrator local stop >/dev/null' EXIT

run python docker/shop/build.py --scale "${SCALE:-1}" "$MIGRATOR_SOURCE_URL"
run migrator mapping check mappings/ecommerce.yaml --source "$MIGRATOR_SOURCE_URL"
run migrator table create "$job"
run migrator doctor "$job"

# From here on every change leaves a mark, and customers go on: the shop never closes.
run migrator capture install "$job"
say "python docker/shop/service.py --seconds 25 --rate 40 $MIGRATOR_SOURCE_URL   # in the background"
python docker/shop/service.py --seconds 25 --rate 40 "$MIGRATOR_SOURCE_URL" >"$MIGRATOR_HOME/service.txt" &
service=$!
run migrator backfill "$job"
run migrator relay "$job" --dry-run
say "migrator relay $job   # in the background"
migrator relay "$job" >"$MIGRATOR_HOME/relay.txt" 2>"$MIGRATOR_HOME/relay.log" &
relay=$!
sleep 3
run migrator status "$job"
wait "$service"
say "# the shop has a quiet moment:" && cat "$MIGRATOR_HOME/service.txt"
sleep 1
kill -TERM "$relay" && wait "$relay"
cat "$MIGRATOR_HOME/relay.txt"
run migrator relay "$job" --once
run migrator verify "$job"

ask get_user -p user_id=1
ask user_by_email -p email=sren.garcia-perez.1@example.com
ask recent_orders -p user_id=1 -p limit=5
ask get_user_with_orders -p user_id=1000
ask order_with_items -p order_id=8000
ask get_orders_by_status -p status=pending -p since=2026-06-29T00:00:00
ask get_all_active_orders
ask get_products_by_category -p category=electronics -p min_price=100 -p max_price=149.99

trap - EXIT
run migrator local stop
