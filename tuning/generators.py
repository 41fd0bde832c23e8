#!/usr/bin/env python3
"""Do three load generators measure the same of one broker, and what does each cost? In turns, at equal settings; medians of rounds.

  generators.py HOST:PORT [--rounds N]        N: 5

ringlog in $RINGLOG (default target/release/ringlog), Kafka's tools by $KAFKA_RUN (called with a class and its arguments), librdkafka's
rdkafka_performance in $RDKAFKA_PERFORMANCE. 1 KiB records, 16 partitions, acks=all, batch 64 KiB, linger 5 ms, no codec, no idempotence: as
fast as they can for the rate and the generator's own CPU (user and system time of its process), then at 20,000 records a second for
the latency."""
import json, os, random, re, resource, statistics, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RINGLOG = os.environ.get("RINGLOG", os.path.join(ROOT, "target/release/ringlog"))
JAVA, RD = os.environ["KAFKA_RUN"].split(), os.environ["RDKAFKA_PERFORMANCE"]
SIZE, FAST, PACED, SECONDS = 1024, 1_500_000, 20_000, 8
SETTINGS = ["acks=all", "batch.size=65536", "linger.ms=5", "enable.idempotence=false"]


def ringlog(boot, topic, paced):
    out = tempfile.mktemp(suffix=".json")
    load = ["--rate", str(PACED), "-n", str(PACED * SECONDS)] if paced else ["-n", str(FAST)]
    command = [RINGLOG, "bench", "produce", "-q", "-b", boot, "-t", topic, "--size", str(SIZE), *load, "--no-ceilings", "--verify", "off", "--warmup", "0s",
               "--no-steady", "--batch-size", "65536", "--linger", "5ms", "--acks", "all", "--idempotence", "false", "--out", out]
    text = subprocess.run(command, capture_output=True, text=True)
    if not os.path.exists(out): sys.exit(text.stderr)
    results = json.load(open(out))["results"]
    os.remove(out)
    return results["records_per_second"], results["response_us"]["p50"] / 1e3, results["response_us"]["p99"] / 1e3


def java(boot, topic, paced):
    command = [*JAVA, "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", boot, "--topic", topic, "--record-size", str(SIZE), "--num-records",
               str(PACED * SECONDS if paced else FAST), "--throughput", str(PACED if paced else -1), "--command-property", *SETTINGS]
    last = subprocess.run(command, capture_output=True, text=True).stdout.strip().splitlines()[-1]
    rate, p50, p99 = (re.search(pattern, last).group(1) for pattern in (r"([\d.]+) records/sec", r"(\d+) ms 50th", r"(\d+) ms 99th"))
    return float(rate), float(p50), float(p99)


def librdkafka(boot, topic, paced):
    command = [RD, "-P", "-b", boot, "-t", topic, "-s", str(SIZE), "-c", str(PACED * SECONDS if paced else FAST), "-q"]
    if paced: command += ["-r", str(PACED)]
    for setting in SETTINGS: command += ["-X", setting]
    text = subprocess.run(command, capture_output=True, text=True)
    rate = re.findall(r": (\d+) msgs/s", text.stdout + text.stderr)
    if not rate: sys.exit(text.stdout[-2000:] + text.stderr[-2000:])
    return float(rate[-1]), None, None


def main(boot, *options):
    rounds = int(options[1]) if options[:1] == ("--rounds",) else 5
    found = {}
    for number in range(rounds + 1):
        jobs = [(tool, paced) for tool in (ringlog, java, librdkafka) for paced in (False, True)]
        for tool, paced in random.sample(jobs, len(jobs)):
            topic = f"generators-{os.getpid()}-{number}-{tool.__name__}-{paced}"
            subprocess.run([RINGLOG, "topics", "create", topic, "-b", boot, "-p", "16"], check=True, stdout=subprocess.DEVNULL)
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
            rate, p50, p99 = tool(boot, topic, paced)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([RINGLOG, "topics", "delete", topic, "-b", boot, "--yes"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            count = PACED * SECONDS if paced else FAST
            if number: found.setdefault((tool.__name__, paced), []).append((rate, cpu * 1e9 / (count * SIZE), p50, p99))     # CPU in ms a MB
    print("| generator | load | records/s | its CPU ms/MB | p50 ms | p99 ms |\n| --- | --- | --- | --- | --- | --- |")
    for (name, paced), runs in sorted(found.items(), key=lambda item: (item[0][1], item[0][0])):
        cells = []
        for column in zip(*runs):
            numbers = [number for number in column if number is not None]
            cells.append(f"{statistics.median(numbers):.4g} ({min(numbers):.4g}–{max(numbers):.4g})" if numbers else "not told")
        print(f"| {name} | {'20,000/s' if paced else 'all it can'} | " + " | ".join(cells) + " |")


main(*sys.argv[1:])
