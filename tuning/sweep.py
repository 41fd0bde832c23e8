#!/usr/bin/env python3
"""One knob at a time: the same load with each value of it, in turns, on a broker started for it. Prints a Markdown table of medians.

  sweep.py bench FLAG VALUE … -- [flags of `ringlog bench produce`]      a knob of the client or the topic, one broker for all
  sweep.py broker KEY VALUE … -- [flags of `ringlog bench produce`]      a setting of the broker, a broker for each value
  sweep.py host FILE VALUE … -- [flags of `ringlog bench produce`]       what stands in a file of /sys or /proc/sys (as root), put back at the end

  sweep.py bench --compression none lz4 zstd -- --payload json --rate 20k
  sweep.py broker engine.shards 1 2 -- --batch-size 64KiB
Options before the first word: --rounds N (5), --seconds S (3), --set KEY=VALUE (a setting of every broker, may be given again),
--at HOST:PORT,PID (for `bench` and `host`: a broker that runs, perhaps Kafka, instead of one started here).
Needs: ringlog in $RINGLOG (default target/release/ringlog). Data in a folder of its own under target/, removed afterwards."""
import json, os, random, re, shutil, statistics, subprocess, sys, tempfile, time

TARGET = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "target")
RINGLOG = os.environ.get("RINGLOG", os.path.join(TARGET, "release/ringlog"))


class Broker:
    def __init__(self, home, settings):
        self.dir = tempfile.mkdtemp(dir=home)
        ready = os.path.join(self.dir, "ready")
        settings = ["listeners=PLAINTEXT://127.0.0.1:0", "admin.listener=127.0.0.1:0", f"log.dirs={self.dir}/data", *settings]
        overrides = [word for setting in settings for word in ("--override", setting)]
        self.process = subprocess.Popen([RINGLOG, "serve", "--ready-file", ready, *overrides], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (os.path.exists(ready) and os.path.getsize(ready)):
            if self.process.poll() is not None:
                sys.exit(f"the broker ended at its start: {' '.join(settings)}")
            time.sleep(0.02)
        found = json.load(open(ready))
        self.kafka, self.admin, self.pid = found["kafka"], found["admin"], found["pid"]

    def stop(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


class Running:
    """Somebody else's broker."""

    def __init__(self, home, at):
        self.dir, self.admin = tempfile.mkdtemp(dir=home), None
        self.kafka, self.pid = at.split(",")

    def stop(self):
        pass


def measure(broker, seconds, flags):
    out = os.path.join(broker.dir, "run.json")
    admin = ["--admin", broker.admin] if broker.admin else []
    command = [RINGLOG, "bench", "produce", "-q", "-b", broker.kafka, *admin, "--pid", str(broker.pid), "--no-ceilings",
               "--verify", "off", "--warmup", "1s", "--no-steady", "-d", f"{seconds}s", "--out", out, *flags]
    ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if not os.path.exists(out):
        sys.exit(f"{' '.join(command)}\n{ended.stderr}")
    run = json.load(open(out))
    os.remove(out)
    results, cost, latency = run["results"], run["broker"], run["results"]["response_us"]
    return {"records/s": results["records_per_second"], "MB/s": results["bytes_per_second"] / 1e6,
            "CPU ms/MB": cost.get("cpu_ms_per_mb"), "CPU µs/request": cost.get("cpu_us_per_request"),
            "p50 ms": latency["p50"] / 1e3, "p99 ms": latency["p99"] / 1e3, "written/payload": cost.get("write_amplification"),
            "RSS MB": (cost.get("rss_bytes") or 0) / 1e6, "client-bound": 1.0 if run["verdict"]["client_bound"] else 0.0}


def write(path, value):
    with open(path, "w") as file: file.write(value)


def shown(value):
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main(words):
    rounds, seconds, fixed, at = 5, 3, [], None
    while words and words[0].startswith("--"):
        name, value, *words = words
        if name == "--rounds": rounds = int(value)
        elif name == "--seconds": seconds = int(value)
        elif name == "--set": fixed.append(value)
        elif name == "--at": at = value
        else: sys.exit(__doc__)
    if len(words) < 3 or words[0] not in ("bench", "broker", "host") or (at and words[0] == "broker"): sys.exit(__doc__)
    split = words.index("--") if "--" in words else len(words)
    kind, knob, values, flags = words[0], words[1], words[2:split], words[split + 1:]
    home = tempfile.mkdtemp(dir=TARGET, prefix="measure.")
    brokers, before = {}, None
    try:
        # The scheduler's file names all, and the one in use in brackets.
        if kind == "host": before = re.sub(r".*\[(.+)\].*", r"\1", open(knob).read().strip())
        if kind != "broker": brokers = dict.fromkeys(values, Running(home, at) if at else Broker(home, fixed))
        else: brokers = {value: Broker(home, [*fixed, f"{knob}={value}"]) for value in values}
        found = {value: [] for value in values}
        for number in range(rounds + 1):
            for value in random.sample(values, len(values)):
                if kind == "host": write(knob, value)
                measured = measure(brokers[value], seconds, [*flags, *([knob, value] if kind == "bench" else [])])
                if number: found[value].append(measured)       # the first round warms up
    finally:
        if before is not None: write(knob, before)
        for broker in set(brokers.values()): broker.stop()
        shutil.rmtree(home, ignore_errors=True)
    columns = list(next(iter(found.values()))[0])
    print(f"| {knob} | " + " | ".join(columns) + " |\n|" + " --- |" * (len(columns) + 1))
    for value, runs in found.items():
        cells = []
        for column in columns:
            numbers = [run[column] for run in runs if run[column] is not None]
            spread = f" ({shown(min(numbers))}–{shown(max(numbers))})" if column in ("CPU ms/MB", "p99 ms") and numbers else ""
            cells.append((shown(statistics.median(numbers)) if numbers else "–") + spread)
        print(f"| {value} | " + " | ".join(cells) + " |")


main(sys.argv[1:])
