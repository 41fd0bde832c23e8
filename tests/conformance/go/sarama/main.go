// sarama: the plan.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"ringlog/conformance/plan"
)

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = 100 * time.Millisecond // closing a consumer waits for it
	return c
}

func create(bootstrap, topic string, partitions int32, entries map[string]*string) error {
	admin := plan.Try(sarama.NewClusterAdmin([]string{bootstrap}, config()))
	defer admin.Close()
	return admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: entries}, false)
}

// bytes keeps null apart from empty.
func bytes(b []byte) sarama.Encoder {
	if b == nil {
		return nil
	}
	return sarama.ByteEncoder(b)
}

func write(bootstrap string, arguments []string) {
	topic, c := arguments[0], config()
	plan.Must(c.Producer.Compression.UnmarshalText([]byte(arguments[1])))
	c.Producer.Flush.Frequency = 50 * time.Millisecond
	plan.Must(create(bootstrap, topic, plan.Partitions, nil))
	producer := plan.Try(sarama.NewSyncProducer([]string{bootstrap}, c))
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, r := range plan.Records() {
		m := &sarama.ProducerMessage{Topic: topic, Partition: int32(r.Partition), Key: bytes(r.Key), Value: bytes(r.Value), Timestamp: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		messages = append(messages, m)
	}
	plan.Must(producer.SendMessages(messages))
}

// consume hands over every record of a topic up to the end offsets, partition after partition.
func consume(bootstrap, topic string, each func(*sarama.ConsumerMessage)) (rows int) {
	client := plan.Try(sarama.NewClient([]string{bootstrap}, config()))
	defer client.Close()
	consumer := plan.Try(sarama.NewConsumerFromClient(client))
	for _, p := range plan.Try(client.Partitions(topic)) {
		end := plan.Try(client.GetOffset(topic, p, sarama.OffsetNewest))
		partition := plan.Try(consumer.ConsumePartition(topic, p, sarama.OffsetOldest))
		for next := int64(0); next < end; rows++ {
			select {
			case m := <-partition.Messages():
				each(m)
				next = m.Offset + 1
			case err := <-partition.Errors():
				panic(err)
			}
		}
		plan.Must(partition.Close())
	}
	return rows
}

func read(bootstrap string, topics []string) {
	for _, topic := range topics {
		got := make([][]plan.Read, plan.Partitions)
		consume(bootstrap, topic, func(m *sarama.ConsumerMessage) {
			back := plan.Read{Offset: m.Offset, Record: plan.Record{Partition: int(m.Partition), Key: m.Key, Value: m.Value, Timestamp: m.Timestamp.UnixMilli()}}
			for _, h := range m.Headers {
				back.Headers = append(back.Headers, plan.Header{Key: string(h.Key), Value: h.Value})
			}
			got[m.Partition] = append(got[m.Partition], back)
		})
		for p := range got {
			plan.Verify(topic, p, got[p])
		}
	}
}

// handler of one member: called by sarama at the beginning and end of each generation, and once a partition between.
type handler struct {
	topic string
	owned *plan.Owned
	seen  *plan.Seen
}

func (h *handler) Setup(session sarama.ConsumerGroupSession) error {
	var now []int
	for _, p := range session.Claims()[h.topic] {
		now = append(now, int(p))
	}
	h.owned.Set(now)
	return nil
}

func (h *handler) Cleanup(sarama.ConsumerGroupSession) error {
	h.owned.Set(nil)
	return nil
}

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		session.MarkMessage(m, "")
		session.Commit()
		h.seen.Add(m.Value)
	}
	return nil
}

func member(bootstrap, topic string, seen *plan.Seen) plan.Member {
	c := config()
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	g := plan.Try(sarama.NewConsumerGroup([]string{bootstrap}, topic, c))
	h, done := &handler{topic, &plan.Owned{}, seen}, make(chan struct{})
	go func() {
		for err := range g.Errors() {
			panic(err)
		}
	}()
	go func() {
		defer close(done)
		for {
			err := g.Consume(context.Background(), []string{topic}, h)
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
			plan.Must(err)
		}
	}()
	return plan.Member{Owned: h.owned, Leave: func() { plan.Must(g.Close()); <-done }}
}

