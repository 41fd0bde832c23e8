#!/usr/bin/env python3
"""Do three load generators measure the same of one broker, and what does each cost? In turns, at equal settings; medians of rounds.

  generators.py HOST:PORT [--rounds N]        N: 5

ringlog in $RINGLOG (default target/release/ringlog), Kafka's tools by $KAFKA_RUN (called with a class and its arguments), librdkafka's
rdkafka_performance in $RDKAFKA_PERFORMANCE. 1 KiB records, 16 partitions, acks=all, no codec, no idempotence, in three loads: as fast as they can
for the rate and the generator's own CPU (user and system time of its process), 20,000 records a second for the latency of a busy producer, and 1,000
a second that wait for a linger of 100 ms, where what a tool adds of its own is small beside what it should see."""
import json, os, random, re, resource, statistics, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RINGLOG = os.environ.get("RINGLOG", os.path.join(ROOT, "target/release/ringlog"))
JAVA, RD = os.environ["KAFKA_RUN"].split(), os.environ["RDKAFKA_PERFORMANCE"]
SIZE = 1024
LOADS = {  # name: records, records a second, batch.size, linger.ms
    "all it can": (1_500_000, None, 65_536, 5),
    "20,000 a second": (160_000, 20_000, 65_536, 5),
    "1,000 a second": (20_000, 1_000, 1_048_576, 100),
}


def settings(batch, linger):
    return ["acks=all", f"batch.size={batch}", f"linger.ms={linger}", "enable.idempotence=false"]


def ringlog(boot, topic, records, rate, batch, linger):
    out = tempfile.mktemp(suffix=".json")
    command = [RINGLOG, "bench", "produce", "-q", "-b", boot, "-t", topic, "--size", str(SIZE), "-n", str(records), "--no-ceilings", "--verify", "off",
               "--warmup", "0s", "--no-steady", "--batch-size", str(batch), "--linger", f"{linger}ms", "--acks", "all", "--idempotence", "false", "--out", out]
    text = subprocess.run(command + (["--rate", str(rate)] if rate else []), capture_output=True, text=True)
    if not os.path.exists(out): sys.exit(text.stderr)
    results = json.load(open(out))["results"]
    os.remove(out)
    return results["records_per_second"], *(results["response_us"][which] / 1e3 for which in ("mean", "p50", "p99"))


def java(boot, topic, records, rate, batch, linger):
    command = [*JAVA, "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", boot, "--topic", topic, "--record-size", str(SIZE), "--num-records",
               str(records), "--throughput", str(rate or -1), "--command-property", *settings(batch, linger)]
    last = subprocess.run(command, capture_output=True, text=True).stdout.strip().splitlines()[-1]
    patterns = (r"([\d.]+) records/sec", r"([\d.]+) ms avg", r"(\d+) ms 50th", r"(\d+) ms 99th")
    return tuple(float(re.search(pattern, last).group(1)) for pattern in patterns)


def librdkafka(boot, topic, records, rate, batch, linger):
    command = [RD, "-P", "-b", boot, "-t", topic, "-s", str(SIZE), "-c", str(records), "-q"] + (["-r", str(rate)] if rate else [])
    for setting in settings(batch, linger): command += ["-X", setting]
    text = subprocess.run(command, capture_output=True, text=True)
    rate = re.findall(r": (\d+) msgs/s", text.stdout + text.stderr)
    if not rate: sys.exit(text.stdout[-2000:] + text.stderr[-2000:])
    return float(rate[-1]), None, None, None


def main(boot, *options):
    rounds = int(options[1]) if options[:1] == ("--rounds",) else 5
    found = {}
    for number in range(rounds + 1):
        jobs = [(tool, load) for tool in (ringlog, java, librdkafka) for load in LOADS]
        for tool, load in random.sample(jobs, len(jobs)):
            topic = f"generators-{os.getpid()}-{number}-{tool.__name__}-{list(LOADS).index(load)}"
            subprocess.run([RINGLOG, "topics", "create", topic, "-b", boot, "-p", "16"], check=True, stdout=subprocess.DEVNULL)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            rate, *latency = tool(boot, topic, *LOADS[load])
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([RINGLOG, "topics", "delete", topic, "-b", boot, "--yes"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            ms_per_mb = cpu * 1e9 / (LOADS[load][0] * SIZE)
            if number: found.setdefault((load, tool.__name__), []).append((rate, ms_per_mb, *latency))
    print("| generator | load | records/s | its CPU ms/MB | mean ms | p50 ms | p99 ms |\n| --- | --- | --- | --- | --- | --- | --- |")
    for (load, name), runs in sorted(found.items(), key=lambda item: (list(LOADS).index(item[0][0]), item[0][1])):
        cells = []
        for column in zip(*runs):
            numbers = [number for number in column if number is not None]
            cells.append(f"{statistics.median(numbers):.4g} ({min(numbers):.4g}–{max(numbers):.4g})" if numbers else "not told")
        print(f"| {name} | {load} | " + " | ".join(cells) + " |")


main(*sys.argv[1:])
