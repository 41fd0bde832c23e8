"""The least Kafka client that these measurements need: one connection, Metadata and Produce, batches of one record.

    wire.py first READY_FILE START_NS                    waits for the file, writes one record until it is acknowledged,
                                                         prints the milliseconds since START_NS
    wire.py fill HOST:PORT TOPIC PARTITIONS              creates TOPIC by asking for it and writes a record to each partition

No client library starts in time to measure this: importing one costs more than what is measured.
"""

import json
import os
import socket
import struct
import sys
import time

CASTAGNOLI = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CASTAGNOLI.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CASTAGNOLI[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def string(text):
    return struct.pack(">h", len(text)) + text.encode()


def batch(value):
    body = bytes([0, 0, 0, 1, len(value) << 1]) + value + b"\0"  # attributes, two deltas, no key, value, no headers
    record = bytes([len(body) << 1]) + body
    now = time.time_ns() // 1_000_000
    checked = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc32c(checked)) + checked


class Connection:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, key, version, body):
        frame = struct.pack(">hhi", key, version, 7) + string("wire") + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        return self.read(struct.unpack(">i", self.read(4))[0])[4:]

    def read(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the broker hung up"
            data += more
        return data

    def metadata(self, topic):
        """Creates the topic where it is not there yet; what the answer says does not matter, Produce will tell."""
        self.ask(3, 4, struct.pack(">i", 1) + string(topic) + b"\1")

    def produce(self, topic, partition):
        """The error code of one record written with acks=all."""
        records = batch(b"first")
        body = struct.pack(">hhii", -1, -1, 30000, 1) + string(topic) + struct.pack(">iii", 1, partition, len(records)) + records
        answer = self.ask(0, 7, body)
        return struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)[0]

    def produce_until_acknowledged(self, topic, partition):
        end = time.monotonic() + 30
        while (code := self.produce(topic, partition)) != 0:
            assert code in (3, 5, 6), f"Produce answered {code}"  # the topic is still on its way
            assert time.monotonic() < end, f"Produce still answers {code} after 30 s"
            time.sleep(0.001)


def first(ready_file, start_ns):
    while not (os.path.exists(ready_file) and os.path.getsize(ready_file)):
        time.sleep(0.001)
    ready_ns = time.time_ns()
    with open(ready_file) as file:
        connection = Connection(json.load(file)["kafka"])
    connection.metadata("first")
    connection.produce_until_acknowledged("first", 0)
    print(f"ready after {(ready_ns - int(start_ns)) / 1e6:.0f} ms, first acknowledged record after {(time.time_ns() - int(start_ns)) / 1e6:.0f} ms")


def fill(address, topic, partitions):
    connection = Connection(address)
    connection.metadata(topic)
    for partition in range(int(partitions)):
        connection.produce_until_acknowledged(topic, partition)


if __name__ == "__main__":
    {"first": first, "fill": fill}[sys.argv[1]](*sys.argv[2:])
