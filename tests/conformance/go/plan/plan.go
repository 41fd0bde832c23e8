// Package plan is what every Go client here does and expects: the records of the plan, the story of a group, the
// command line. The plan is the same in every language (README.md two folders up says it once).
package plan

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"sync"
	"time"
)

const (
	Partitions      = 3
	RecordCount     = 90
	GroupPartitions = 6
)

// BaseMs is close to now, so that no retention takes the records.
var BaseMs = func() int64 {
	if ms, err := strconv.ParseInt(os.Getenv("BASE_MS"), 10, 64); err == nil {
		return ms
	}
	return time.Now().UnixMilli()
}()

type Header struct {
	Key   string
	Value []byte
}

type Record struct {
	Partition  int
	Key, Value []byte // nil is null
	Headers    []Header
	Timestamp  int64
}

func (r Record) String() string {
	text := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return strconv.Quote(string(b[:min(len(b), 30)]))
	}
	return fmt.Sprintf("{%d %s %s %q %d}", r.Partition, text(r.Key), text(r.Value), r.Headers, r.Timestamp)
}

// Read is a record as it came back.
type Read struct {
	Offset int64
	Record
}

// Number is i as decimal digits: the value of record i in groups and long runs.
func Number(i int) []byte { return strconv.AppendInt(nil, int64(i), 10) }

// NewRecord is record number i of a write: null, empty and plain keys and values, repeated headers, own timestamp.
func NewRecord(i int) Record {
	r := Record{Partition: i % Partitions, Timestamp: BaseMs + int64(i)*10}
	switch i % 5 {
	case 0:
	case 1:
		r.Key = []byte{}
	default:
		r.Key = fmt.Appendf(nil, "key-%d", i)
	}
	switch {
	case i%5 == 2:
	case i%7 == 1:
		r.Value = []byte{}
	default:
		r.Value = append(bytes.Repeat(fmt.Appendf(nil, "value-%d;", i), 20), 0, 0xff)
	}
	if i%4 != 0 {
		r.Headers = []Header{{"a", Number(i)}, {"a", []byte("again")}, {"bin", []byte{0, 0xff}}}
	}
	return r
}

func (r Read) String() string { return fmt.Sprintf("offset %d %v", r.Offset, r.Record) }

func Records() []Record {
	records := make([]Record, RecordCount)
	for i := range records {
		records[i] = NewRecord(i)
	}
	return records
}

// Verify compares one partition, in the order read, with the plan.
func Verify(topic string, partition int, got []Read) {
	var want []Read
	for _, r := range Records() {
		if r.Partition == partition {
			want = append(want, Read{int64(len(want)), r})
		}
	}
	for i := range min(len(want), len(got)) {
		Equal(got[i], want[i], fmt.Sprintf("%s-%d", topic, partition))
	}
	Equal(len(got), len(want), fmt.Sprintf("records in %s-%d", topic, partition))
}

func Must(err error) {
	if err != nil {
		panic(err)
	}
}

func Try[T any](value T, err error) T {
	Must(err)
	return value
}

func Equal(got, want any, what string) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("%s: wanted %v, got %v", what, want, got))
	}
}

// Until waits for the condition; the bound is for a broker that never gets there.
func Until(what string, condition func() bool) {
	for end := time.Now().Add(60 * time.Second); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			panic("not within 60 s: " + what)
		}
	}
}

// Seen counts the values that the members of a group have consumed and committed.
type Seen struct {
	mutex  sync.Mutex
	counts map[string]int
}

func (s *Seen) Add(value []byte) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.counts[string(value)]++
}

func (s *Seen) len() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.counts)
}

// Owned is the set of partitions that a member owns just now.
type Owned struct {
	mutex sync.Mutex
	set   map[int]bool
}

