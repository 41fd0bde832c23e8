#!/usr/bin/env bash
# kcat as Debian ships it, with a librdkafka of 2023: an old client of the kind that is on many machines.
#   kcat.sh BOOTSTRAP
set -euo pipefail
bootstrap=$1 topic=kcat-$$
command -v kcat > /dev/null || { echo "kcat is not installed"; exit 77; }
same() { [ "$1" = "$2" ] || { printf 'wanted: %s\ngot: %s\n' "$2" "$1"; exit 1; }; }

# A topic made by producing to it; keys, nulls, headers and timestamps as they went in.
printf 'k1:v1\n:v2\nk3:\n' | kcat -b "$bootstrap" -P -t "$topic" -K: -Z -p 0 -H a=1 -H b=2
same "$(kcat -b "$bootstrap" -C -t "$topic" -p 0 -e -q -f '%o %k %K %s %S %h\n')" $'0 k1 2 v1 2 a=1,b=2\n1  -1 v2 2 a=1,b=2\n2 k3 2  -1 a=1,b=2'
for codec in none gzip snappy lz4 zstd; do
  seq 1 500 | kcat -b "$bootstrap" -P -t "$topic-$codec" -z "$codec" -X enable.idempotence=true
  same "$(kcat -b "$bootstrap" -C -t "$topic-$codec" -e -q -c 500 | sort -n | md5sum)" "$(seq 1 500 | md5sum)"
done
# The text that scripts scrape.
kcat -b "$bootstrap" -L -t "$topic" | grep -qE "^  topic \"$topic\" with [0-9]+ partitions?:" || { echo "no topic line in -L"; exit 1; }
kcat -b "$bootstrap" -L -t "$topic" | grep -qE "^    partition 0, leader ([0-9]+), replicas: \1, isrs: \1" || { echo "no partition line in -L"; exit 1; }
# Offsets by time and from the end, and a group that goes on where it was.
same "$(kcat -b "$bootstrap" -Q -t "$topic:0:-1" | sed 's/.*offset //')" 3
same "$(kcat -b "$bootstrap" -Q -t "$topic:0:$((BASE_MS))" | sed 's/.*offset //')" 0
same "$(kcat -b "$bootstrap" -C -t "$topic" -p 0 -o -1 -e -q -f '%o')" 2
same "$(timeout 20 kcat -b "$bootstrap" -q -c 2 -X auto.offset.reset=earliest -f '%o ' -G "$topic-g" "$topic")" '0 1 '
same "$(timeout 20 kcat -b "$bootstrap" -q -c 1 -X auto.offset.reset=earliest -f '%o ' -G "$topic-g" "$topic")" '2 '
