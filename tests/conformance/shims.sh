#!/usr/bin/env bash
# Our kafka-* tools beside Kafka's own: the same command line, run by both against the same broker, must give the same text and exit code.
#   shims.sh [--against ringlog|kafka|both] [--bootstrap HOST:PORT] [--only TOOL,…] [--build PROFILE]
# --against starts the broker itself (default: both, Kafka first, so that a difference is ours and not the broker's). --bootstrap takes
# one that is there. --only runs the cases of some tools (topics, configs, groups, console, offsets, log-dirs, cluster, perf,
# verifiable, dump). $RINGLOG is the binary (default target/release/ringlog, built first).
#
# What is compared, per call: standard output, after masking what must differ (times, rates, ids, paths); of standard error the
# messages, not stack traces, log lines and help pages; and the exit code. Lines that Kafka prints in the order of a hash map are
# sorted on both sides. Prints PASS|FAIL NAME, and a closing line that counts them.
#
# Kafka's tools are called many at a time in one Java process (shims/Calls.java): a start of the JVM for each would take minutes.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
against=both given='' only='' profile=release
while [ $# -gt 0 ]; do
  case $1 in
    --against) against=$2; shift ;;
    --bootstrap) given=$2; shift ;;
    --only) only=$2; shift ;;
    --build) profile=$2; shift ;;
    *) sed -n '2,8p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
  shift
done
wanted() { [ -z "$only" ] || [[ ,$only, = *,$1,* ]]; }

declare -A class_of=(
  [kafka-topics]=org.apache.kafka.tools.TopicCommand
  [kafka-configs]=org.apache.kafka.tools.ConfigCommand
  [kafka-consumer-groups]=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand
  [kafka-console-producer]=org.apache.kafka.tools.ConsoleProducer
  [kafka-console-consumer]=org.apache.kafka.tools.consumer.ConsoleConsumer
  [kafka-get-offsets]=org.apache.kafka.tools.GetOffsetShell
  [kafka-log-dirs]=org.apache.kafka.tools.LogDirsCommand
  [kafka-cluster]=org.apache.kafka.tools.ClusterTool
  [kafka-producer-perf-test]=org.apache.kafka.tools.ProducerPerformance
  [kafka-consumer-perf-test]=org.apache.kafka.tools.ConsumerPerformance
  [kafka-e2e-latency]=org.apache.kafka.tools.EndToEndLatency
  [kafka-verifiable-producer]=org.apache.kafka.tools.VerifiableProducer
  [kafka-verifiable-consumer]=org.apache.kafka.tools.VerifiableConsumer
  [kafka-dump-log]=org.apache.kafka.tools.DumpLogSegments
)

# call NAME TOOL ARG …   one comparison; @T, @G stand for a topic and a group of this side's own, @B for the broker. A word that begins
# with '<' is the standard input (\n and \t in it are read so). Both sides do the same things to objects of their own, so that what
# one creates does not stand in the way of the other; the names are masked. Words: 'sorted' before NAME compares sorted lines.
calls=()
call() { local IFS=$'\x1f'; calls+=("$*"); }

