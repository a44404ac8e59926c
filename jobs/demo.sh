#!/usr/bin/env bash
# The shop, from SQL to one table while it is open: built fresh, checked, captured, filled and followed while customers
# go on ordering; its reads shadowed, three corruptions found and repaired, one access pattern moved over on evidence and
# back by itself when something breaks. `make demo` runs it and writes demo-report.html; SCALE=10 for more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export MIGRATOR_HOME=.migrator/demo
export MIGRATOR_SOURCE_URL=sqlite:///$MIGRATOR_HOME/shop.db
unset MIGRATOR_ENDPOINT_URL
job=jobs/demo.yaml
shop=http://127.0.0.1:${PORT:-8765}

say() { printf '\n$ %s\n' "$*"; }
run() { say "$@"; "$@"; }
ask() { run migrator query "$job" "$@"; }
# A command that is expected to say no.
no() { say "$@"; local code=0; "$@" || code=$?; echo "(exit code $code)"; [ "$code" -eq 1 ] || exit 1; }
endpoint() { migrator local status | grep -ao 'http://[^ ]*'; }
customers() { run python docker/shop/load.py --seconds "$1" --rate 60 --looking 60 "$shop"; }
# A move that is refused until enough was compared: how soon that is depends on the machine.
moved() {
  local tries
  for tries in 1 2 3 4 5 6; do
    say "$@"
    "$@" && return
    customers 12
    sleep 7
  done
  echo "$* was refused $tries times" >&2
  exit 1
}

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
say "uvicorn --app-dir docker/shop app:app   # the shop's web service, in the background"
SHOP_JOB=$job uvicorn --app-dir docker/shop --port "${shop##*:}" --no-access-log --log-level warning app:app \
  >"$MIGRATOR_HOME/shop.log" 2>&1 &
for _ in $(seq 100); do python -c "import urllib.request as u; u.urlopen('$shop/healthz')" 2>/dev/null && break; sleep 0.2; done
say "python docker/shop/load.py --seconds 20 $shop   # customers, in the background"
python docker/shop/load.py --seconds 20 --rate 30 "$shop" >"$MIGRATOR_HOME/customers.txt" &
customers=$!
run migrator backfill "$job"
run migrator relay "$job" --dry-run
say "migrator relay $job   # in the background, from here to the end"
migrator relay "$job" >"$MIGRATOR_HOME/relay.txt" 2>"$MIGRATOR_HOME/relay.log" &
sleep 2
run migrator status "$job"
wait "$customers"
cat "$MIGRATOR_HOME/customers.txt"
sleep 1
run migrator verify "$job"

ask get_user -p user_id=1
ask recent_orders -p user_id=1 -p limit=5
ask order_with_items -p order_id=8000
ask get_products_by_category -p category=electronics -p min_price=100 -p max_price=149.99

# Step 6: SQL answers, DynamoDB is asked beside it, and three items are spoilt behind everybody's back.
run migrator cutover advance "$job" recent_orders --wait
run migrator cutover advance "$job" get_products_by_category --wait
say "python docker/shop/load.py --seconds 12 --rate 60 --looking 60 $shop   # in the background"
python docker/shop/load.py --seconds 12 --rate 60 --looking 60 "$shop" >"$MIGRATOR_HOME/customers.txt" &
customers=$!
sleep 2
run python docker/shop/plant.py products "$(endpoint)"
no migrator shadow replay "$job" --pattern get_products_by_category --questions 60 --seed 1
wait "$customers"
cat "$MIGRATOR_HOME/customers.txt"
sleep 7
run migrator report "$job" --no-samples
no migrator cutover advance "$job" get_products_by_category

# What differs becomes marks, and the relay does the rest.
no migrator verify "$job" --repair --settle 1
sleep 3
run migrator shadow replay "$job" --pattern get_products_by_category --questions 60 --seed 1

# Step 7: one pattern moves on evidence, a part of its calls first; each step is judged by what services read since the last.
moved migrator cutover ramp "$job" recent_orders 50 --wait
moved migrator cutover ramp "$job" recent_orders 100 --wait
moved migrator cutover advance "$job" recent_orders --wait
run migrator cutover status "$job"

# Something breaks. Who watches takes the pattern back, and SQL answers again.
say "migrator cutover watch $job   # in the background"
migrator cutover watch "$job" >"$MIGRATOR_HOME/watch.txt" 2>"$MIGRATOR_HOME/watch.log" &
watch=$!
run python docker/shop/plant.py orders "$(endpoint)"
say "python docker/shop/load.py --seconds 120 --rate 60 --looking 60 $shop   # in the background"
python docker/shop/load.py --seconds 120 --rate 60 --looking 60 "$shop" >"$MIGRATOR_HOME/customers.txt" &
customers=$!
for _ in $(seq 120); do [ ! -s "$MIGRATOR_HOME/events.jsonl" ] || break; sleep 1; done
kill "$customers" 2>/dev/null || true
kill -TERM "$watch" && wait "$watch" || true
cat "$MIGRATOR_HOME/watch.txt"
run migrator cutover history "$job" recent_orders
say "cat $MIGRATOR_HOME/events.jsonl   # what the job's hook was told" && cat "$MIGRATOR_HOME/events.jsonl"

# Step 8 is not reached, and decommission says what is in its way.
no migrator decommission check "$job"
run migrator report "$job" --html demo-report.html

kill $(jobs -p)
wait || true
cat "$MIGRATOR_HOME/relay.txt"
trap - EXIT
run migrator local stop
