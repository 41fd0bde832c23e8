"""What every Python client here does and expects: the records of the plan, the story of a group, the command line.

The plan is the same in every language (README.md beside this folder says it once); a client file only says how its
client spells it.
"""

import os
import sys
import threading
import time
from collections import Counter, namedtuple

PARTITIONS = 3
RECORDS = 90
BASE_MS = int(os.environ.get("BASE_MS", time.time() * 1000))  # close to now, so that no retention takes the records

Record = namedtuple("Record", "partition key value headers timestamp")


def record(i):
    """Record number `i` of a `write`: null, empty and plain keys and values, repeated headers, own timestamp."""
    key = [None, b""][i % 5] if i % 5 < 2 else b"key-%d" % i
    value = None if i % 5 == 2 else b"" if i % 7 == 1 else b"value-%d;" % i * 20 + b"\x00\xff"
    headers = [] if i % 4 == 0 else [("a", b"%d" % i), ("a", b"again"), ("bin", b"\x00\xff")]
    return Record(i % PARTITIONS, key, value, headers, BASE_MS + i * 10)


def records():
    return [record(i) for i in range(RECORDS)]


def verify(topic, partition, got):
    """`got`: (offset, Record) pairs of one partition, in the order read."""
    want = list(enumerate(r for r in records() if r.partition == partition))
    for w, g in zip(want, got):
        assert w == g, f"{topic}-{partition}: wanted {w}, read {g}"
    assert len(want) == len(got), f"{topic}-{partition}: wanted {len(want)} records, read {len(got)}"


def equal(got, want, what):
    assert got == want, f"{what}: wanted {want!r}, got {got!r}"


def until(what, condition, seconds=60):
    """Waits for `condition`; the bound is for a broker that never gets there."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


class Member(threading.Thread):
    """One member of a group. A subclass's `work` polls until `self.leaving`, keeps `self.owned` (partition numbers)
    up to date, commits what it polled and only then counts it in `self.seen`."""

    def __init__(self, bootstrap, topic, group, seen):
        super().__init__(daemon=True)
        self.bootstrap, self.topic, self.group, self.seen = bootstrap, topic, group, seen
        self.owned, self.leaving, self.error = frozenset(), False, None
        self.start()

    def run(self):
        try:
            self.work()
        except BaseException as error:  # handed to the main thread, which looks at it in every wait
            self.error = error

    def leave(self):
        self.leaving = True
        self.join(30)
        assert not self.is_alive(), "a member did not leave within 30 s"
        if self.error:
            raise self.error


def group_story(member, produce, partitions=6):
    """Two members, a third, then one alone, then a newcomer: every partition is owned by exactly one of them and each
    record is seen once. `member(seen)` starts a Member, `produce(first, last)` writes b"first" … spread over all."""
    seen, total = Counter(), 0

    def settle(members):
        held = 0

        def settled():
            nonlocal held
            for m in members:
                if m.error:
                    raise m.error
            owned = sorted(p for m in members for p in m.owned)
            held = held + 1 if owned == list(range(partitions)) and all(m.owned for m in members) else 0
            return held == 5  # held for a fifth of a second, not seen in passing

        until(f"{len(members)} members own {partitions} partitions", settled)

    def consume(members):
        nonlocal total
        produce(total, total + 60)
        total += 60
        until(f"{total} records seen", lambda: len(seen) == total or any(m.error for m in members))
        for m in members:
            if m.error:
                raise m.error

    a, b = member(seen), member(seen)
    settle([a, b])
    consume([a, b])
    c = member(seen)
    settle([a, b, c])
    consume([a, b, c])
    a.leave()
    b.leave()
    settle([c])
    consume([c])
    c.leave()
    produce(total, total + 6)
    total += 6
    d = member(seen)
    until("the newcomer goes on from the committed offsets", lambda: len(seen) == total)
    d.leave()
    again = {k: n for k, n in seen.items() if n != 1}
    assert not again, f"seen more than once: {again}"
    equal(set(seen), {b"%d" % i for i in range(total)}, "records seen")


def tally(rows, count, mode):
    """`rows`: (partition, value) in the order read. All of 0..count must be there; `once`: and nothing twice or out of
    order; `again`: repeats are counted, not refused."""
    seen, last, repeats, disorder = set(), {}, 0, 0
    for partition, value in rows:
        i = int(value)
        repeats += i in seen
        disorder += i <= last.get(partition, -1)
        last[partition] = i
        seen.add(i)
    missing = count - len(seen & set(range(count)))
    print(f"read {len(seen)} of {count}: {missing} missing, {repeats} repeated, {disorder} out of order")
    assert missing == 0 and (mode == "again" or repeats == disorder == 0)


def main(**scenarios):
    """SCENARIO BOOTSTRAP TOPIC [ARG …]"""
    scenario, *arguments = sys.argv[1:]
    scenarios[scenario.replace("-", "_")](*arguments)
