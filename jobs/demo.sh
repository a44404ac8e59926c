#!/usr/bin/env bash
# The shop, from SQL to one table while it is open, in six chapters: measured, filled, proved, compared, moved, taken back
# and mended. `make demo` runs it and writes demo-report.html; what the commands log goes to a file; SCALE=10 for more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export MIGRATOR_HOME=.migrator/demo
export MIGRATOR_SOURCE_URL=sqlite:///$MIGRATOR_HOME/shop.db
unset MIGRATOR_ENDPOINT_URL
job=jobs/demo.yaml
shop=http://127.0.0.1:${PORT:-8765}
log=$MIGRATOR_HOME/demo.log

migrator() { command migrator --log-file "$log" "$@"; }
# A heading, and what to look at.
chapter() { printf '\n── %s ──\n%s\n' "$1" "$2"; }
say() { printf '\n$ %s\n' "$*"; }
run() { say "$@"; "$@"; }
# A command that is expected to say no.
no() { say "$@"; local code=0; "$@" || code=$?; echo "(exit code $code)"; [ "$code" -eq 1 ] || exit 1; }
endpoint() { migrator local status | grep -ao 'http://[^ ]*'; }
# Customers in the background for so many seconds; `customers` waits for them.
customers_for() {
  say "python docker/shop/load.py --seconds $1 $shop   # customers, in the background"
  python docker/shop/load.py --seconds "$1" --rate 80 --looking 85 "$shop" >"$MIGRATOR_HOME/customers.txt" &
  customers=$!
}
customers() { wait "$customers"; cat "$MIGRATOR_HOME/customers.txt"; }
# Until a command says yes, for two minutes at most: how soon depends on the machine.
until_yes() { for _ in $(seq 120); do "$@" >/dev/null 2>&1 && return; sleep 1; done; echo "$* never said yes" >&2; exit 1; }
# A move that is refused until enough was compared, while customers go on; the last answer is shown.
moved() {
  local said
  for _ in $(seq 120); do said=$("$@" 2>&1) && { say "$@"; echo "$said"; return; }; sleep 1; done
  echo "$* was always refused: $said" >&2
  exit 1
}
caught_up() { migrator relay "$job" --dry-run | grep -q '^no mark'; }

# Stopped before its folder goes: a server that runs on would write into a folder that is no longer there.
[ ! -d "$MIGRATOR_HOME" ] || command migrator local stop >/dev/null
rm -rf "$MIGRATOR_HOME"
mkdir -p "$MIGRATOR_HOME"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; migrator local stop >/dev/null' EXIT
started=$SECONDS

chapter "1. The shop, and where it is to go" \
  "Look at: all of its tables fit the mapping, and nothing that a run needs is missing."
run python docker/shop/build.py --scale "${SCALE:-1}" "$MIGRATOR_SOURCE_URL"
run migrator mapping check mappings/ecommerce.yaml --source "$MIGRATOR_SOURCE_URL"
run migrator table create "$job"
say "migrator doctor $job | tail -n 1"
migrator doctor "$job" | tail -n 1

chapter "2. Filled while customers go on ordering" \
  "Look at: every change leaves a mark from here on, so that the backfill may take its time."
run migrator capture install "$job"
say "uvicorn --app-dir docker/shop app:app   # the shop's web service, in the background"
SHOP_JOB=$job uvicorn --app-dir docker/shop --port "${shop##*:}" --no-access-log --log-level warning app:app \
  >"$MIGRATOR_HOME/shop.log" 2>&1 &
until_yes python -c "import urllib.request as u; u.urlopen('$shop/healthz')"
customers_for 12
run migrator backfill "$job"
say "migrator relay $job   # in the background, from here to the end"
migrator relay "$job" >"$MIGRATOR_HOME/relay.txt" 2>&1 &
customers

chapter "3. Proved: rows against items, items against rows" \
  "Look at: no row without its items, no item without its row, and one answer from both sides."
until_yes caught_up
run migrator verify "$job"
run migrator query "$job" recent_orders -p user_id=1 -p limit=3

chapter "4. Compared: SQL answers, the table is asked beside it" \
  "Look at: three items are spoilt behind everybody's back; the comparison finds them, and the rows mend them."
run migrator cutover advance "$job" recent_orders --wait
run python docker/shop/plant.py products "$(endpoint)"
no migrator shadow replay "$job" --pattern get_products_by_category --questions 60 --seed 1
no migrator verify "$job" --repair --settle 1
until_yes caught_up
run migrator shadow replay "$job" --pattern get_products_by_category --questions 60 --seed 1

chapter "5. Moved: the table answers, on evidence" \
  "Look at: a move is made when every line of its evidence is ok; until then customers go on, and it waits."
customers_for 900
moved migrator cutover ramp "$job" recent_orders 50 --wait
moved migrator cutover ramp "$job" recent_orders 100 --wait
moved migrator cutover advance "$job" recent_orders --wait
run migrator cutover status "$job"

chapter "6. Broken, taken back by itself, and mended" \
  "Look at: nobody is awake, the pattern goes back to SQL, and in the end rows and items say the same."
say "migrator cutover watch $job   # in the background"
migrator cutover watch "$job" >"$MIGRATOR_HOME/watch.txt" 2>&1 &
watch=$!
run python docker/shop/plant.py orders "$(endpoint)"
until_yes test -s "$MIGRATOR_HOME/events.jsonl"
kill "$customers" "$watch"
wait "$customers" "$watch" || true
cat "$MIGRATOR_HOME/watch.txt"
run migrator cutover history "$job" recent_orders
no migrator verify "$job" --repair --settle 1
until_yes caught_up
run migrator verify "$job"
say "migrator decommission check $job | sed '/^not yet/q'   # what still depends on SQL"
{ migrator decommission check "$job" || true; } | sed '/^not yet/q'
run migrator report "$job" --html demo-report.html

kill $(jobs -p)
wait || true
trap - EXIT
migrator local stop >/dev/null
chapter "The end: clean" "The shop was never closed. In $((SECONDS - started)) s: filled, proved, moved, taken back, mended."
tail -n 1 "$MIGRATOR_HOME/relay.txt"
echo "the report: $PWD/demo-report.html"
echo "what the commands logged: $PWD/$log"
