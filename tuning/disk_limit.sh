#!/usr/bin/env bash
# When the disk is the limit, how much of it does the log get? Two cores with the load on them are slower than many a disk, so this one is
# slowed down: a control group with BYTES_PER_SECOND (default 200000000) of writes holds dd, then the broker, then dd again, SECONDS_EACH
# (default 60) each. DIR is where. Needs root.
. "$(dirname "${BASH_SOURCE[0]}")/broker.sh"
limit=${BYTES_PER_SECOND:-200000000} seconds=${SECONDS_EACH:-60}
device=$(stat -c '%Hd:%Ld' "$dir")
[ ! -e "/sys/dev/block/$device/partition" ] || device=$(cat "/sys/dev/block/$device/../dev")   # only whole disks are slowed down

groups=/sys/fs/cgroup
if [ -e "$groups/cgroup.controllers" ]; then
  group=$groups/ringlog-disk-limit
  echo +io > "$groups/cgroup.subtree_control"
  mkdir -p "$group"
  echo "$device wbps=$limit" > "$group/io.max"
else
  group=$groups/blkio/ringlog-disk-limit
  mkdir -p "$group"
  echo "$device $limit" > "$group/blkio.throttle.write_bps_device"
fi
leave() { [ -z "$broker" ] || crash; rm -f "$dir/raw"; rmdir "$group"; [ -n "${DIR:-}" ] || rm -rf "$dir"; }
trap leave EXIT

# raw   MB a second (10^6 bytes) of direct sequential writes of 1 MiB, one at a time.
raw() {
  fallocate -l $((limit * seconds)) "$dir/raw"
  (echo $BASHPID > "$group/cgroup.procs" && exec dd if=/dev/zero of="$dir/raw" bs=1M count=$((limit * seconds / 1048576)) oflag=direct conv=notrunc 2>&1) |
    awk '/copied/ { print $1 / $(NF - 3) / 1e6 }'
  rm "$dir/raw"
}

before=$(raw)
launch
echo "$broker" > "$group/cgroup.procs"
address=$(ready)
"$ringlog" bench produce -b "$address" --size 1KiB --batch-size 1MiB --partitions 4 --producers 2 --duration "${seconds}s" --warmup 5s \
  --topic-config "retention.bytes=$((limit * 4))" --quiet -o json > "$dir/run.json" || true
crash
after=$(raw)
python3 - "$dir/run.json" "$before" "$after" <<'PYTHON'
import json, sys
run, before, after = json.load(open(sys.argv[1])), float(sys.argv[2]), float(sys.argv[3])
got = run["results"]["bytes_per_second"] / 1e6
print(f"raw {before:.1f} and {after:.1f} MB/s, records {got:.1f} MB/s, {got / ((before + after) / 2):.3f} of it")
PYTHON
