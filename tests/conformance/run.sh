#!/usr/bin/env bash
# Clients and tools that others wrote, against a broker: does it answer as Kafka does? README.md says what each proves.
#   run.sh [--against ringlog|kafka|both] [--bootstrap HOST:PORT] [--only java,python,node,go,tools] [--quick]
# --against starts the broker itself (default: ringlog, built with --release); 'both' goes through Kafka first, so that the
# scripts are proved before the broker. --bootstrap takes one that is there (no checks of its files). --quick writes
# fewer records where many are written. Installs what the clients need into $RINGLOG_CACHE (default ~/.cache/ringlog). Prints a line
# PASS|FAIL|SKIP name seconds for each check, and a closing line that counts them.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
against=ringlog only=java,python,node,go,tools given='' quick=''
while [ $# -gt 0 ]; do
  case $1 in
    --against) against=$2; shift ;;
    --bootstrap) given=$2; shift ;;
    --only) only=$2; shift ;;
    --quick) quick=1 ;;
    *) sed -n '2,7p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
  shift
done
records=10000
[ -z "$quick" ] || records=2000
wanted() { [[ ,$only, = *,$1,* ]]; }

declare -A clients_of=([java]=java [python]='confluent-kafka kafka-python aiokafka' [node]=kafkajs [go]='franz-go sarama kafka-go')
declare -A program_of=([java]=javac [python]=python3 [node]=npm [go]=go [tools]=mvn)
clients=() tools=''
for language in java python node go tools; do
  wanted "$language" || continue
  if ! command -v "${program_of[$language]}" > /dev/null; then skip "$language" "no ${program_of[$language]} on this machine"; continue; fi
  "install_$language"
  if [ "$language" = tools ]; then tools=1; else clients+=(${clients_of[$language]}); fi
done

# What one client does by itself.
scenarios() {
  local client=$1 name=$2 scenario more
  for scenario in offsets admin idempotent group; do
    if [ "$client/$scenario" = kafka-go/idempotent ]; then skip "$name/$client/$scenario" 'it has no idempotent producer'; continue; fi
    more=()
    [ $scenario != idempotent ] || more=("$records")
    check "$name/$client/$scenario" 120 "$here/client.sh" "$client" "$scenario" "$bootstrap" "$run-$client-$scenario" "${more[@]}" || true
  done
}

# Each client writes a topic in each codec, and each reads what all of them wrote.
cross() {
  local name=$1 client codec topics
  for codec in none gzip snappy lz4 zstd; do
    topics=()
    for client in "${clients[@]}"; do
      check "$name/$client/write-$codec" 60 "$here/client.sh" "$client" write "$bootstrap" "$run-$codec-$client" "$codec" && topics+=("$run-$codec-$client")
    done
    [ ${#topics[@]} -gt 0 ] || continue
    for client in "${clients[@]}"; do check "$name/$client/read-$codec" 120 "$here/client.sh" "$client" read "$bootstrap" "${topics[@]}" || true; done
  done
}

conform() {
  local name=$1 client case
  run=c$RANDOM
  for client in "${clients[@]}"; do scenarios "$client" "$name"; done
  [ ${#clients[@]} -eq 0 ] || cross "$name"
  [ -n "$tools" ] || return 0
  for case in $("$here/tools.sh" list); do check "$name/tools/$case" 120 "$here/tools.sh" "$case" "$bootstrap" || true; done
  check "$name/kcat" 60 "$here/kcat.sh" "$bootstrap" || true
}

if [ -n "$given" ]; then
  bootstrap=$given
  conform broker
  summary
  exit
fi
[ "$against" = both ] && against='kafka ringlog'
for name in $against; do
  [ "$name" = kafka ] || [ -n "${RINGLOG:-}" ] || (cd "$root" && cargo build --release)
  start_broker "$name" "$work/$name" || continue
  conform "$name"
  stop_broker || failed=$((failed + 1))
  if [ -n "$tools" ] && [ ${#clients[@]} -gt 0 ]; then check "$name/tools/files" 120 "$here/tools.sh" files "$work/$name/data" "$run" || true; fi
done
summary
