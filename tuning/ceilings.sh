#!/usr/bin/env bash
# What this disk gives to the plainest program there is: the ceilings that a broker's figures are read against. Run in the same
# minute as the broker: disks that are shared change. Sequential direct writes by size, and small writes each followed by a
# sync of the data. MB (default 512) is written for each size; DIR is where. With fio also several writers at once.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$root/target"
megabytes=${MB:-512} folder=$(mktemp -d "${DIR:-$root/target}/ceilings.XXXXXX")
trap 'rm -rf "$folder"' EXIT
file=$folder/data

# rate NAME DD_ARGUMENTS …   what dd says of itself: bytes a second.
rate() {
  local name=$1
  shift
  printf '%-44s %s\n' "$name" "$(dd if=/dev/zero of="$file" "$@" 2>&1 | tail -n 1 | sed 's/.*copied, //')"
}

df -h "$folder" | tail -n 1
fallocate -l "$((megabytes + 16))M" "$file"   # as the log preallocates
for kib in 4 64 128 256 1024; do
  rate "direct, sequential, $kib KiB, one in flight" bs="${kib}K" count=$((kib == 4 ? 4096 : megabytes * 1024 / kib)) oflag=direct conv=notrunc
done
rate 'direct 4 KiB + sync of data, 2000 times' bs=4K count=2000 oflag=direct,dsync conv=notrunc
rate 'page cache, 1 MiB, no sync' bs=1M count="$megabytes" conv=notrunc
rate 'page cache, 1 MiB, one sync at the end' bs=1M count="$megabytes" conv=notrunc,fdatasync

if command -v fio > /dev/null; then
  for jobs in 1 4 16; do
    printf '%-44s ' "fio: 4 KiB + fdatasync, $jobs files at once"
    fio --name=sync --directory="$folder" --rw=write --bs=4k --size=16M --numjobs="$jobs" --direct=1 --fdatasync=1 --runtime=5 --time_based \
      --group_reporting --output-format=json | python3 -c 'import json, sys; job = json.load(sys.stdin)["jobs"][0]
print("%.0f commits/s, sync p99 %.0f us" % (job["write"]["iops"], job["sync"]["lat_ns"]["percentile"]["99.000000"] / 1e3))'
  done
else
  echo 'no fio here: apt-get install fio shows several writers at once'
fi
