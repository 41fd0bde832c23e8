// kafka-go (segmentio): the plan. It has no idempotent producer, and its reader hands out null as empty.
package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/segmentio/kafka-go"

	"ringlog/conformance/plan"
)

var ctx = context.Background()

func client(bootstrap string) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: 30 * time.Second}
}

func create(bootstrap, topic string, partitions int, config ...kafka.ConfigEntry) error {
	answer := plan.Try(client(bootstrap).CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: config}}}))
	return answer.Errors[topic]
}

// writer sends each message to the partition that its WriterData names.
func writer(bootstrap, topic string, codec kafka.Compression) *kafka.Writer {
	byData := kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return m.WriterData.(int) })
	return &kafka.Writer{Addr: kafka.TCP(bootstrap), Topic: topic, Balancer: byData, RequiredAcks: kafka.RequireAll, Compression: codec,
		BatchTimeout: 50 * time.Millisecond}
}

func write(bootstrap string, arguments []string) {
	codec := map[string]kafka.Compression{"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}[arguments[1]]
	plan.Must(create(bootstrap, arguments[0], plan.Partitions))
	w := writer(bootstrap, arguments[0], codec)
	defer w.Close()
	var messages []kafka.Message
	for _, r := range plan.Records() {
		m := kafka.Message{Key: r.Key, Value: r.Value, Time: time.UnixMilli(r.Timestamp), WriterData: r.Partition}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		messages = append(messages, m)
	}
	plan.Must(w.WriteMessages(ctx, messages...))
}

func ends(bootstrap, topic string, partition int) (first, last int64) {
	answer := plan.Try(client(bootstrap).ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition)}}}))
	found := answer.Topics[topic][0]
	plan.Must(found.Error)
	return found.FirstOffset, found.LastOffset
}

// consume reads one partition up to its end with the Client's Fetch, which tells null from empty as the Reader does not.
func consume(bootstrap, topic string, partition int, each func(plan.Read)) {
	_, end := ends(bootstrap, topic, partition)
	for next := int64(0); next < end; {
		answer := plan.Try(client(bootstrap).Fetch(ctx, &kafka.FetchRequest{Topic: topic, Partition: partition, Offset: next, MinBytes: 1,
			MaxBytes: 1 << 20, MaxWait: time.Second}))
		plan.Must(answer.Error)
		for {
			r, err := answer.Records.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			plan.Must(err)
			if r.Offset < next {
				continue // the batch began earlier
			}
			back := plan.Read{Offset: r.Offset, Record: plan.Record{Partition: partition, Key: plan.Try(kafka.ReadAll(r.Key)), Value: plan.Try(kafka.ReadAll(r.Value)),
				Timestamp: r.Time.UnixMilli()}}
			for _, h := range r.Headers {
				back.Headers = append(back.Headers, plan.Header{Key: h.Key, Value: h.Value})
			}
			each(back)
			next = r.Offset + 1
		}
	}
}

func read(bootstrap string, topics []string) {
	for _, topic := range topics {
		for p := range plan.Partitions {
			var got []plan.Read
			consume(bootstrap, topic, p, func(r plan.Read) { got = append(got, r) })
			plan.Verify(topic, p, got)
			readWithReader(bootstrap, topic, p, len(got))
		}
	}
}

// readWithReader goes the way that most users go, and compares what that way can tell.
func readWithReader(bootstrap, topic string, partition, count int) {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: topic, Partition: partition,
		MaxWait: 50 * time.Millisecond}) // closing waits for it
	defer r.Close()
	for i := range count {
		m, want := plan.Try(r.ReadMessage(ctx)), plan.NewRecord(i*plan.Partitions+partition)
		plan.Equal([]string{string(m.Key), string(m.Value)}, []string{string(want.Key), string(want.Value)}, topic)
		plan.Equal([]int64{m.Offset, m.Time.UnixMilli(), m.HighWaterMark}, []int64{int64(i), want.Timestamp, int64(count)}, topic)
	}
}