func group(bootstrap string, arguments []string) {
	topic := arguments[0]
	plan.Must(create(bootstrap, topic, plan.GroupPartitions, nil))
	producer := plan.Try(sarama.NewSyncProducer([]string{bootstrap}, config()))
	defer producer.Close()
	plan.GroupStory(func(seen *plan.Seen) plan.Member { return member(bootstrap, topic, seen) }, func(first, last int) {
		var messages []*sarama.ProducerMessage
		for i := first; i < last; i++ {
			messages = append(messages, &sarama.ProducerMessage{Topic: topic, Partition: int32(i % plan.GroupPartitions), Value: sarama.ByteEncoder(plan.Number(i))})
		}
		plan.Must(producer.SendMessages(messages))
	})
	admin := plan.Try(sarama.NewClusterAdmin([]string{bootstrap}, config()))
	defer admin.Close()
	answer := plan.Try(admin.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0, 1, 2, 3, 4, 5}}))
	for p := range int32(plan.GroupPartitions) {
		plan.Equal(answer.GetBlock(topic, p).Offset, int64(31), "committed offset")
	}
}

func offsets(bootstrap string, arguments []string) {
	topic := arguments[0]
	plan.Must(create(bootstrap, topic, 1, nil))
	producer := plan.Try(sarama.NewSyncProducer([]string{bootstrap}, config()))
	defer producer.Close()
	for i := range 10 { // one batch each
		m := &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(plan.Number(i)), Timestamp: time.UnixMilli(plan.BaseMs + int64(i)*1000)}
		_, offset, err := producer.SendMessage(m)
		plan.Must(err)
		plan.Equal(offset, int64(i), "offset of a sent record")
	}
	client := plan.Try(sarama.NewClient([]string{bootstrap}, config()))
	defer client.Close()
	for time, want := range map[int64]int64{plan.BaseMs - 1: 0, plan.BaseMs + 2500: 3, plan.BaseMs + 9000: 9, plan.BaseMs + 9001: -1,
		sarama.OffsetOldest: 0, sarama.OffsetNewest: 10} {
		plan.Equal(plan.Try(client.GetOffset(topic, 0, time)), want, "offset for a time")
	}
}

func admin(bootstrap string, arguments []string) {
	topic, day := arguments[0], "86400000"
	plan.Must(create(bootstrap, topic, 3, map[string]*string{"retention.ms": &day}))
	if err := create(bootstrap, topic, 3, nil); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		panic(err)
	}
	a := plan.Try(sarama.NewClusterAdmin([]string{bootstrap}, config()))
	defer a.Close()
	listed := plan.Try(a.ListTopics())[topic]
	plan.Equal([]int32{listed.NumPartitions, int32(listed.ReplicationFactor)}, []int32{3, 1}, "partitions and replicas")
	plan.Equal(*listed.ConfigEntries["retention.ms"], day, "retention.ms as listed")
	described := plan.Try(a.DescribeTopics([]string{topic}))[0]
	plan.Equal(described.Err, sarama.ErrNoError, "description")
	plan.Equal(len(described.Partitions), 3, "partitions")
	for _, entry := range plan.Try(a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})) {
		plan.Equal(entry.Name+"="+entry.Value, "retention.ms="+day, "the config that was asked for")
	}
	plan.Must(a.DeleteTopic(topic))
	plan.Until("topic gone", func() bool { _, there := plan.Try(a.ListTopics())[topic]; return !there })
}

func idempotent(bootstrap string, arguments []string) {
	topic, count, c := arguments[0], plan.Count(arguments[1]), config()
	plan.Must(create(bootstrap, topic, 1, nil))
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1 // sarama asks for that
	c.Producer.Flush.MaxMessages = 50
	producer := plan.Try(sarama.NewAsyncProducer([]string{bootstrap}, c))
	go func() {
		for i := range count {
			producer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(plan.Number(i))}
		}
	}()
	for range count {
		select {
		case <-producer.Successes():
		case err := <-producer.Errors():
			panic(err)
		}
	}
	plan.Must(producer.Close())
	tally := plan.NewTally(count)
	plan.Equal(consume(bootstrap, topic, func(m *sarama.ConsumerMessage) { tally.Add(int(m.Partition), m.Value) }), count, "records")
	tally.Judge("once")
}

func main() {
	plan.Main(map[string]func(string, []string){"write": write, "read": read, "group": group, "offsets": offsets, "admin": admin,
		"idempotent": idempotent})
}
