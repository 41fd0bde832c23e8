// Apache Kafka's own Java client: the plan. It is the same in every language (README.md beside this folder says it once).
// Runs as one file: java -cp 'KAFKA_LIBS/*' Client.java SCENARIO BOOTSTRAP TOPIC [ARG …]

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntFunction;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.*;

public class Client {
    static final int PARTITIONS = 3, RECORDS = 90, GROUP_PARTITIONS = 6;
    // Close to now, so that no retention takes the records.
    static final long BASE_MS = Long.parseLong(System.getenv().getOrDefault("BASE_MS", "" + System.currentTimeMillis()));
    static String bootstrap;

    interface Scenario { void run(String[] arguments) throws Exception; }

    public static void main(String[] arguments) throws Exception {
        Map<String, Scenario> scenarios = Map.of("write", Client::write, "read", Client::read, "group", Client::group,
            "offsets", Client::offsets, "admin", Client::admin, "idempotent", Client::idempotent,
            "million-write", Client::millionWrite, "million-read", Client::millionRead);
        bootstrap = arguments[1];
        scenarios.get(arguments[0]).run(Arrays.copyOfRange(arguments, 2, arguments.length));
        System.exit(0);
    }

    // What is written and expected

    /** Record number i of a write: null, empty and plain keys and values, repeated headers, own timestamp. */
    static ProducerRecord<byte[], byte[]> record(String topic, int i) {
        byte[] key = i % 5 == 0 ? null : bytes(i % 5 == 1 ? "" : "key-" + i);
        byte[] text = (("value-" + i + ";").repeat(20) + "\0\u00ff").getBytes(StandardCharsets.ISO_8859_1);
        byte[] value = i % 5 == 2 ? null : i % 7 == 1 ? new byte[0] : text;
        Headers headers = new RecordHeaders();
        if (i % 4 != 0) headers.add("a", bytes("" + i)).add("a", bytes("again")).add("bin", new byte[] {0, (byte) 0xff});
        return new ProducerRecord<>(topic, i % PARTITIONS, BASE_MS + i * 10L, key, value, headers);
    }

    static byte[] bytes(String text) { return text.getBytes(StandardCharsets.UTF_8); }

    static String show(long offset, long timestamp, byte[] key, byte[] value, Headers headers) {
        return offset + " " + timestamp + " " + Arrays.toString(key) + " " + Arrays.toString(value) + " " + headers;
    }

    static void verify(String topic, int partition, List<ConsumerRecord<byte[], byte[]>> got) {
        List<ProducerRecord<byte[], byte[]>> want = IntStream.range(0, RECORDS).filter(i -> i % PARTITIONS == partition).mapToObj(i -> record(topic, i)).toList();
        for (int i = 0; i < Math.min(want.size(), got.size()); i++) {
            ProducerRecord<byte[], byte[]> w = want.get(i);
            ConsumerRecord<byte[], byte[]> g = got.get(i);
            equal(show(g.offset(), g.timestamp(), g.key(), g.value(), g.headers()), show(i, w.timestamp(), w.key(), w.value(), w.headers()), topic + "-" + partition);
        }
        equal(got.size(), want.size(), "records in " + topic + "-" + partition);
    }

    static void equal(Object got, Object want, String what) {
        if (!got.equals(want)) throw new AssertionError(what + ": wanted " + want + ", got " + got);
    }

    /** Waits for the condition; the bound is for a broker that never gets there. */
    static void until(String what, Callable<Boolean> condition) throws Exception {
        for (long end = System.currentTimeMillis() + 60_000; !condition.call(); Thread.sleep(50))
            if (System.currentTimeMillis() > end) throw new AssertionError("not within 60 s: " + what);
    }

    static void progress(int done, int count) {
        if (done % Math.max(1, count / 100) == 0) System.out.println("progress " + done);
    }

    // Clients, each with the defaults that its users have, but for what is said

    static Admin admin() { return Admin.create(Map.of("bootstrap.servers", bootstrap)); }

