#!/usr/bin/env bash
# Kafka's own command-line tools against a broker: each case runs them as an operator would and asserts on their text.
#   tools.sh list                   the cases that need a running broker
#   tools.sh CASE BOOTSTRAP         one of them
#   tools.sh files DATA_DIR PREFIX  kafka-dump-log on the files of a broker that stopped cleanly; PREFIX begins the names of
#                                   the topics PREFIX-CODEC-CLIENT of run.sh, whose batches must still carry that codec
# A case exits with 77 and a reason when it needs an API that the broker does not list.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
topic=tools-$$

kafka() { "$here/kafka.sh" run "$@"; }
topics() { kafka org.apache.kafka.tools.TopicCommand --bootstrap-server "$bootstrap" "$@"; }
groups() { kafka org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --bootstrap-server "$bootstrap" "$@"; }
configs() { kafka org.apache.kafka.tools.ConfigCommand --bootstrap-server "$bootstrap" "$@"; }
offsets() { kafka org.apache.kafka.tools.GetOffsetShell --bootstrap-server "$bootstrap" "$@"; }
produce() { kafka org.apache.kafka.tools.ConsoleProducer --bootstrap-server "$bootstrap" "$@"; }
consume() { kafka org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$bootstrap" --from-beginning "$@"; }
perf_producer() { kafka org.apache.kafka.tools.ProducerPerformance --bootstrap-server "$bootstrap" --throughput -1 "$@"; }
dump() { kafka org.apache.kafka.tools.DumpLogSegments "$@"; }

# expect TEXT REGEX: some line of the text matches the whole regular expression.
expect() {
  grep -qxE -- "$2" <<< "$1" || { printf 'wanted a line like: %s\ngot: %s\n' "$2" "$1"; exit 1; }
}
# refuse REGEX COMMAND …: fails, and says so with a line that holds the regular expression.
refuse() {
  local regex=$1 text
  shift
  if text=$("$@" 2>&1); then echo "was not refused: $*"; exit 1; fi
  grep -qE -- "$regex" <<< "$text" || { printf 'wanted: %s\ngot: %s\n' "$regex" "$text"; exit 1; }
}
# needs KEY …: Kafka's numbers of the APIs without which this case cannot work.
needs() {
  local served key
  served=$(kafka org.apache.kafka.tools.BrokerApiVersionsCommand --bootstrap-server "$bootstrap")
  for key in "$@"; do
    grep -E "\($key\): [0-9]" <<< "$served" | grep -qv UNSUPPORTED || { echo "needs API $key, which is not served"; exit 77; }
  done
}
columns() { awk 'NF { $1 = $1; print }' <<< "$1"; }   # blanks between columns made one

case_topics() {
  local id='TopicId: [A-Za-z0-9_-]{22}'
  expect "$(topics --create --topic $topic --partitions 3 --replication-factor 1 --config retention.ms=86400000)" "Created topic $topic\."
  refuse "Topic '$topic' already exists" topics --create --topic $topic
  topics --create --topic $topic --if-not-exists
  refuse 'Replication factor|replication factor' topics --create --topic $topic-r --replication-factor 3
  refuse 'InvalidTopicException|is illegal|invalid' topics --create --topic 'no good'
  expect "$(topics --list)" "$topic"
  local text
  text=$(topics --describe --topic $topic)
  expect "$text" "Topic: $topic	$id	PartitionCount: 3	ReplicationFactor: 1	Configs: (.*,)?retention.ms=86400000(,.*)?"
  for p in 0 1 2; do expect "$text" "	Topic: $topic	Partition: $p	Leader: ([0-9]+)	Replicas: \1	Isr: \1	Elr: .*	LastKnownElr: .*"; done
  [ -z "$(topics --describe --under-replicated-partitions)$(topics --describe --unavailable-partitions)" ]
  topics --delete --topic $topic
  for _ in $(seq 1 20); do topics --list | grep -qx $topic || break; done
  refuse "Topic '$topic' does not exist as expected" topics --describe --topic $topic
}

case_console() {
  topics --create --topic $topic > /dev/null
  local null=(--reader-property parse.key=true --reader-property null.marker=NULL) show=(--formatter-property null.literal=NULL)
  printf 'k1\tv1\nNULL\tv2\nk3\tNULL\n' | produce --topic $topic "${null[@]}"
  printf 'a:x,b:NULL\tk4\tgrüße\n' | produce --topic $topic "${null[@]}" --reader-property parse.headers=true --compression-codec zstd
  local field text
  for field in partition offset headers key; do show+=(--formatter-property "print.$field=true"); done
  text=$(consume --topic $topic --max-messages 4 --group $topic "${show[@]}")
  expect "$text" 'Partition:0	Offset:0	NO_HEADERS	k1	v1'
  expect "$text" 'Partition:0	Offset:1	NO_HEADERS	NULL	v2'
  expect "$text" 'Partition:0	Offset:2	NO_HEADERS	k3	NULL'
  expect "$text" 'Partition:0	Offset:3	a:x,b:NULL	k4	grüße'
  expect "$(consume --topic $topic --partition 0 --max-messages 1 --formatter-property print.timestamp=true)" 'CreateTime:[0-9]{13}	v1'
}

case_perf() {
  topics --create --topic $topic --partitions 4 > /dev/null
  local numbers='[0-9]+ records sent, [0-9.]+ records/sec \([0-9.]+ MB/sec\), [0-9.]+ ms avg latency, [0-9.]+ ms max latency'
  expect "$(perf_producer --topic $topic --num-records 50000 --record-size 100)" "50000${numbers#*+}, [0-9]+ ms 50th, .* ms 99\.9th\."
  expect "$(kafka org.apache.kafka.tools.ConsumerPerformance --bootstrap-server "$bootstrap" --topic $topic --num-records 50000)" \
    '[0-9: -]+, [0-9: -]+, 4\.7684, [0-9.]+, 50000, [0-9., -]+'
  expect "$(kafka org.apache.kafka.tools.EndToEndLatency --bootstrap-server "$bootstrap" --topic $topic-e --num-records 200 \
    --producer-acks all --record-size 100)" 'Percentiles: 50th = [0-9]+, 99th = [0-9]+, 99\.9th = [0-9]+'
}

case_get_offsets() {
  topics --create --topic $topic > /dev/null
  seq 1 7 | produce --topic $topic
  expect "$(offsets --topic $topic)" "$topic:0:7"
  expect "$(offsets --topic $topic --time -2)" "$topic:0:0"
  expect "$(offsets --topic-partitions $topic:0 --time "$BASE_MS")" "$topic:0:0"
}

case_groups_classic() {
  needs 15 16
  topics --create --topic $topic > /dev/null
  seq 1 5 | produce --topic $topic
  consume --topic $topic --max-messages 4 --group $topic > /dev/null
  expect "$(groups --list)" "$topic"
  expect "$(columns "$(groups --describe --group $topic)")" "$topic $topic 0 4 5 1 - - -"
  expect "$(columns "$(groups --describe --group $topic --state)")" "$topic [0-9.]+:[0-9]+ \([0-9]+\) (- )?Empty 0"
  expect "$(columns "$(groups --describe --group $topic --members 2>&1)")" "Consumer group '$topic' has no active members\."
}

case_groups_reset() {
  needs 15 16
  topics --create --topic $topic > /dev/null
  seq 1 5 | produce --topic $topic
  consume --topic $topic --max-messages 5 --group $topic > /dev/null
  expect "$(columns "$(groups --reset-offsets --group $topic --topic $topic --to-offset 2 --execute)")" "$topic $topic 0 2"
  expect "$(consume --topic $topic --max-messages 1 --group $topic)" 3
}

case_groups_delete() {
  needs 15 16 42
  topics --create --topic $topic > /dev/null
  seq 1 5 | produce --topic $topic
  consume --topic $topic --max-messages 5 --group $topic > /dev/null
  expect "$(groups --delete --group $topic)" "Deletion of requested consumer groups \('$topic'\) was successful\."
  expect "$(groups --delete --group $topic 2>&1)" "Error: Deletion of some consumer groups failed:"
}

case_configs() {
  local leader
  topics --create --topic $topic --config retention.ms=86400000 > /dev/null
  expect "$(configs --describe --topic $topic)" '  retention.ms=86400000 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:retention.ms=86400000.*'
  expect "$(configs --describe --all --topic $topic)" '  cleanup.policy=delete sensitive=false synonyms=\{DEFAULT_CONFIG:log.cleanup.policy=delete\}'
  leader=$(topics --describe --topic $topic | sed -n 's/.*Leader: \([0-9]*\).*/\1/p')
  expect "$(configs --describe --all --broker "$leader")" '  log.dirs=.+ sensitive=false synonyms=\{.*'
}

case_configs_alter() {
  needs 44
  topics --create --topic $topic > /dev/null
  expect "$(configs --alter --topic $topic --add-config max.message.bytes=2000000)" "Completed updating config for topic $topic\."
  expect "$(configs --describe --topic $topic)" '  max.message.bytes=2000000 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000000, .*'
  expect "$(configs --alter --topic $topic --delete-config max.message.bytes)" "Completed updating config for topic $topic\."
}

case_verifiable() {
  local sent read
  topics --create --topic $topic > /dev/null
  sent=$(kafka org.apache.kafka.tools.VerifiableProducer --bootstrap-server "$bootstrap" --topic $topic --max-messages 2000)
  [ "$(grep -c producer_send_success <<< "$sent")" -eq 2000 ]
  expect "$sent" '.*"name":"tool_data","sent":2000,"acked":2000,.*'
  read=$(kafka org.apache.kafka.tools.VerifiableConsumer --bootstrap-server "$bootstrap" --topic $topic --max-messages 2000 --group-id $topic)
  expect "$read" '.*"name":"offsets_committed","offsets":\[\{.*"offset":2000\}\],"success":true\}'
  [ "$(grep -o 'records_consumed","count":[0-9]*' <<< "$read" | awk -F: '{ n += $2 } END { print n }')" -eq 2000 ]
}

case_cluster() {
  local key text
  expect "$(kafka org.apache.kafka.tools.ClusterTool cluster-id --bootstrap-server "$bootstrap")" 'Cluster ID: [A-Za-z0-9_-]{22}'
  text=$(kafka org.apache.kafka.tools.BrokerApiVersionsCommand --bootstrap-server "$bootstrap")
  for key in 0 1 2 3 8 9 10 11 12 13 14 18 19 20 22 32 60; do expect "$text" "	[A-Za-z]+\($key\): [0-9]+ to [0-9]+ \[usable: [0-9]+\],?"; done
}

# Every batch is valid and has the codec of its topic's name; every index agrees with its log; committed offsets decode.
files() {
  local data=$1 prefix=$2 text codec logs
  list() { find "$data" -path "$1" -size +0 | sort | paste -sd, -; }
  for codec in none gzip snappy lz4 zstd; do
    logs=$(list "*/$prefix-$codec-*/*.log")
    [ -n "$logs" ] || { echo "no log of $prefix-$codec-*"; exit 1; }
    text=$(dump --deep-iteration --files "$logs")
    [ "$(grep -c '^baseOffset' <<< "$text")" -ge 3 ] || { echo "hardly any batch in $logs"; exit 1; }
    if grep '^baseOffset' <<< "$text" | grep -v "magic: 2 compresscodec: $codec crc: [0-9]* isvalid: true"; then exit 1; fi
    expect "$text" '\| offset: 1 CreateTime: [0-9]{13} keySize: 5 valueSize: 162 .*headerKeys: \[a,a,bin\]'
  done
  text=$(dump --verify-index-only --files "$(list '*/[!_]*-[0-9]/*index')" 2>&1)
  if grep -iE 'mismatch|out of order|corrupt|exception|not found' <<< "$text"; then exit 1; fi
  text=$(dump --offsets-decoder --files "$(list '*/__consumer_offsets-*/*.log')")
  expect "$text" '.*key: \{"type":"1","data":\{"group":".*","topic":".*","partition":[0-9]+\}\} payload: \{.*"offset":31,.*'
  expect "$text" '.*key: \{"type":"2","data":\{"group":".*"\}\} payload: \{.*"protocolType":"consumer".*'
  text=$(dump --files "$(list '*/*.snapshot')")
  expect "$text" 'producerId: [0-9]+ producerEpoch: 0 .* lastSequence: [0-9]+ lastOffset: [0-9]+ .*'
}

case ${1:-} in
  list) declare -F | sed -n 's/^declare -f case_//p' ;;
  files) files "$2" "$3" ;;
  '') sed -n '2,7p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  *) bootstrap=$2; "case_$1" ;;
esac
