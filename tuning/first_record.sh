#!/usr/bin/env bash
# How long from the start of the process to the first acknowledged record, on an empty directory with default settings (but
# for free ports), and how much memory does it take? RUNS (default 5) times. Targets: 1 s, 50 MB.
. "$(dirname "${BASH_SOURCE[0]}")/broker.sh"
for run in $(seq 1 "${RUNS:-5}"); do
  rm -rf "$dir/data"
  mkdir -p "$dir"
  launch
  printf 'run %s: %s, ' "$run" "$(python3 "$here/wire.py" first "$dir/ready" "$started_ns")"
  memory
  crash
done