plan() {
  local T='--bootstrap-server @B'
  if wanted topics; then
    call topics-create kafka-topics $T --create --topic @T --partitions 3 --replication-factor 1 --config retention.ms=86400000
    call topics-create-again kafka-topics $T --create --topic @T
    call topics-create-if-not-exists kafka-topics $T --create --topic @T --if-not-exists
    call topics-create-dotted kafka-topics $T --create --topic @T.b_c
    call topics-create-no-partitions kafka-topics $T --create --topic @T-x --partitions 0
    call topics-create-no-replicas kafka-topics $T --create --topic @T-x --replication-factor 0
    call topics-create-illegal kafka-topics $T --create --topic 'no good'
    call topics-create-unknown-config kafka-topics $T --create --topic @T-x --config foo.bar=1
    call topics-create-wrong-config kafka-topics $T --create --topic @T-x --config retention.ms=abc
    call topics-create-half-config kafka-topics $T --create --topic @T-x --config retention.ms
    call topics-create-empty-config kafka-topics $T --create --topic @T-x --config retention.ms=
    call topics-create-twofold-config kafka-topics $T --create --topic @T-x --config retention.ms=1=2
    call topics-create-placed-unevenly kafka-topics $T --create --topic @T-x --replica-assignment 1,1:2
    call topics-create-placed kafka-topics $T --create --topic @T-placed --replica-assignment 1,1
    call topics-create-placed-twice kafka-topics $T --create --topic @T-x --replica-assignment 1:1,1
    call topics-create-placed-and-counted kafka-topics $T --create --topic @T-x --replica-assignment 1,1 --partitions 2
    call topics-create-nameless kafka-topics $T --create
    call topics-two-actions kafka-topics $T --create --list
    call topics-list kafka-topics $T --list --topic '@T.*'
    call topics-list-none kafka-topics $T --list --topic '@T-nothing'
    call topics-describe kafka-topics $T --describe --topic @T
    call topics-describe-missing kafka-topics $T --describe --topic @T-nothing
    call topics-describe-missing-allowed kafka-topics $T --describe --topic @T-nothing --if-exists
    call topics-describe-overrides kafka-topics $T --describe --topic @T --topics-with-overrides
    call topics-describe-under-replicated kafka-topics $T --describe --topic @T --under-replicated-partitions
    call topics-describe-unavailable kafka-topics $T --describe --topic @T --unavailable-partitions
    call topics-describe-at-min-isr kafka-topics $T --describe --topic @T --at-min-isr-partitions
    call topics-describe-under-min-isr kafka-topics $T --describe --topic @T --under-min-isr-partitions
    call topics-describe-no-id kafka-topics $T --describe --topic-id abc
    call topics-describe-unknown-id kafka-topics $T --describe --topic-id AAAAAAAAAAAAAAAAAAAAAg
    call topics-alter kafka-topics $T --alter --topic @T --partitions 5
    call topics-alter-fewer kafka-topics $T --alter --topic @T --partitions 2
    call topics-alter-uncounted kafka-topics $T --alter --topic @T
    call topics-alter-missing kafka-topics $T --alter --topic @T-nothing --partitions 2
    call topics-alter-config kafka-topics $T --alter --topic @T --config retention.ms=1
    call topics-alter-placed kafka-topics $T --alter --topic @T --partitions 6 --replica-assignment 1,1,1,1,1,1
    call topics-delete-missing kafka-topics $T --delete --topic @T-nothing
    call topics-delete-missing-allowed kafka-topics $T --delete --topic @T-nothing --if-exists
    call topics-delete-nameless kafka-topics $T --delete
    call topics-delete kafka-topics $T --delete --topic @T-placed
    call topics-unknown-option kafka-topics $T --list --foo
    call topics-misplaced-option kafka-topics $T --list --partitions 3
    call topics-no-number kafka-topics $T --create --topic @T-x --partitions abc
    call topics-extra-words kafka-topics $T --list --topic @T extra words
    call topics-joined-value kafka-topics --bootstrap-server=@B --list --topic @T
    call topics-short-option kafka-topics $T --descr --topic @T
    call topics-no-broker kafka-topics --list
    call topics-no-value kafka-topics --bootstrap-server
    call topics-bad-broker kafka-topics --bootstrap-server foo --list
    call topics-delete-config kafka-topics $T --create --topic @T --delete-config a
    call topics-two-names kafka-topics $T --create --topic @T --topic @T-x
    call topics-no-config-file kafka-topics $T --command-config /nope --list
  fi
  if wanted configs; then
    call configs-topic kafka-topics $T --create --topic @T-c --config retention.ms=86400000
    call configs-describe kafka-configs $T --describe --topic @T-c
    call configs-describe-long kafka-configs $T --describe --entity-type topics --entity-name @T-c
    call configs-describe-missing kafka-configs $T --describe --topic @T-nothing
    call configs-describe-broker kafka-configs $T --describe --broker 1
    call configs-describe-missing-broker kafka-configs $T --describe --broker 77
    call configs-describe-no-broker kafka-configs $T --describe --broker abc
    call configs-describe-group kafka-configs $T --describe --group @G-nothing
    call configs-describe-metrics kafka-configs $T --describe --client-metrics m
    call configs-alter kafka-configs $T --alter --topic @T-c --add-config 'max.message.bytes=2000000,cleanup.policy=[compact,delete]'
    call configs-altered kafka-configs $T --describe --topic @T-c
    call configs-unset kafka-configs $T --alter --topic @T-c --delete-config cleanup.policy
    call configs-unset-again kafka-configs $T --alter --topic @T-c --delete-config cleanup.policy
    call configs-unset-two kafka-configs $T --alter --topic @T-c --delete-config max.message.bytes --delete-config retention.ms
    call configs-alter-illegal kafka-configs $T --alter --topic @T-c --add-config 'a b=1'
    call configs-alter-unknown kafka-configs $T --alter --topic @T-c --add-config foo=1
    call configs-alter-wrong kafka-configs $T --alter --topic @T-c --add-config retention.ms=abc
    call configs-alter-half kafka-configs $T --alter --topic @T-c --add-config retention.ms
    call configs-alter-missing kafka-configs $T --alter --topic @T-nothing --add-config retention.ms=1
    call configs-alter-nothing kafka-configs $T --alter --topic @T-c
    call configs-alter-no-file kafka-configs $T --alter --topic @T-c --add-config-file /nope
    call configs-two-actions kafka-configs $T --describe --alter --topic @T-c
    call configs-no-action kafka-configs $T
    call configs-no-entity kafka-configs $T --describe
    call configs-unknown-type kafka-configs $T --describe --entity-type foo --entity-name x
    call configs-name-alone kafka-configs $T --describe --entity-name x
    call configs-twice kafka-configs $T --describe --topic @T-c --entity-type topics
    call configs-no-broker kafka-configs --describe --topic @T-c
    call configs-nameless kafka-configs $T --alter --entity-type topics --add-config a=b
    call configs-unknown-option kafka-configs $T --describe --topic @T-c --foo
  fi
  if wanted console; then
    call console-topic kafka-topics $T --create --topic @T-p
    call console-produce kafka-console-producer $T --topic @T-p '<a\nb\nc\n'
    call console-produce-keys kafka-console-producer $T --topic @T-p --reader-property parse.key=true '<k1\tv1\nk2\tv2\nnokey\n'
    call console-produce-headers kafka-console-producer $T --topic @T-p --reader-property parse.key=true --reader-property parse.headers=true \
      --reader-property null.marker=NULL --compression-codec zstd '<h1:v1,h2:NULL\tk1\tv1\nNULL\tk2\tNULL\nbad\tk\tv\n'
    call console-produce-bad-header kafka-console-producer $T --topic @T-p --reader-property parse.headers=true '<h1\tv1\n'
    call console-produce-lenient kafka-console-producer $T --topic @T-p --reader-property parse.key=true --reader-property ignore.error=true \
      '<nokey\nk\tv\n'
    call console-produce-null-header kafka-console-producer $T --topic @T-p --reader-property parse.headers=true --reader-property null.marker=N \
      '<N:v\tv\n'
    call console-produce-half-line kafka-console-producer $T --topic @T-p --reader-property parse.headers=true --reader-property parse.key=true \
      '<h:v\tnokey\n'
    call console-produce-same-separators kafka-console-producer $T --topic @T-p --reader-property parse.key=true --reader-property null.marker=X \
      --reader-property key.separator=X '<a\n'
    call console-produce-old-names kafka-console-producer $T --topic @T-p --property parse.key=true --producer-property linger.ms=3 '<k\tv\n'
    call console-produce-both-names kafka-console-producer $T --topic @T-p --producer-property linger.ms=3 --command-property acks=1 '<v\n'
    call console-produce-no-number kafka-console-producer $T --topic @T-p --command-property linger.ms=abc '<v\n'
    call console-produce-no-codec kafka-console-producer $T --topic @T-p --compression-codec foo '<v\n'
    call console-produce-memory kafka-console-producer $T --topic @T-p --batch-size 100 --max-partition-memory-bytes 10 --sync --timeout 3 '<v\n'
    call console-produce-no-reader kafka-console-producer $T --topic @T-p --line-reader org.foo.Bar '<v\n'
    call console-produce-nameless kafka-console-producer $T '<v\n'
    call console-produce-no-broker kafka-console-producer --topic @T-p '<v\n'
    call console-produce-bad-broker kafka-console-producer --bootstrap-server foo --topic @T-p '<v\n'
    call console-produce-unknown-option kafka-console-producer $T --topic @T-p --foo '<v\n'
    call console-consume kafka-console-consumer $T --topic @T-p --from-beginning --max-messages 5
    call console-consume-fields kafka-console-consumer $T --topic @T-p --partition 0 --offset earliest --timeout-ms 1500 \
      --formatter-property print.timestamp=true --formatter-property print.key=true --formatter-property print.offset=true \
      --formatter-property print.partition=true --formatter-property print.headers=true --formatter-property print.epoch=true \
      --formatter-property print.delivery=true
    call console-consume-separators kafka-console-consumer $T --topic @T-p --partition 0 --offset earliest --max-messages 6 \
      --formatter-property null.literal=NUL --formatter-property print.key=true --formatter-property key.separator=: \
      --formatter-property 'line.separator=;' --formatter-property 'headers.separator=|' --formatter-property print.headers=true
    call console-consume-old-names kafka-console-consumer $T --topic @T-p --partition 0 --offset 2 --max-messages 1 --property print.key=true \
      --consumer-property client.id=x
    call console-consume-group kafka-console-consumer $T --topic @T-p --group @G --from-beginning --max-messages 4
    call console-consume-group-on kafka-console-consumer $T --topic @T-p --group @G --from-beginning --max-messages 1
    call console-consume-include kafka-console-consumer $T --include '@T-p.*' --from-beginning --max-messages 2
    call console-consume-nothing kafka-console-consumer $T --topic @T-p --formatter org.apache.kafka.tools.consumer.NoOpMessageFormatter \
      --from-beginning --max-messages 1
    call console-consume-no-offset kafka-console-consumer $T --topic @T-p --partition 0 --offset abc
    call console-consume-below-zero kafka-console-consumer $T --topic @T-p --partition 0 --offset -5
    call console-consume-no-partition kafka-console-consumer $T --topic @T-p --offset 3
    call console-consume-group-partition kafka-console-consumer $T --topic @T-p --partition 0 --group g
    call console-consume-group-property kafka-console-consumer $T --topic @T-p --partition 0 --command-property group.id=g
    call console-consume-capitals kafka-console-consumer $T --topic @T-p --partition 0 --offset EARLIEST --max-messages 1
    call console-consume-two-deserializers kafka-console-consumer $T --topic @T-p --partition 0 --offset 0 --max-messages 1 --value-deserializer \
      org.apache.kafka.common.serialization.LongDeserializer --formatter-property \
      value.deserializer=org.apache.kafka.common.serialization.StringDeserializer
    call console-consume-two-starts kafka-console-consumer $T --topic @T-p --partition 0 --from-beginning --offset 4
    call console-consume-nameless kafka-console-consumer $T
    call console-consume-two-names kafka-console-consumer $T --topic @T-p --include 's.*'
    call console-consume-no-broker kafka-console-consumer --topic @T-p
    call console-consume-two-groups kafka-console-consumer $T --topic @T-p --group g1 --command-property group.id=g2
    call console-consume-contradiction kafka-console-consumer $T --topic @T-p --from-beginning --command-property auto.offset.reset=latest
    call console-consume-no-formatter kafka-console-consumer $T --topic @T-p --formatter foo.Bar
    call console-consume-unknown-option kafka-console-consumer $T --topic @T-p --foo
  fi
  if wanted groups; then
    call groups-topic kafka-topics $T --create --topic @T-g --partitions 2
    call groups-records kafka-console-producer $T --topic @T-g --reader-property parse.key=true '<a\t1\nb\t2\nc\t3\nd\t4\n'
    call groups-read kafka-console-consumer $T --topic @T-g --group @G-r --from-beginning --max-messages 4 --formatter \
      org.apache.kafka.tools.consumer.NoOpMessageFormatter
    call groups-describe kafka-consumer-groups $T --describe --group @G-r
    call groups-describe-verbose kafka-consumer-groups $T --describe --group @G-r --verbose
    call groups-describe-members kafka-consumer-groups $T --describe --group @G-r --members
    call groups-describe-members-verbose kafka-consumer-groups $T --describe --group @G-r --members --verbose
    call groups-describe-state kafka-consumer-groups $T --describe --group @G-r --state
    call groups-describe-state-verbose kafka-consumer-groups $T --describe --group @G-r --state --verbose
    call groups-describe-missing kafka-consumer-groups $T --describe --group @G-nothing
    call groups-describe-nobody kafka-consumer-groups $T --describe
    call groups-describe-both kafka-consumer-groups $T --describe --group @G-r --all-groups
    call groups-describe-two-kinds kafka-consumer-groups $T --describe --group @G-r --members --state
    call groups-list-wrong-state kafka-consumer-groups $T --list --state foo
    call groups-list-members kafka-consumer-groups $T --list --members
    call groups-reset-default kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g:0 --to-earliest
    call sorted groups-reset-plan kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g --to-earliest --dry-run
    call groups-reset-offset kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g:0 --to-offset 1 --execute
    call groups-reset-above kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g:0 --to-offset 100000 --execute
    call sorted groups-reset-export kafka-consumer-groups $T --reset-offsets --group @G-r --all-topics --to-latest --export --dry-run
    call sorted groups-reset-shift kafka-consumer-groups $T --reset-offsets --group @G-r --all-topics --shift-by -1 --dry-run
    call sorted groups-reset-time kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g --to-datetime 2026-01-01T00:00:00.000 --dry-run
    call groups-reset-late kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g:0 --to-datetime 2090-01-01T00:00:00.000 --dry-run
    call groups-reset-no-time kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g --to-datetime 2026-01-01T00:00 --dry-run
    call groups-reset-duration kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g:0 --by-duration PT1H --dry-run
    call groups-reset-no-duration kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g --by-duration 1h --dry-run
    call sorted groups-reset-current kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g --to-current --dry-run
    call groups-reset-no-scenario kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g --dry-run
    call groups-reset-no-scope kafka-consumer-groups $T --reset-offsets --group @G-r --to-current --dry-run
    call groups-reset-two kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g --to-current --to-latest --dry-run
    call groups-reset-both kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g --to-current --execute --dry-run
    call groups-reset-nobody kafka-consumer-groups $T --reset-offsets --topic @T-g --to-current --dry-run
    call sorted groups-reset-new kafka-consumer-groups $T --reset-offsets --group @G-new --topic @T-g --to-earliest --execute
    call groups-reset-no-partition kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g:99 --to-earliest --execute
    call groups-reset-bad-partition kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g:a --to-earliest --execute
    call groups-reset-half-topic kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g: --to-earliest --dry-run
    call groups-reset-two-colons kafka-consumer-groups $T --reset-offsets --group @G-r --topic @T-g:0:1 --to-earliest --dry-run
    call groups-reset-no-file kafka-consumer-groups $T --reset-offsets --group @G-r --from-file /nope.csv --dry-run
    call groups-delete-offsets kafka-consumer-groups $T --delete-offsets --group @G-r --topic @T-g:0
    call groups-delete-offsets-missing kafka-consumer-groups $T --delete-offsets --group @G-nothing --topic @T-g
    call groups-delete-offsets-where kafka-consumer-groups $T --delete-offsets --group @G-r
    call groups-delete kafka-consumer-groups $T --delete --group @G-new
    call groups-delete-missing kafka-consumer-groups $T --delete --group @G-nothing
    call groups-delete-some kafka-consumer-groups $T --delete --group @G-nothing --group @G-r
    call groups-delete-nobody kafka-consumer-groups $T --delete
    call groups-delete-topic kafka-consumer-groups $T --delete --group @G-r --topic @T-g
    call groups-regex kafka-consumer-groups --validate-regex 'a.*'
    call groups-no-broker kafka-consumer-groups --list
    call groups-bad-broker kafka-consumer-groups --bootstrap-server foo --list
    call groups-unknown-option kafka-consumer-groups $T --list --foo
  fi
  if wanted offsets; then
    call offsets-topic kafka-topics $T --create --topic @T-o --partitions 3
    call offsets-records kafka-console-producer $T --topic @T-o --reader-property parse.key=true '<a\t1\nb\t2\nc\t3\nd\t4\ne\t5\n'
    call offsets-latest kafka-get-offsets $T --topic @T-o
    call offsets-some kafka-get-offsets $T --topic '@T-o.*' --partitions 0,2
    call offsets-missing kafka-get-offsets $T --topic @T-o --partitions 99
    call offsets-range kafka-get-offsets $T --topic-partitions @T-o:0-2
    call offsets-from kafka-get-offsets $T --topic-partitions @T-o:1-
    call offsets-until kafka-get-offsets $T --topic-partitions @T-o:-1
    call offsets-bad-rule kafka-get-offsets $T --topic-partitions @T-o:a
    call offsets-two-scopes kafka-get-offsets $T --topic-partitions @T-o --topic @T-o
    call offsets-earliest kafka-get-offsets $T --topic @T-o --time -2
    call offsets-earliest-name kafka-get-offsets $T --topic @T-o --time earliest
    call offsets-one-topic kafka-topics $T --create --topic @T-o1
    call offsets-one-record kafka-console-producer $T --topic @T-o1 '<1\n'
    call offsets-max-timestamp kafka-get-offsets $T --topic @T-o1 --time -3
    call offsets-comma kafka-get-offsets $T --topic-partitions @T-o:0,
    call offsets-many-topic kafka-topics $T --create --topic @T-many --partitions 12
    call offsets-many kafka-get-offsets $T --topic @T-many
    call offsets-early kafka-get-offsets $T --topic @T-o --time 1
    call offsets-late kafka-get-offsets $T --topic @T-o --time 99999999999999
    call offsets-no-time kafka-get-offsets $T --topic @T-o --time foo
    call offsets-no-partition kafka-get-offsets $T --topic @T-o --partitions a
    call offsets-old-option kafka-get-offsets --broker-list @B --topic @T-o
    call offsets-no-broker kafka-get-offsets --topic @T-o
    call offsets-bad-broker kafka-get-offsets --bootstrap-server foo
  fi
  if wanted log-dirs; then
    call dirs-topic kafka-topics $T --create --topic @T-d
    call dirs-record kafka-console-producer $T --topic @T-d '<1\n'
    call dirs-describe kafka-log-dirs $T --describe --topic-list @T-d
    call dirs-twice kafka-log-dirs $T --describe --topic-list @T-d --broker-list 1,1
    call dirs-missing-broker kafka-log-dirs $T --describe --broker-list 1,9
    call dirs-bad-broker-id kafka-log-dirs $T --describe --broker-list a
    call dirs-no-action kafka-log-dirs $T
    call dirs-no-broker kafka-log-dirs --describe
    call dirs-bad-broker kafka-log-dirs --bootstrap-server foo --describe
    call dirs-unknown-option kafka-log-dirs $T --describe --foo
  fi
  if wanted cluster; then
    call cluster-id kafka-cluster cluster-id $T
    call cluster-endpoints kafka-cluster list-endpoints $T
    call cluster-endpoints-short kafka-cluster list-endpoints -b @B
    call cluster-no-broker kafka-cluster cluster-id
    call cluster-bad-broker kafka-cluster cluster-id --bootstrap-server foo
    call cluster-unknown kafka-cluster foo
    call cluster-no-id kafka-cluster unregister $T
    call cluster-old-config kafka-cluster cluster-id $T --config /nope
  fi
  if wanted perf; then
    call perf-topic kafka-topics $T --create --topic @T-f --partitions 1
    call perf-produce kafka-producer-perf-test $T --topic @T-f --num-records 2000 --record-size 100 --throughput -1
    call perf-produce-old kafka-producer-perf-test --topic @T-f --num-records 500 --record-size 100 --throughput -1 --producer-props \
      bootstrap.servers=@B linger.ms=1
    call perf-produce-warm kafka-producer-perf-test $T --topic @T-f --num-records 1000 --record-size 100 --throughput -1 --warmup-records 100
    call perf-produce-monotonic kafka-producer-perf-test $T --topic @T-f --num-records 10 --payload-monotonic --throughput -1
    call perf-produce-keys kafka-producer-perf-test $T --topic @T-f --num-records 10 --record-size 5 --throughput -1 --key-distribution range \
      --record-key-range 3
    call perf-produce-none kafka-producer-perf-test $T --topic @T-f --num-records 0 --record-size 100 --throughput -1
    call perf-produce-empty kafka-producer-perf-test $T --topic @T-f --num-records 1 --record-size 0 --throughput -1
    call perf-produce-what kafka-producer-perf-test $T --topic @T-f --num-records 10 --throughput -1
    call perf-produce-both kafka-producer-perf-test $T --topic @T-f --num-records 10 --record-size 5 --payload-file /x --throughput -1
    call perf-produce-no-file kafka-producer-perf-test $T --topic @T-f --num-records 10 --payload-file /x --throughput -1
    call perf-produce-no-number kafka-producer-perf-test $T --topic @T-f --num-records abc --record-size 5 --throughput -1
    call perf-produce-no-rate kafka-producer-perf-test $T --topic @T-f --num-records 10 --record-size 5
    call perf-produce-too-warm kafka-producer-perf-test $T --topic @T-f --num-records 10 --record-size 5 --throughput -1 --warmup-records 10
    call perf-produce-no-range kafka-producer-perf-test $T --topic @T-f --num-records 10 --record-size 5 --throughput -1 --key-distribution range
    call perf-produce-two-names kafka-producer-perf-test $T --topic @T-f --num-records 10 --record-size 5 --throughput -1 --command-property a=b \
      --producer-props c=d
    call perf-produce-bad-property kafka-producer-perf-test $T --topic @T-f --num-records 10 --record-size 5 --throughput -1 --command-property ab
    call perf-consume kafka-consumer-perf-test $T --topic @T-f --num-records 3520 --timeout 5000
    call perf-consume-old kafka-consumer-perf-test $T --topic @T-f --messages 3520 --timeout 5000
    call perf-consume-bare kafka-consumer-perf-test $T --topic @T-f --num-records 3520 --hide-header --timeout 5000
    call perf-consume-detailed kafka-consumer-perf-test $T --topic @T-f --num-records 3520 --show-detailed-stats --timeout 5000
    call perf-consume-what kafka-consumer-perf-test $T --num-records 9
    call perf-consume-how-many kafka-consumer-perf-test $T --topic @T-f
    call perf-consume-bad-dates kafka-consumer-perf-test $T --topic @T-f --num-records 10 --date-format foo
    call perf-latency kafka-e2e-latency $T --topic @T-f --num-records 20 --producer-acks 1 --record-size 20
    call perf-latency-headers kafka-e2e-latency $T --topic @T-f --num-records 20 --producer-acks all --record-size 20 --record-key-size 4 \
      --num-headers 2 --record-header-key-size 3 --record-header-size 3
    call perf-latency-positions kafka-e2e-latency @B @T-f 20 1 20
    call perf-latency-acks kafka-e2e-latency $T --topic @T-f --num-records 20 --producer-acks 2 --record-size 20
    call perf-latency-size kafka-e2e-latency $T --topic @T-f --num-records 20 --producer-acks 1
    call perf-latency-two kafka-e2e-latency a b
  fi
  if wanted verifiable; then
    call verifiable-topic kafka-topics $T --create --topic @T-v
    call verifiable-produce kafka-verifiable-producer $T --topic @T-v --max-messages 8
    call verifiable-produce-keys kafka-verifiable-producer $T --topic @T-v --max-messages 3 --value-prefix 7 --repeating-keys 2 --acks 1 \
      --throughput 100 --message-create-time 1000000
    call verifiable-produce-acks kafka-verifiable-producer $T --topic @T-v --max-messages 3 --acks 7
    call verifiable-produce-no-broker kafka-verifiable-producer --topic @T-v --max-messages 3
    call verifiable-consume kafka-verifiable-consumer $T --topic @T-v --group-id @G-v --max-messages 8
    call verifiable-consume-verbose kafka-verifiable-consumer $T --topic @T-v --group-id @G-w --max-messages 3 --verbose --enable-autocommit
    call verifiable-consume-robin kafka-verifiable-consumer $T --topic @T-v --group-id @G-x --max-messages 3 --assignment-strategy \
      org.apache.kafka.clients.consumer.RoundRobinAssignor --reset-policy earliest --session-timeout 10000
    call verifiable-consume-group kafka-verifiable-consumer $T --topic @T-v
  fi
}

