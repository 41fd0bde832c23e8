#!/usr/bin/env bash
# A million records through one client of each of five languages, across kill -9: once while they are written, once while
# they are read, each at a random moment, the broker starting again on the same port and folder. Nothing may be lost.
# Every writer here is idempotent, so nothing may be there twice or out of order either: that is asserted too. (A reader
# starts from offset 0 once and must itself go on after the crash. Group commits are not part of this.)
#   million.sh [--against ringlog|kafka] [--only java,python,node,go,c]        COUNT (default 1000000) from the environment
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
against=ringlog only=java,python,node,go,c count=${COUNT:-1000000}
while [ $# -gt 0 ]; do
  case $1 in
    --against) against=$2 ;;
    --only) only=$2 ;;
    *) sed -n '2,6p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
  shift 2
done

# crash_at_random FILE   kills the broker and starts it again as soon as the client that writes FILE has got as far as a
# random number asks for. What happened is in `crash`.
crash_at_random() {
  local log=$1 reached='' at=$((count / 10 + (RANDOM * 32768 + RANDOM) % (count * 4 / 10)))
  crash="ended before the crash at $at"
  until [ "${reached:-0}" -ge "$at" ]; do
    kill -0 "$running" 2>/dev/null || return 1
    sleep 0.02
    reached=$(tail -n 20 "$log" | sed -n 's/^progress \([0-9]*\)$/\1/p' | tail -n 1)
  done
  crash="killed after $reached of $count"
  crash_broker
  start_broker "$against" "$work/broker" && return
  crash="$crash, did not start again"
  kill "$running"
  return 1
}

# crossed NAME COMMAND …   runs a client with a crash in its way: PASS if it ends well all the same.
crossed() {
  local name=$1 log=$work/${1//\//-}.log start=$SECONDS code=0
  shift
  timeout --kill-after=5 900 "$@" > "$log" 2>&1 < /dev/null &
  running=$!
  crash_at_random "$log" || code=1
  wait "$running" || code=$?
  running=''
  if [ "$code" -eq 0 ]; then
    passed=$((passed + 1))
    echo "PASS $name $((SECONDS - start)) $crash; $(grep '^read' "$log" || echo 'all acknowledged')"
  else
    failed=$((failed + 1))
    echo "FAIL $name $((SECONDS - start)) $crash; $(tail -n 1 "$log" | cut -c1-200)"
    tail -n 8 "$log" | cut -c1-300 | sed 's/^/     /'
    return 1
  fi
}

# kcat with the same two words as the other clients; its progress is that of what it was given, or gave.
kcat_million() {
  local scenario=$1 topic=$3 n=$4 step=$((count / 100)) end
  if [ "$scenario" = million-write ]; then
    awk -v n="$n" -v step="$step" 'BEGIN { for (i = 0; i < n; i++) { print i; if (i % step == 0) print "progress", i > "/dev/stderr" } }' |
      kcat -E -b "$2" -P -t "$topic" -p 0 -X enable.idempotence=true -X message.timeout.ms=300000 -X queue.buffering.max.messages=20000
  else
    # Its end (-e) would be the end that it happens to see, so it is asked for a count; another call asks whether there is more.
    kcat -E -b "$2" -C -t "$topic" -p 0 -o beginning -c "$n" -q -u | awk -v n="$n" -v step="$step" '
      $1 != NR - 1 { bad++ }
      NR % step == 0 { print "progress", NR; fflush() }
      END { printf "read %d of %d: %d not in their place\n", NR, n, bad; exit NR != n || bad > 0 }' || return
    until end=$(kcat -b "$2" -Q -t "$topic:0:-1" | sed 's/.*offset //'); do sleep 0.1; done   # it may be down just now
    [ "$end" -eq "$n" ]
  fi
}
export -f kcat_million
export count

declare -A client_of=([java]=java [python]=confluent-kafka [node]=kafkajs [go]=franz-go [c]=kcat)
[ "$against" = kafka ] || [ -n "${RINGLOG:-}" ] || (cd "$root" && cargo build --release)
start_broker "$against" "$work/broker" || true
for language in ${only//,/ }; do
  client=${client_of[$language]}
  if [ "$language" = c ]; then
    install_tools
    if ! command -v kcat > /dev/null; then skip "million/c/kcat" 'kcat is not installed'; continue; fi
    command=(bash -o pipefail -c 'kcat_million "$@"' kcat)
  else
    "install_$language"
    command=("$here/client.sh" "$client")
  fi
  topic=million-$client
  [ -n "$broker" ] || { skip "million/$language" 'the broker is gone'; continue; }
  crossed "million/$language/$client/write" "${command[@]}" million-write "$bootstrap" "$topic" "$count" || continue
  crossed "million/$language/$client/read" "${command[@]}" million-read "$bootstrap" "$topic" "$count" once || true
done
stop_broker || failed=$((failed + 1))
summary