// Change takes some partitions away and adds some.
func (o *Owned) Change(lost, gained []int) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.set == nil {
		o.set = map[int]bool{}
	}
	for _, p := range lost {
		delete(o.set, p)
	}
	for _, p := range gained {
		o.set[p] = true
	}
}

// Set replaces the whole.
func (o *Owned) Set(now []int) {
	o.mutex.Lock()
	o.set = nil
	o.mutex.Unlock()
	o.Change(nil, now)
}

func (o *Owned) list() (list []int) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for p := range o.set {
		list = append(list, p)
	}
	return list
}

// Member of a group: it polls, commits, and only then counts in Seen.
type Member struct {
	Owned *Owned
	Leave func()
}

// GroupStory has two members, a third, then one alone, then a newcomer: every partition is owned by exactly one of them
// and each record is seen once. produce writes the numbers first … last-1, spread over all partitions.
func GroupStory(start func(*Seen) Member, produce func(first, last int)) {
	seen, total := &Seen{counts: map[string]int{}}, 0
	settle := func(members ...Member) {
		held := 0
		Until(fmt.Sprint(len(members), " members own all partitions"), func() bool {
			held++
			var all []int
			for _, m := range members {
				owned := m.Owned.list()
				all = append(all, owned...)
				if len(owned) == 0 {
					held = 0
				}
			}
			sort.Ints(all)
			if !reflect.DeepEqual(all, []int{0, 1, 2, 3, 4, 5}) {
				held = 0
			}
			return held == 5 // held for a fifth of a second, not seen in passing
		})
	}
	consume := func(count int) {
		produce(total, total+count)
		total += count
		Until(fmt.Sprint(total, " records seen"), func() bool { return seen.len() == total })
	}
	a, b := start(seen), start(seen)
	settle(a, b)
	consume(60)
	c := start(seen)
	settle(a, b, c)
	consume(60)
	a.Leave()
	b.Leave()
	settle(c)
	consume(60)
	c.Leave()
	d := start(seen) // goes on from the committed offsets
	consume(6)
	d.Leave()
	for i := range total {
		Equal(seen.counts[strconv.Itoa(i)], 1, fmt.Sprint("times that record ", i, " was seen"))
	}
}

// Tally takes what was read in its order: all of 0..count must be there; with "once" nothing twice or out of order,
// with "again" repeats are counted, not refused.
type Tally struct {
	seen              []bool
	last              map[int]int
	repeats, disorder int
	Rows              int
}

func NewTally(count int) *Tally { return &Tally{seen: make([]bool, count), last: map[int]int{}} }

func (t *Tally) Add(partition int, value []byte) {
	i := Try(strconv.Atoi(string(value)))
	if t.seen[i] {
		t.repeats++
	}
	if last, ok := t.last[partition]; ok && i <= last {
		t.disorder++
	}
	t.seen[i], t.last[partition] = true, i
	t.Rows++
	Progress(t.Rows, len(t.seen))
}

func (t *Tally) Judge(mode string) {
	missing := 0
	for _, s := range t.seen {
		if !s {
			missing++
		}
	}
	fmt.Printf("read %d of %d: %d missing, %d repeated, %d out of order\n", len(t.seen)-missing, len(t.seen), missing, t.repeats, t.disorder)
	if missing > 0 || mode == "once" && t.repeats+t.disorder > 0 {
		panic("not what was written")
	}
}

// Progress prints a hundred lines in a long run: the script that kills the broker reads them.
func Progress(done, count int) {
	if done%max(1, count/100) == 0 {
		fmt.Println("progress", done)
	}
}

// Main runs SCENARIO BOOTSTRAP TOPIC [ARG …].
func Main(scenarios map[string]func(bootstrap string, arguments []string)) {
	scenario := scenarios[os.Args[1]]
	if scenario == nil {
		panic("no scenario " + os.Args[1])
	}
	scenario(os.Args[2], os.Args[3:])
}

// Count reads an argument that is a number.
func Count(argument string) int { return Try(strconv.Atoi(argument)) }