# The files of a broker that has stopped: nothing differs but what they cannot know.
plan_files() {
  local data=$1 log
  for log in $(find "$data" -name '00000000000000000000.log' -size +0 | grep -v __ | sort | head -n 8); do
    call "dump-$(basename "$(dirname "$log")")" kafka-dump-log --files "$log"
    call "dump-data-$(basename "$(dirname "$log")")" kafka-dump-log --files "$log" --print-data-log
    call "dump-deep-$(basename "$(dirname "$log")")" kafka-dump-log --files "$log" --deep-iteration
    call "dump-bare-$(basename "$(dirname "$log")")" kafka-dump-log --files "$log" --print-data-log --skip-record-metadata
  done
  for log in $(find "$data" -path '*__consumer_offsets-*/*.log' -size +0 | sort); do
    call "dump-offsets-$(basename "$(dirname "$log")")" kafka-dump-log --files "$log" --offsets-decoder
  done
  log=$(find "$data" -name '*.snapshot' -size +0 | sort | head -n 1)
  [ -z "$log" ] || call dump-producers kafka-dump-log --files "$log"
  call dump-unknown kafka-dump-log --files /nope
  call dump-missing kafka-dump-log --files /nope/00000000000000000000.log
  call dump-unknown-option kafka-dump-log --files /nope --foo
  call dump-nothing kafka-dump-log --print-data-log
}

