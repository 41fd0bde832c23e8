// franz-go: the plan.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringlog/conformance/plan"
)

var ctx = context.Background()

func client(bootstrap string, options ...kgo.Opt) *kgo.Client {
	return plan.Try(kgo.NewClient(append(options, kgo.SeedBrokers(bootstrap))...))
}

func create(bootstrap, topic string, partitions int, config map[string]*string) error {
	admin := kadm.NewClient(client(bootstrap))
	defer admin.Close()
	_, err := admin.CreateTopic(ctx, int32(partitions), 1, config, topic)
	return err
}

func manual() kgo.Opt { return kgo.RecordPartitioner(kgo.ManualPartitioner()) }

func write(bootstrap string, arguments []string) {
	topic := arguments[0]
	codec := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[arguments[1]]
	plan.Must(create(bootstrap, topic, plan.Partitions, nil))
	c := client(bootstrap, manual(), kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(50*time.Millisecond))
	defer c.Close()
	var records []*kgo.Record
	for _, r := range plan.Records() {
		record := &kgo.Record{Topic: topic, Partition: int32(r.Partition), Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		records = append(records, record)
	}
	plan.Must(c.ProduceSync(ctx, records...).FirstErr())
}

// consume hands over records from the beginning of all partitions until there were `count` of them and the ends agree.
func consume(bootstrap, topic string, count int, each func(*kgo.Record)) {
	c := client(bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer c.Close()
	rows := 0
	for rows < count {
		fetches := c.PollFetches(ctx)
		plan.Must(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { each(r); rows++ })
	}
	ends := int64(0)
	plan.Try(kadm.NewClient(c).ListEndOffsets(ctx, topic)).Each(func(o kadm.ListedOffset) { ends += o.Offset })
	plan.Equal(int64(rows), ends, "read up to the end offsets")
}

func read(bootstrap string, topics []string) {
	for _, topic := range topics {
		got := make([][]plan.Read, plan.Partitions)
		consume(bootstrap, topic, plan.RecordCount, func(r *kgo.Record) {
			back := plan.Read{Offset: r.Offset, Record: plan.Record{Partition: int(r.Partition), Key: r.Key, Value: r.Value, Timestamp: r.Timestamp.UnixMilli()}}
			for _, h := range r.Headers {
				back.Headers = append(back.Headers, plan.Header{Key: h.Key, Value: h.Value})
			}
			got[r.Partition] = append(got[r.Partition], back)
		})
		for p := range got {
			plan.Verify(topic, p, got[p])
		}
	}
}

func member(bootstrap, topic string, seen *plan.Seen) plan.Member {
	owned, done, leaving := &plan.Owned{}, make(chan struct{}), make(chan struct{})
	numbers := func(partitions map[string][]int32) (list []int) {
		for _, p := range partitions[topic] {
			list = append(list, int(p))
		}
		return list
	}
	gained := func(_ context.Context, _ *kgo.Client, p map[string][]int32) { owned.Change(nil, numbers(p)) }
	lost := func(_ context.Context, _ *kgo.Client, p map[string][]int32) { owned.Change(numbers(p), nil) }
	c := client(bootstrap, kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(500*time.Millisecond), kgo.OnPartitionsAssigned(gained), kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	stopping, stop := context.WithCancel(ctx)
	go func() {
		defer close(done)
		for {
			fetches := c.PollFetches(stopping)
			select {
			case <-leaving:
				c.CloseAllowingRebalance()
				return
			default:
			}
			plan.Must(fetches.Err())
			plan.Must(c.CommitUncommittedOffsets(ctx))
			fetches.EachRecord(func(r *kgo.Record) { seen.Add(r.Value) })
			c.AllowRebalance()
		}
	}()
	return plan.Member{Owned: owned, Leave: func() { close(leaving); stop(); <-done }}
}

func group(bootstrap string, arguments []string) {
	topic := arguments[0]
	plan.Must(create(bootstrap, topic, plan.GroupPartitions, nil))
	c := client(bootstrap, manual())
	defer c.Close()
	plan.GroupStory(func(seen *plan.Seen) plan.Member { return member(bootstrap, topic, seen) }, func(first, last int) {
		for i := first; i < last; i++ {
			c.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(i % plan.GroupPartitions), Value: plan.Number(i)}, nil)
		}
		plan.Must(c.Flush(ctx))
	})
	committed := plan.Try(kadm.NewClient(c).FetchOffsets(ctx, topic))
	committed.Each(func(o kadm.OffsetResponse) { plan.Equal(o.At, int64(31), "committed offset") })
	plan.Equal(len(committed[topic]), plan.GroupPartitions, "partitions with a committed offset")
}

func offsets(bootstrap string, arguments []string) {
	topic := arguments[0]
	plan.Must(create(bootstrap, topic, 1, nil))
	c := client(bootstrap)
	defer c.Close()
	for i := range 10 { // one batch each
		plan.Must(c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: plan.Number(i), Timestamp: time.UnixMilli(plan.BaseMs + int64(i)*1000)}).FirstErr())
	}
	admin := kadm.NewClient(c)
	for later, want := range map[int64]int64{-1: 0, 2500: 3, 9000: 9, 9001: 10} { // kadm turns "none" into the end
		found, _ := plan.Try(admin.ListOffsetsAfterMilli(ctx, plan.BaseMs+later, topic)).Lookup(topic, 0)
		plan.Equal(found.Offset, want, "offset for a time")
	}
	first, _ := plan.Try(admin.ListStartOffsets(ctx, topic)).Lookup(topic, 0)
	last, _ := plan.Try(admin.ListEndOffsets(ctx, topic)).Lookup(topic, 0)
	plan.Equal([]int64{first.Offset, last.Offset}, []int64{0, 10}, "earliest and latest")
}

