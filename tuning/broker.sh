# shellcheck shell=bash disable=SC2034
# Sourced by the scripts here: one Ringlog in a folder of its own on free ports, and what the kernel says of it.
# DIR (default: a new folder under target/) must be on the disk that is to be measured.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
here=$root/tuning
ringlog=${RINGLOG:-$root/target/release/ringlog}
mkdir -p "$root/target"
dir=${DIR:-$(mktemp -d "$root/target/measure.XXXXXX")} broker=''
trap '[ -z "$broker" ] || kill -9 "$broker" 2>/dev/null || true; [ -n "${DIR:-}" ] || rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

# launch [KEY=VALUE …]   starts it; `started_ns` is the moment before, `broker` its pid. Does not wait.
launch() {
  local setting overrides=()
  for setting in "$@"; do overrides+=(--override "$setting"); done
  rm -f "$dir/ready"
  started_ns=$(date +%s%N)
  "$ringlog" serve --override listeners=PLAINTEXT://127.0.0.1:0 --override admin.listener=127.0.0.1:0 --override "log.dirs=$dir/data" \
    --ready-file "$dir/ready" "${overrides[@]}" > "$dir/broker.out" 2>&1 < /dev/null &
  broker=$!
}

# ready   waits for it; prints its address.
ready() {
  until [ -s "$dir/ready" ]; do
    kill -0 "$broker" 2>/dev/null || { tail -n 20 "$dir/broker.out" >&2; return 1; }
    sleep 0.005
  done
  sed -n 's/.*"kafka": *"\([^"]*\)".*/\1/p' "$dir/ready"
}

crash() { { kill -9 "$broker"; wait "$broker"; } 2>/dev/null || true; broker=''; }

# memory   resident now and at most, in MB (10^6 bytes).
memory() { awk '/^VmRSS|^VmHWM/ { m[$1] = $2 * 1024 / 1e6 } END { printf "RSS %.1f MB, at most %.1f MB\n", m["VmRSS:"], m["VmHWM:"] }' "/proc/$broker/status"; }

# cpu_ticks   what all its threads have used, in hundredths of a second.
cpu_ticks() { sed 's/.*) //' "/proc/$broker/stat" | awk '{ print $12 + $13 }'; }