# Standard output without what differs between two runs of the same tool.
mask_out() {
  sed -E -e "s/(shim|kafk)-$run/NAME/g" \
    -e 's/TopicId: [A-Za-z0-9_-]{22}/TopicId: ID/' \
    -e 's/CreateTime:[0-9]{13}/CreateTime:T/g' -e 's/"timestamp":[0-9]{13}/"timestamp":T/' \
    -e 's/"avg_throughput":[0-9.E]+/"avg_throughput":R/' -e 's/"count":[0-9]+,"partitions"/"count":N,"partitions"/' \
    -e 's#[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{12}#TIME#g' \
    -e '/records sent, /s#[0-9.]+ (records/sec|MB/sec|ms)#R \1#g' -e '/steady state records sent/s/^[0-9]+ steady/N steady/' \
    -e '/^TIME, TIME, /s/, [0-9.]+, ([0-9]+), [0-9.]+, [0-9]+, [0-9]+, [0-9.]+, [0-9.]+$/, R, \1, R/' -e '/^TIME, 0, /d' \
    -e 's/^([0-9]+\t)[0-9.E-]+$/\1R/' -e 's/^(Avg latency: )[0-9.]+/\1R/' \
    -e 's/^(Percentiles: 50th = )[0-9]+, 99th = [0-9]+, 99.9th = [0-9]+/\1R/' \
    -e 's/"size":[0-9]+/"size":N/g'
}
# Messages only: no log lines, stack traces, causes and help pages; blanks and line ends made one.
mask_err() {
  sed -E -e "s/(shim|kafk)-$run/NAME/g" -e '/^Option .*Description/,$d' -e '/^usage: /,/error:/{/error:/!d}' \
    -e '/^\[[^]]*\] (WARN|ERROR|INFO)/d' -e '/^(WARN|ERROR) /d' -e '/^\t(at|\.\.\.) /d' -e '/^Caused by: /d' \
    -e '/^(java|joptsimple|org)[A-Za-z0-9_.$]*(Exception|Error)(: .*)?$/{/KafkaException: |ConfigException: |ClassNotFound/!d}' \
    -e '/^The consumer rebalance protocol/d' -e '/^Did you mean/d' -e '/^Help: /d' | tr -s ' \n' ' ' |
    # Words broken at the end of a line; what stands in the order of a hash set.
    sed -E -e 's/-- /--/g' -e 's/([a-z])- /\1-/g' -e 's/^ //; s/ $//' -e 's/(Valid states are: |takes (one of these|at most one of these|the following) options: |following scenarios: \[|Option combination "\[).*/\1/'
}

