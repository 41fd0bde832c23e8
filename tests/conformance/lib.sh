# shellcheck shell=bash
# Sourced by run.sh and million.sh: brokers on free ports, checks with their lines, and an end that leaves no process.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${RINGLOG_CACHE:-$HOME/.cache/ringlog}
export RINGLOG_CACHE=$cache BASE_MS=$(($(date +%s) * 1000 - 100000))
export TOOL_LOG_LEVEL=error
mkdir -p "$cache"
work=$(mktemp -d "$cache/run.XXXXXX")   # on the disk of the home folder: a memory file system has no direct I/O
passed=0 failed=0 skipped=0
running='' broker='' bootstrap=''       # pid of the check in progress; pid and address of the broker that was started
reference_pid=''                        # of a second broker that answers are compared with

# Everything ends by its pid; logs stay when something failed.
finish() {
  [ -z "$running" ] || kill "$running" 2>/dev/null || true
  stop_broker || true
  broker=$reference_pid
  stop_broker || true
  [ "$failed" -gt 0 ] || rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# check NAME SECONDS COMMAND …   runs it with a bound; exit code 77 is a skip, whose reason is the last line printed.
check() {
  local name=$1 bound=$2 log start code=0 seconds
  shift 2
  log=$work/${name//\//-}.log start=$(date +%s%N)
  timeout --kill-after=5 "$bound" "$@" > "$log" 2>&1 < /dev/null &
  running=$!
  wait "$running" || code=$?
  running=''
  seconds=$(($(date +%s%N) - start)) seconds=$((seconds / 1000000000)).$((seconds / 100000000 % 10))
  case $code in
    0) passed=$((passed + 1)); echo "PASS $name $seconds" ;;
    77) skip "$name" "$(tail -n 1 "$log")"; return 77 ;;
    *)
      failed=$((failed + 1))
      [ "$code" -ne 124 ] || echo "not done after $bound s" >> "$log"
      echo "FAIL $name $seconds $(tail -n 1 "$log" | cut -c1-200)"
      tail -n 12 "$log" | cut -c1-300 | sed 's/^/     /'
      return 1
      ;;
  esac
}

skip() { skipped=$((skipped + 1)); echo "SKIP $1 $2"; }

# The closing line, and the exit code.
summary() {
  [ "$failed" -eq 0 ] || echo "logs: $work"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
}

field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p"; }

# start_broker ringlog|kafka DIR [KEY=VALUE …]   on free ports; a second start in DIR is on the same one.
start_broker() {
  local kind=$1 dir=$2 ready
  shift 2
  mkdir -p "$dir"
  if [ "$kind" = kafka ]; then
    ready=$("$here/kafka.sh" start "$dir" "$@" 2> "$dir/start.err") || { cat "$dir/start.err" >&2; failed=$((failed + 1)); return 1; }
    bootstrap=$(field kafka <<< "$ready") broker=$(field pid <<< "$ready")
    return
  fi
  local setting overrides=(--override "listeners=PLAINTEXT://${bootstrap_before:-127.0.0.1:0}" --override admin.listener=127.0.0.1:0
                           --override "log.dirs=$dir/data" --override group.initial.rebalance.delay.ms=0)  # as kafka.sh
  for setting in "$@"; do overrides+=(--override "$setting"); done
  rm -f "$dir/ready"
  "${RINGLOG:-$root/target/release/ringlog}" serve "${overrides[@]}" --ready-file "$dir/ready" >> "$dir/broker.out" 2>&1 < /dev/null &
  broker=$!
  for _ in $(seq 1 600); do
    if [ -s "$dir/ready" ]; then bootstrap=$(field kafka < "$dir/ready"); return; fi
    kill -0 "$broker" 2>/dev/null || break
    sleep 0.05
  done
  echo "not ready: $dir/broker.out ends with" >&2
  tail -n 12 "$dir/broker.out" >&2
  stop_broker || true
  failed=$((failed + 1))
  echo "FAIL $kind/start $(basename "$dir")"
  return 1
}

# Asks the broker to stop as an operator would, and waits.
stop_broker() {
  [ -n "$broker" ] || return 0
  local pid=$broker
  broker=''
  kill "$pid" 2>/dev/null || return 0
  for _ in $(seq 1 300); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
  kill -9 "$pid"
  echo "the broker did not stop within 30 s" >&2
  return 1
}

# kill -9, as a crash; start_broker with the same DIR and address goes on from there.
crash_broker() {
  { kill -9 "$broker" && wait "$broker"; } 2>/dev/null || while kill -0 "$broker" 2>/dev/null; do sleep 0.05; done
  broker='' bootstrap_before=$bootstrap
}

# What each client needs, brought once into the cache; client.sh knows where it lies.
install_java() {
  "$here/kafka.sh" install
  [ "$cache/java/Client.class" -nt "$here/java/Client.java" ] && return
  mkdir -p "$cache/java"
  javac -nowarn -d "$cache/java" -cp "$("$here/kafka.sh" classpath)" "$here/java/Client.java"
}
install_python() {
  cmp -s "$here/python/requirements.txt" "$cache/python/requirements.txt" && return
  python3 -m venv --clear "$cache/python"
  "$cache/python/bin/pip" install -q --only-binary :all: -r "$here/python/requirements.txt"
  cp "$here/python/requirements.txt" "$cache/python/requirements.txt"   # last: it marks a complete installation
}
install_node() {
  cmp -s "$here/node/package.json" "$cache/node/complete" && return
  mkdir -p "$cache/node"
  cp "$here/node/package.json" "$cache/node/"
  (cd "$cache/node" && npm install --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error)
  cp "$here/node/package.json" "$cache/node/complete"
}
install_go() { (cd "$here/go" && go build -o "$cache/go/" ./franz-go ./sarama ./kafka-go); }
install_tools() {
  "$here/kafka.sh" install
  command -v kcat > /dev/null || [ "$(id -u)" -ne 0 ] && return
  { apt-get install -y -qq kcat || { apt-get update -qq && apt-get install -y -qq kcat; }; } > /dev/null 2>&1 || true
}
