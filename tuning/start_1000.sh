#!/usr/bin/env bash
# A broker with PARTITIONS (default 1000) partitions, a record in each, is killed with -9 and started again: how long until it
# is ready, how much memory, how much of a core when idle (over 10 s)?
. "$(dirname "${BASH_SOURCE[0]}")/broker.sh"
partitions=${PARTITIONS:-1000}
launch "num.partitions=$partitions"
address=$(ready)
python3 "$here/wire.py" fill "$address" "thousand" "$partitions"
printf '%s partitions, filled: ' "$partitions"
memory
crash
launch "num.partitions=$partitions"
ready > /dev/null
echo "ready $((($(date +%s%N) - started_ns) / 1000000)) ms after the start that followed kill -9"
sleep 2   # what starting leaves to do is not idling
memory
before=$(cpu_ticks)
sleep 10
awk -v ticks=$(($(cpu_ticks) - before)) -v hertz="$(getconf CLK_TCK)" 'BEGIN { printf "idle: %.2f %% of a core over 10 s\n", ticks / hertz / 10 * 100 }'
grep -iE 'recover|opened|truncat' "$dir/broker.out" || true