# Runs every planned call on both sides; results lie in $work/SIDE/NAME.{out,err,code}.
run_ours() {
  local dir=$1 entry words name word args input sort
  mkdir -p "$dir"
  for entry in "${calls[@]}"; do
    IFS=$'\x1f' read -r -d '' -a words < <(printf '%s\0' "$entry") || true
    sort=''; [ "${words[0]}" != sorted ] || { sort=1; words=("${words[@]:1}"); }
    name=${words[0]} args=() input=/dev/null
    for word in "${words[@]:2}"; do
      case $word in
        '<'*) printf '%b' "${word#<}" > "$dir/input"; input=$dir/input ;;
        *) word=${word//@B/$bootstrap}; word=${word//@T/shim-$run}; args+=("${word//@G/shim-$run}") ;;
      esac
    done
    local code=0
    timeout 40 "$ringlog" "${words[1]}" "${args[@]}" > "$dir/$name.out" 2> "$dir/$name.err" < "$input" || code=$?
    echo "$code" > "$dir/$name.code"
  done
}
run_kafkas() {
  local dir=$1 entry words word line args name code
  mkdir -p "$dir"
  for entry in "${calls[@]}"; do
    IFS=$'\x1f' read -r -d '' -a words < <(printf '%s\0' "$entry") || true
    [ "${words[0]}" != sorted ] || words=("${words[@]:1}")
    line="${words[0]}"$'\x1f'"${class_of[${words[1]}]}"
    args=()
    for word in "${words[@]:2}"; do
      word=${word//@B/$bootstrap}; word=${word//@T/kafk-$run}; word=${word//@G/kafk-$run}; line+=$'\x1f'$word; args+=("$word")
    done
    # These two say their last words while the process ends: each gets one of its own.
    if [[ ${words[1]} = kafka-verifiable-* ]]; then
      printf '%s\n' "${words[0]}" >> "$dir/alone"
      printf '%s\0' "${class_of[${words[1]}]}" "${args[@]}" > "$dir/${words[0]}.args"
    else
      printf '%s\n' "$line"
    fi
  done > "$dir/calls"
  java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.security.manager=allow \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp "$cache/java:$("$here/kafka.sh" classpath)" Calls "$dir" < "$dir/calls" > "$dir/log" 2>&1 ||
    { cat "$dir/log" >&2; return 1; }
  [ -e "$dir/alone" ] || return 0
  while read -r name; do
    mapfile -d '' -t args < "$dir/$name.args"
    code=0
    TOOL_LOG_LEVEL=off timeout 60 "$here/kafka.sh" run "${args[@]}" > "$dir/$name.out" 2> "$dir/$name.err" < /dev/null || code=$?
    echo "$code" > "$dir/$name.code"
  done < "$dir/alone"
}

compare_all() {
  local label=$1 entry words name sort what mine theirs
  for entry in "${calls[@]}"; do
    IFS=$'\x1f' read -r -d '' -a words < <(printf '%s\0' "$entry") || true
    sort=cat; [ "${words[0]}" != sorted ] || { sort=sort; words=("${words[@]:1}"); }
    name=${words[0]}
    for what in out err code; do
      case $what in
        out) mine=$(mask_out < "$work/$label-ours/$name.out" | $sort) theirs=$(mask_out < "$work/$label-kafkas/$name.out" | $sort) ;;
        err) mine=$(mask_err < "$work/$label-ours/$name.err") theirs=$(mask_err < "$work/$label-kafkas/$name.err") ;;
        code) mine=$(cat "$work/$label-ours/$name.code") theirs=$(cat "$work/$label-kafkas/$name.code") ;;
      esac
      [ "$mine" = "$theirs" ] && continue
      failed=$((failed + 1))
      echo "FAIL $label/$name: $what differs: ${words[*]:1}"
      diff <(printf '%s\n' "$theirs") <(printf '%s\n' "$mine") | head -n 8 | cut -c1-300 | sed 's/^/     /' || true
      continue 2
    done
    passed=$((passed + 1))
    echo "PASS $label/$name"
  done
}

