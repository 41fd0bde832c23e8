#!/usr/bin/env bash
# Apache Kafka from its published jars: the broker that every script here is proved against first, and its tools.
#   kafka.sh install               brings the jars into $RINGLOG_CACHE (default ~/.cache/ringlog) with Maven
#   kafka.sh start DIR [K=V …]     formats DIR if it is new, starts one combined node on free loopback ports (on the
#                                  same ones the next time), prints {"kafka":"127.0.0.1:PORT","pid":N} once it listens
#   kafka.sh stop DIR              ends that node and waits for its end
#   kafka.sh run CLASS [ARG …]     runs a class of Kafka's own, such as org.apache.kafka.tools.TopicCommand
#   kafka.sh classpath             prints the class path
# REFERENCE_HEAP is the broker's heap (default 512m).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${RINGLOG_CACHE:-$HOME/.cache/ringlog}/kafka
logging=(-Dorg.slf4j.simpleLogger.defaultLogLevel="${TOOL_LOG_LEVEL:-warn}" -Dorg.slf4j.simpleLogger.showDateTime=true)

install() {
  cmp -s "$here/kafka/pom.xml" "$home/pom.xml" && return
  rm -rf "$home"
  mkdir -p "$home"
  mvn -q -B -f "$here/kafka/pom.xml" dependency:copy-dependencies -DoutputDirectory="$home/libs" -DincludeScope=runtime >&2
  cp "$here/kafka/pom.xml" "$home/pom.xml"   # last: it marks a complete download
}

# A tool lives for a second or two, so it is started for that: one compiler tier, the plain collector.
run() {
  install
  exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "${logging[@]}" -cp "$home/libs/*" "$@"
}

settings() {
  local dir=$1 port=$2 controller=$(($2 + 1))
  shift 2
  cat <<P
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$dir/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
P
  printf '%s\n' "$@"
}

# Kafka wants its ports beforehand. They are drawn below the range that outgoing connections use; a port that someone
# else holds makes the broker stop, and then another is drawn.
start() {
  install
  local dir=$1 heap=${REFERENCE_HEAP:-512m} port pid
  shift
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd)
  for _ in 1 2 3 4 5; do
    port=$(cat "$dir/port" 2>/dev/null || echo $((20000 + RANDOM % 12000)))
    settings "$dir" "$port" "$@" > "$dir/server.properties"
    [ -e "$dir/data/meta.properties" ] || (run kafka.tools.StorageTool format --standalone \
      -t "$(head -c 16 /dev/urandom | base64 | tr '+/' 'AB' | cut -c1-22)" -c "$dir/server.properties" >&2)
    setsid java -server -Xms"$heap" -Xmx"$heap" -XX:+UseG1GC "${logging[@]}" -cp "$home/libs/*" \
      kafka.Kafka "$dir/server.properties" > "$dir/broker.out" 2>&1 < /dev/null &
    pid=$!
    echo "$pid" > "$dir/pid"
    for _ in $(seq 1 600); do
      kill -0 "$pid" 2>/dev/null || break
      if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        echo "$port" > "$dir/port"
        printf '{"kafka":"127.0.0.1:%s","pid":%s}\n' "$port" "$pid"
        return
      fi
      sleep 0.1
    done
    grep -q 'Address already in use' "$dir/broker.out" || break
    rm -rf "$dir/port" "$dir/data"
  done
  tail -n 30 "$dir/broker.out" >&2
  return 1
}

stop() {
  local pid
  pid=$(cat "$1/pid" 2>/dev/null) || return 0
  kill "$pid" 2>/dev/null || return 0
  for _ in $(seq 1 300); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
  kill -9 "$pid"
}

classpath() { install; echo "$home/libs/*"; }

case ${1:-} in
  install | start | stop | run | classpath) "$@" ;;
  *) sed -n '2,9p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