func admin(bootstrap string, arguments []string) {
	topic, day := arguments[0], "86400000"
	plan.Must(create(bootstrap, topic, 3, map[string]*string{"retention.ms": &day}))
	if err := create(bootstrap, topic, 3, nil); !errors.Is(err, kerr.TopicAlreadyExists) {
		panic(err)
	}
	a := kadm.NewClient(client(bootstrap))
	defer a.Close()
	described := plan.Try(a.ListTopics(ctx, topic))[topic]
	plan.Must(described.Err)
	plan.Equal(described.Partitions.Numbers(), []int32{0, 1, 2}, "partitions")
	config := plan.Try(a.DescribeTopicConfigs(ctx, topic))[0]
	for _, c := range config.Configs {
		if c.Key == "retention.ms" {
			plan.Equal(c.MaybeValue(), day, "retention.ms")
		}
	}
	plan.Must(plan.Try(a.DeleteTopics(ctx, topic))[topic].Err)
	plan.Until("topic gone", func() bool { return !plan.Try(a.ListTopics(ctx)).Has(topic) })
}

func idempotent(bootstrap string, arguments []string) { // franz-go's producer is idempotent unless told otherwise
	topic, count := arguments[0], plan.Count(arguments[1])
	plan.Must(create(bootstrap, topic, 1, nil))
	produce(bootstrap, topic, 1, count, kgo.ProducerBatchMaxBytes(1024))
	readBack(bootstrap, topic, count, "once")
}

func produce(bootstrap, topic string, partitions, count int, options ...kgo.Opt) {
	c := client(bootstrap, append(options, manual(), kgo.RecordRetries(1<<30))...)
	defer c.Close()
	acked := 0 // promises are kept one at a time
	for i := range count {
		c.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: plan.Number(i)}, func(_ *kgo.Record, err error) {
			plan.Must(err)
			acked++
			plan.Progress(acked, count)
		})
	}
	plan.Must(c.Flush(ctx))
	plan.Equal(acked, count, "acknowledged")
}

func millionWrite(bootstrap string, arguments []string) {
	plan.Must(create(bootstrap, arguments[0], 4, nil))
	produce(bootstrap, arguments[0], 4, plan.Count(arguments[1]))
}

func readBack(bootstrap, topic string, count int, mode string) {
	tally := plan.NewTally(count)
	consume(bootstrap, topic, count, func(r *kgo.Record) { tally.Add(int(r.Partition), r.Value) })
	tally.Judge(mode)
}

func millionRead(bootstrap string, arguments []string) {
	readBack(bootstrap, arguments[0], plan.Count(arguments[1]), arguments[2])
}

func main() {
	plan.Main(map[string]func(string, []string){"write": write, "read": read, "group": group, "offsets": offsets, "admin": admin,
		"idempotent": idempotent, "million-write": millionWrite, "million-read": millionRead})
}