func member(bootstrap, topic string, seen *plan.Seen) plan.Member {
	g := plan.Try(kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{ID: topic, Brokers: []string{bootstrap}, Topics: []string{topic},
		HeartbeatInterval: 500 * time.Millisecond, StartOffset: kafka.FirstOffset}))
	owned, done := &plan.Owned{}, make(chan struct{})
	generation := func(gen *kafka.Generation) {
		var now []int
		for _, a := range gen.Assignments[topic] {
			now = append(now, a.ID)
			gen.Start(func(ctx context.Context) {
				r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: topic, Partition: a.ID, MaxWait: 200 * time.Millisecond})
				defer r.Close()
				plan.Must(r.SetOffset(a.Offset))
				for {
					m, err := r.ReadMessage(ctx)
					if ctx.Err() != nil {
						owned.Set(nil)
						return
					}
					plan.Must(err)
					plan.Must(gen.CommitOffsets(map[string]map[int]int64{topic: {a.ID: m.Offset + 1}}))
					seen.Add(m.Value)
				}
			})
		}
		owned.Set(now)
	}
	go func() {
		defer close(done)
		for {
			gen, err := g.Next(ctx)
			if errors.Is(err, kafka.ErrGroupClosed) {
				return
			}
			if err == nil { // else the group tries again by itself
				generation(gen)
			}
		}
	}()
	return plan.Member{Owned: owned, Leave: func() { plan.Must(g.Close()); <-done }}
}

func group(bootstrap string, arguments []string) {
	topic := arguments[0]
	plan.Must(create(bootstrap, topic, plan.GroupPartitions))
	w := writer(bootstrap, topic, 0)
	defer w.Close()
	plan.GroupStory(func(seen *plan.Seen) plan.Member { return member(bootstrap, topic, seen) }, func(first, last int) {
		var messages []kafka.Message
		for i := first; i < last; i++ {
			messages = append(messages, kafka.Message{Value: plan.Number(i), WriterData: i % plan.GroupPartitions})
		}
		plan.Must(w.WriteMessages(ctx, messages...))
	})
	answer := plan.Try(client(bootstrap).OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: topic, Topics: map[string][]int{topic: {0, 1, 2, 3, 4, 5}}}))
	for _, p := range answer.Topics[topic] {
		plan.Equal(p.CommittedOffset, int64(31), "committed offset")
	}
}

func offsets(bootstrap string, arguments []string) {
	topic := arguments[0]
	plan.Must(create(bootstrap, topic, 1))
	w := writer(bootstrap, topic, 0)
	defer w.Close()
	w.BatchSize = 1
	for i := range 10 { // one batch each
		plan.Must(w.WriteMessages(ctx, kafka.Message{Value: plan.Number(i), Time: time.UnixMilli(plan.BaseMs + int64(i)*1000), WriterData: 0}))
	}
	for later, want := range map[int64]int64{-1: 0, 2500: 3, 9000: 9, 9001: -1} {
		answer := plan.Try(client(bootstrap).ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{topic: {kafka.TimeOffsetOf(0, time.UnixMilli(plan.BaseMs+later))}}}))
		for offset := range answer.Topics[topic][0].Offsets {
			plan.Equal(offset, want, "offset for a time")
		}
	}
	first, last := ends(bootstrap, topic, 0)
	plan.Equal([]int64{first, last}, []int64{0, 10}, "earliest and latest")
}

func admin(bootstrap string, arguments []string) {
	topic, day := arguments[0], "86400000"
	plan.Must(create(bootstrap, topic, 3, kafka.ConfigEntry{ConfigName: "retention.ms", ConfigValue: day}))
	if err := create(bootstrap, topic, 3); !errors.Is(err, kafka.TopicAlreadyExists) {
		panic(err)
	}
	c := client(bootstrap)
	described := plan.Try(c.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})).Topics[0]
	plan.Must(described.Error)
	plan.Equal(len(described.Partitions), 3, "partitions")
	config := plan.Try(c.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"}}}}))
	plan.Equal(config.Resources[0].ConfigEntries[0].ConfigValue, day, "retention.ms")
	plan.Must(plan.Try(c.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})).Errors[topic])
	plan.Until("topic gone", func() bool {
		for _, t := range plan.Try(c.Metadata(ctx, &kafka.MetadataRequest{})).Topics {
			if t.Name == topic {
				return false
			}
		}
		return true
	})
}

func main() {
	plan.Main(map[string]func(string, []string){"write": write, "read": read, "group": group, "offsets": offsets, "admin": admin})
}