    static KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String group) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "heartbeat.interval.ms", 500, "session.timeout.ms", 10000));
        if (group != null) config.put("group.id", group);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void create(String topic, int partitions, Map<String, String> config) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(config))).all().get();
        } catch (ExecutionException e) {
            throw (Exception) e.getCause();
        }
    }

    /** Sends all and waits for all acknowledgements. */
    static void send(Map<String, Object> config, int count, IntFunction<ProducerRecord<byte[], byte[]>> record) {
        AtomicInteger acked = new AtomicInteger();
        ConcurrentLinkedQueue<Exception> errors = new ConcurrentLinkedQueue<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(config)) {
            for (int i = 0; i < count; i++)
                producer.send(record.apply(i), (metadata, error) -> {
                    if (error != null) errors.add(error);
                    else progress(acked.incrementAndGet(), count);
                });
        }
        if (!errors.isEmpty()) throw new AssertionError(errors.size() + " not acknowledged", errors.peek());
        equal(acked.get(), count, "acknowledged");
    }

    /** Every record of the topic up to the end offsets. */
    static void consume(String topic, java.util.function.Consumer<ConsumerRecord<byte[], byte[]>> each) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null)) {
            List<TopicPartition> all = consumer.partitionsFor(topic).stream().map(p -> new TopicPartition(topic, p.partition())).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long left = consumer.endOffsets(all).values().stream().mapToLong(x -> x).sum();
            while (left > 0)
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    each.accept(r);
                    left--;
                }
        }
    }

    // Scenarios

    static void write(String[] arguments) throws Exception {
        create(arguments[0], PARTITIONS, Map.of());
        send(Map.of("compression.type", arguments[1], "linger.ms", 50), RECORDS, i -> record(arguments[0], i));
    }

    static void read(String[] topics) {
        for (String topic : topics) {
            Map<Integer, List<ConsumerRecord<byte[], byte[]>>> got = new TreeMap<>();
            consume(topic, r -> got.computeIfAbsent(r.partition(), p -> new ArrayList<>()).add(r));
            for (int p = 0; p < PARTITIONS; p++) verify(topic, p, got.getOrDefault(p, List.of()));
        }
    }

    /** A member polls, commits, and only then counts in `seen`. */
    static class Member extends Thread {
        final String topic;
        final ConcurrentHashMap<String, Integer> seen;
        volatile Set<Integer> owned = Set.of();
        volatile boolean leaving;
        volatile Throwable error;

        Member(String topic, ConcurrentHashMap<String, Integer> seen) {
            this.topic = topic;
            this.seen = seen;
            setUncaughtExceptionHandler((thread, e) -> error = e);
            start();
        }

        @Override public void run() {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(topic)) {
                consumer.subscribe(List.of(topic));
                while (!leaving) {
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                    if (!records.isEmpty()) consumer.commitSync();
                    for (ConsumerRecord<byte[], byte[]> r : records) seen.merge(new String(r.value()), 1, Integer::sum);
                    owned = consumer.assignment().stream().map(TopicPartition::partition).collect(Collectors.toSet());
                }
            }
        }

        void leave() throws Exception {
            leaving = true;
            join();
            check();
        }

        void check() {
            if (error != null) throw new AssertionError("a member failed", error);
        }
    }

    /** Every partition is owned by exactly one member, and that holds for a fifth of a second. */
    static void settle(Member... members) throws Exception {
        int[] held = {0};
        until(members.length + " members own all partitions", () -> {
            List<Integer> all = new ArrayList<>();
            boolean idle = false;
            for (Member m : members) {
                m.check();
                all.addAll(m.owned);
                idle |= m.owned.isEmpty();
            }
            Collections.sort(all);
            held[0] = !idle && all.equals(List.of(0, 1, 2, 3, 4, 5)) ? held[0] + 1 : 0;
            return held[0] == 5;
        });
    }

    /** Two members, a third, then one alone, then a newcomer: each record is seen once. */
    static void group(String[] arguments) throws Exception {
        String topic = arguments[0];
        create(topic, GROUP_PARTITIONS, Map.of());
        ConcurrentHashMap<String, Integer> seen = new ConcurrentHashMap<>();
        int[] total = {0};
        Scenario consume = count -> {
            int first = total[0], more = Integer.parseInt(count[0]);
            send(Map.of(), more, i -> new ProducerRecord<>(topic, (first + i) % GROUP_PARTITIONS, null, bytes("" + (first + i))));
            total[0] += more;
            until(total[0] + " records seen", () -> seen.size() == total[0]);
        };
        String[] sixty = {"60"};
        Member a = new Member(topic, seen), b = new Member(topic, seen);
        settle(a, b);
        consume.run(sixty);
        Member c = new Member(topic, seen);
        settle(a, b, c);
        consume.run(sixty);
        a.leave();
        b.leave();
        settle(c);
        consume.run(sixty);
        c.leave();
        Member d = new Member(topic, seen); // goes on from the committed offsets
        consume.run(new String[] {"6"});
        d.leave();
        for (int i = 0; i < total[0]; i++) equal(seen.get("" + i), 1, "times that record " + i + " was seen");
        try (Admin admin = admin()) {
            var committed = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
            equal(committed.values().stream().map(OffsetAndMetadata::offset).toList(), Collections.nCopies(GROUP_PARTITIONS, 31L), "committed offsets");
        }
    }

    static void offsets(String[] arguments) throws Exception {
        String topic = arguments[0];
        TopicPartition tp = new TopicPartition(topic, 0);
        create(topic, 1, Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (int i = 0; i < 10; i++) // one batch each
                equal(producer.send(new ProducerRecord<>(topic, 0, BASE_MS + i * 1000L, null, bytes("" + i))).get().offset(), (long) i, "offset sent");
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null); Admin admin = admin()) {
            for (long[] pair : new long[][] {{-1, 0}, {2500, 3}, {9000, 9}, {9001, -1}}) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(tp, BASE_MS + pair[0])).get(tp);
                equal(found == null ? -1L : found.offset(), pair[1], "offset for base+" + pair[0]);
            }
            equal(consumer.beginningOffsets(List.of(tp)).get(tp), 0L, "earliest");
            equal(consumer.endOffsets(List.of(tp)).get(tp), 10L, "latest");
            equal(admin.listOffsets(Map.of(tp, OffsetSpec.maxTimestamp())).partitionResult(tp).get().offset(), 9L, "offset of the greatest timestamp");
        }
    }

    static void admin(String[] arguments) throws Exception {
        String topic = arguments[0];
        create(topic, 3, Map.of("retention.ms", "86400000"));
        try {
            create(topic, 3, Map.of());
            throw new AssertionError("created twice");
        } catch (TopicExistsException expected) {
        }
        try (Admin admin = admin()) {
            TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            equal(described.partitions().stream().filter(p -> p.leader() != null).map(p -> p.partition()).toList(), List.of(0, 1, 2), "led partitions");
            equal(admin.describeTopics(TopicCollection.ofTopicIds(List.of(described.topicId()))).allTopicIds().get().get(described.topicId()).name(), topic, "name of the id");
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            equal(config.get("retention.ms").value(), "86400000", "retention.ms");
            equal(config.get("retention.ms").source(), ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "its source");
            equal(config.get("cleanup.policy").isDefault(), true, "cleanup.policy is a default");
            equal(admin.describeCluster().nodes().get().size(), 1, "nodes");
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(described.topicId()))).all().get();
            until("topic gone", () -> !admin.listTopics().names().get().contains(topic));
        }
    }

    static void idempotent(String[] arguments) throws Exception { // as every Java producer is unless told otherwise
        create(arguments[0], 1, Map.of());
        send(Map.of("batch.size", 1024), Integer.parseInt(arguments[1]), i -> new ProducerRecord<>(arguments[0], bytes("" + i)));
        millionRead(new String[] {arguments[0], arguments[1], "once"});
    }

    static void millionWrite(String[] arguments) throws Exception {
        create(arguments[0], 4, Map.of());
        send(Map.of("delivery.timeout.ms", 300_000), Integer.parseInt(arguments[1]), i -> new ProducerRecord<>(arguments[0], i % 4, null, bytes("" + i)));
    }

    static void millionRead(String[] arguments) {
        int count = Integer.parseInt(arguments[1]), rows[] = {0}, repeats[] = {0}, disorder[] = {0};
        BitSet seen = new BitSet(count);
        Map<Integer, Integer> last = new HashMap<>();
        consume(arguments[0], r -> {
            int i = Integer.parseInt(new String(r.value()));
            if (seen.get(i)) repeats[0]++;
            if (i <= last.getOrDefault(r.partition(), -1)) disorder[0]++;
            seen.set(i);
            last.put(r.partition(), i);
            progress(++rows[0], count);
        });
        int missing = count - seen.cardinality();
        System.out.printf("read %d of %d: %d missing, %d repeated, %d out of order%n", count - missing, count, missing, repeats[0], disorder[0]);
        if (missing > 0 || arguments[2].equals("once") && repeats[0] + disorder[0] > 0) throw new AssertionError("not what was written");
    }
}
