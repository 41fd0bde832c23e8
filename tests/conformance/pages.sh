#!/usr/bin/env bash
# The pages that bench, compare and tune write, opened in a browser without a window: no message on its console, every figure
# drawn, a table under it, nothing asked of a network. Loads are tiny: it is the pages that are tested, not the speed.
#   pages.sh [DIR]      keeps pages and screenshots in DIR. $RINGLOG is the binary (default target/release/ringlog).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
keep=${1:-}
program=${RINGLOG:-$root/target/release/ringlog}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ] && [ "$(id -u)" -eq 0 ]; then
  { apt-get install -y -qq chromium || { apt-get update -qq && apt-get install -y -qq chromium; }; } > /dev/null 2>&1 || true
  browser=$(command -v chromium || true)
fi
if [ -z "$browser" ]; then skip pages 'no chromium on this machine'; summary; exit; fi

# looks FILE FIGURES   opens the page; it must draw at least so many figures, and each has a table.
looks() {
  local file=$1 least=$2 dom=${1%.html}.dom said=${1%.html}.console figures tables
  "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --virtual-time-budget=3000 --enable-logging=stderr \
    --user-data-dir="$work/browser" --window-size=1200,3000 --dump-dom "file://$file" > "$dom" 2> "$said" || return
  if grep -E 'CONSOLE|net::ERR' "$said"; then return 1; fi
  if grep -oE '(src|href)="(https?:)?//[^"]*"' "$file"; then echo 'the page asks a network'; return 1; fi
  figures=$(grep -o '<svg' "$dom" | wc -l) tables=$(grep -o '<table' "$dom" | wc -l)
  echo "$figures figures, $tables tables"
  [ "$figures" -ge "$least" ] && [ "$tables" -ge "$least" ] || { echo "at least $least of each were expected"; return 1; }
  "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$work/browser" \
    --window-size=1200,3000 --screenshot="${file%.html}.png" "file://$file" > /dev/null 2>&1 || return
  # A blank page of that size compresses to less.
  [ "$(stat -c %s "${file%.html}.png")" -gt 30000 ] || { echo 'the page is empty'; return 1; }
}

# made NAME CODES COMMAND …   runs a command of ours that may end with one of these codes: on a busy machine a run is void.
made() {
  local codes=$1 code=0
  shift
  (cd "$work" && "$program" "$@") || code=$?
  [[ " $codes " = *" $code "* ]] || { echo "exit code $code"; return 1; }
}

export -f looks made
export work program browser
function_of=(bash -c '"$@"' page)   # `check` runs programs

start_broker ringlog "$work/broker" || { summary; exit; }
tiny=(--duration 2s --warmup 1s --no-steady)
check pages/bench/closed 60 "${function_of[@]}" made '0 6' bench produce -b "$bootstrap" "${tiny[@]}" --out closed.json --html closed.html || true
check pages/bench/open 60 "${function_of[@]}" made '0 6' bench e2e -b "$bootstrap" "${tiny[@]}" --rate 500 --out open.json --html open.html || true
check pages/bench/overlay 20 "${function_of[@]}" made 0 bench report closed.json open.json --html overlay.html || true
check pages/tune 180 "${function_of[@]}" made '0 6' tune -b "$bootstrap" --rate 2000 --grid --cell 1s --warmup 100ms --broker-warmup 1s --journal tune.jsonl --html tune.html || true
check pages/compare 120 "${function_of[@]}" made 0 compare --target a=ringlog --target b=ringlog --workload W4,W10@25% --duration 1s --warm 1s --pairs 2 --html compare.html || true
check pages/closed 60 "${function_of[@]}" looks "$work/closed.html" 4 || true
check pages/open 60 "${function_of[@]}" looks "$work/open.html" 4 || true
check pages/overlay 60 "${function_of[@]}" looks "$work/overlay.html" 3 || true
check pages/tune-page 60 "${function_of[@]}" looks "$work/tune.html" 2 || true
check pages/compare-page 60 "${function_of[@]}" looks "$work/compare.html" 2 || true
stop_broker || failed=$((failed + 1))
[ -z "$keep" ] || { mkdir -p "$keep" && cp "$work"/*.html "$work"/*.png "$keep"; }
summary
