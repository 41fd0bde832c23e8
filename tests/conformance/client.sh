#!/usr/bin/env bash
# Runs one client once: client.sh NAME SCENARIO BOOTSTRAP TOPIC [ARG …]. README.md has the names and scenarios; run.sh brings
# what they need. By hand: client.sh kafkajs write 127.0.0.1:9092 mine zstd; client.sh sarama read 127.0.0.1:9092 mine
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${RINGLOG_CACHE:-$HOME/.cache/ringlog}
export NODE_PATH=$cache/node/node_modules
client=$1
shift
case $client in
  java)
    exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
      -cp "$cache/java:$cache/kafka/libs/*" Client "$@"
    ;;
  confluent-kafka) exec "$cache/python/bin/python" -B "$here/python/confluent.py" "$@" ;;
  kafka-python) exec "$cache/python/bin/python" -B "$here/python/kafka_python.py" "$@" ;;
  aiokafka) exec "$cache/python/bin/python" -B "$here/python/aio.py" "$@" ;;
  kafkajs) exec node --no-warnings "$here/node/kafkajs.js" "$@" ;;
  franz-go | sarama | kafka-go) exec "$cache/go/$client" "$@" ;;
  *) echo "no client $client" >&2; exit 2 ;;
esac