conform() {
  local label=$1
  run=s$RANDOM
  calls=()
  plan
  [ ${#calls[@]} -gt 0 ] || return 0
  run_kafkas "$work/$label-kafkas"
  run_ours "$work/$label-ours"
  compare_all "$label"
}
conform_files() {
  local label=$1-files
  calls=()
  plan_files "$2"
  run_kafkas "$work/$label-kafkas"
  run_ours "$work/$label-ours"
  compare_all "$label"
}

ringlog=${RINGLOG:-$root/target/$profile/ringlog}
[ -n "${RINGLOG:-}" ] || (cd "$root" && cargo build --profile "$([ "$profile" = debug ] && echo dev || echo "$profile")")
install_tools
[ "$cache/java/Calls.class" -nt "$here/java/Calls.java" ] || {
  mkdir -p "$cache/java"
  javac -nowarn -d "$cache/java" -cp "$("$here/kafka.sh" classpath)" "$here/java/Calls.java" 2> "$cache/java/javac.log" || { cat "$cache/java/javac.log" >&2; exit 1; }
}
if [ -n "$given" ]; then
  bootstrap=$given
  conform broker
  summary
  exit
fi
[ "$against" = both ] && against='kafka ringlog'
for name in $against; do
  RINGLOG=$ringlog start_broker "$name" "$work/$name" || continue
  conform "$name"
  stop_broker || failed=$((failed + 1))
  if wanted dump; then conform_files "$name" "$work/$name/data"; fi
done
summary
