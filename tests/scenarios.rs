//! Scenarios of consumer groups: commands, and the answers and records they must lead to.
//!
//! A file of `tests/scenarios/` is a list of blocks: commands, a line `----`, the expected trace, an empty line. Lines that
//! begin with `#` are remarks. `RINGLOG_REWRITE=1` writes the traces anew; read the difference before keeping it. The words
//! of the commands are explained at [`World::command`]. Records pass through their bytes, so a `restart` is Kafka's format
//! read back.

#![allow(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use ringlog::coordinator::command::*;
use ringlog::coordinator::partition::{Effects, Partition, WriteId};
use ringlog::coordinator::records::Record;
use ringlog::types::{LeaderEpoch, PartitionIndex, TopicId, TopicName};

/// The wall's clock at the start of every scenario.
const WALL_START: i64 = 1_000_000;

/// One coordinator, its log and the people who talk to it.
struct World {
    settings: GroupSettings,
    partition: Partition,
    log: Vec<(Bytes, Option<Bytes>)>,
    /// Written, not yet durable.
    pending: VecDeque<(WriteId, Vec<Record>)>,
    /// Writes wait for `release` or `fail`.
    held: bool,
    elapsed: Duration,
    randoms: u128,
    tickets: u64,
    /// Who asked.
    askers: BTreeMap<Ticket, String>,
    /// What each client learned: its member id and generation.
    known: BTreeMap<String, (MemberId, i32)>,
    trace: String,
}

/// The words of one command line: `name=value` pairs, and the rest in order.
struct Words<'a> {
    plain: VecDeque<&'a str>,
    pairs: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Self {
        let (pairs, plain): (Vec<_>, Vec<_>) = line.split_whitespace().partition(|word| word.contains('='));
        let pair = |word: &'a str| word.split_once('=').expect("partitioned");
        Self { plain: plain.into(), pairs: pairs.into_iter().map(pair).collect() }
    }

    fn next(&mut self) -> &'a str {
        self.plain.pop_front().unwrap_or_else(|| panic!("a word is missing"))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.pairs.get(name).copied()
    }

    fn text(&self, name: &str, default: &str) -> Arc<str> {
        self.get(name).unwrap_or(default).into()
    }

    fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        self.get(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
    }

    fn milliseconds(&self, name: &str, default: i32) -> i32 {
        self.get(name).map_or(default, |text| duration(text).as_millis() as i32)
    }
}

fn duration(text: &str) -> Duration {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().unwrap_or_else(|_| panic!("no duration: {text}"));
    match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(60 * number),
        "h" => Duration::from_secs(3600 * number),
        "d" => Duration::from_secs(86_400 * number),
        _ => panic!("no unit: {text}"),
    }
}

fn place(text: &str) -> (TopicName, PartitionIndex) {
    let (topic, partition) = text.split_once('/').unwrap_or_else(|| panic!("no topic/partition: {text}"));
    (topic.into(), PartitionIndex::new(partition.parse().unwrap()).unwrap())
}

/// A ConsumerProtocolSubscription v0.
fn subscription(topics: &str) -> Bytes {
    let topics: Vec<&str> = topics.split(',').filter(|topic| !topic.is_empty()).collect();
    let mut out = BytesMut::new();
    out.put_i16(0);
    out.put_i32(topics.len() as i32);
    for topic in topics {
        out.put_i16(topic.len() as i16);
        out.put_slice(topic.as_bytes());
    }
    out.put_i32(-1);
    out.freeze()
}

impl World {
    fn new(settings: GroupSettings) -> Self {
        Self {
            partition: Partition::new(settings.clone()),
            settings,
            log: Vec::new(),
            pending: VecDeque::new(),
            held: false,
            elapsed: Duration::ZERO,
            randoms: 0,
            tickets: 0,
            askers: BTreeMap::new(),
            known: BTreeMap::new(),
            trace: String::new(),
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: self.elapsed, wall: WALL_START + self.elapsed.as_millis() as i64 }
    }

    /// Understands, with `g` for the group unless `group=` says otherwise:
    /// `join WHO [id=MEMBER|-] [instance=I] [v=9] [protocols=range,rr] [type=consumer] [session=10s] [rebalance=60s]
    /// [topics=t,u|?]` · `sync WHO [id=] [gen=] [instance=] [shares=a:x,b:y] [type=] [protocol=]` ·
    /// `heartbeat WHO [id=] [gen=] [instance=]` · `leave WHO…` or `leave instance=I` · `commit WHO|- t/0:5… [gen=] [id=]
    /// [v=9] [note=] [retention=1h] [epoch=3] [topic-id=7]` · `fetch t/0…|all [stable] [topic-id=]` · `describe` · `list [states=]
    /// [types=]` · `delete` · `delete-offsets t/0…` · `topics-deleted t…` · `advance 3s` (deadline by deadline) · `live 8d WHO` (heartbeating) ·
    /// `hold`, `release` (one), `fail [CODE]`, `flow` (writes) · `limit 2` (group.max.size from the next restart) · `restart`.
    fn command(&mut self, line: &str) {
        let mut words = Words::of(line);
        let verb = words.next();
        match verb {
            "advance" => self.advance(duration(words.next())),
            "live" => self.live(duration(words.next()), words.next()),
            "hold" => self.held = true,
            "flow" => self.held = false,
            "release" => self.complete(None),
            "fail" => self.complete(Some(match words.plain.pop_front() {
                None | Some("16") => GroupError::NotCoordinator,
                Some("15") => GroupError::CoordinatorNotAvailable,
                Some("-1") => GroupError::Unexpected,
                Some(other) => panic!("no such failure: {other}"),
            })),
            "limit" => self.settings.max_size = words.next().parse().unwrap(),
            "restart" => self.restart(),
            _ => {
                let asker = match words.plain.front() {
                    Some(&who) if !matches!(verb, "fetch" | "delete-offsets" | "topics-deleted") => who,
                    _ => "-",
                };
                let (asker, command) = (asker.to_owned(), self.question(verb, words));
                self.ask(&asker, command);
            }
        }
        if !self.held {
            self.complete(None);
        }
    }

    fn question(&self, verb: &str, mut words: Words<'_>) -> GroupCommand {
        let group_id = words.text("group", "g");
        match verb {
            "join" => {
                let who = words.next();
                let topics = words.get("topics").unwrap_or("t");
                let metadata = if topics == "?" { Bytes::from_static(b"?") } else { subscription(topics) };
                let named = |name: &str| Protocol { name: name.into(), metadata: metadata.clone() };
                let protocols = words.get("protocols").unwrap_or("range");
                GroupCommand::Join(JoinRequest {
                    group_id,
                    member_id: self.member_id(who, &words),
                    instance_id: words.get("instance").map(Arc::from),
                    client_id: who.into(),
                    client_host: "/127.0.0.1".into(),
                    session_timeout_ms: words.milliseconds("session", 10_000),
                    rebalance_timeout_ms: words.milliseconds("rebalance", 60_000),
                    protocol_type: words.text("type", "consumer"),
                    protocols: protocols.split(',').filter(|name| !name.is_empty()).map(named).collect(),
                    version: words.number("v", 9),
                })
            }
            "sync" => {
                let who = words.next();
                let share = |pair: &str| {
                    let (client, share) = pair.split_once(':').expect("client:share");
                    (self.id_of(client), Bytes::copy_from_slice(share.as_bytes()))
                };
                GroupCommand::Sync(SyncRequest {
                    member: self.member(who, &words, group_id),
                    protocol_type: words.get("type").map(Arc::from),
                    protocol: words.get("protocol").map(Arc::from),
                    assignments: words.get("shares").map(|all| all.split(',').map(share).collect()).unwrap_or_default(),
                })
            }
            "heartbeat" => GroupCommand::Heartbeat(self.member(words.next(), &words, group_id)),
            "leave" => {
                let leaving = |who: &str| Leaving {
                    member_id: self.id_of(who),
                    instance_id: words.get("instance").map(Arc::from),
                    reason: None,
                };
                let by_instance = words.plain.is_empty().then(|| Leaving { member_id: "".into(), ..leaving("") });
                let members = words.plain.iter().map(|who| leaving(who)).chain(by_instance).collect();
                GroupCommand::Leave(LeaveRequest { group_id, members })
            }
            "commit" => {
                let who = words.next();
                let partition = |word: &str| {
                    let (at, offset) = word.split_once(':').expect("topic/partition:offset");
                    let (topic, partition) = place(at);
                    CommitPartition {
                        topic,
                        topic_id: topic_id(&words).unwrap_or(TopicId::ZERO),
                        partition,
                        offset: offset.parse().unwrap(),
                        leader_epoch: LeaderEpoch::new(words.number("epoch", -1)),
                        metadata: words.text("note", ""),
                    }
                };
                let partitions = words.plain.iter().map(|word| partition(word)).collect();
                GroupCommand::OffsetCommit(CommitRequest {
                    member: self.member(who, &words, group_id),
                    retention: words.get("retention").map(duration),
                    version: words.number("v", 9),
                    partitions,
                })
            }
            "fetch" => {
                let stable = words.plain.contains(&"stable");
                let places = words.plain.iter().filter(|word| word.contains('/')).map(|word| {
                    let (topic, partition) = place(word);
                    (topic, topic_id(&words), partition)
                });
                let all = words.plain.contains(&"all");
                GroupCommand::OffsetFetch(FetchRequest {
                    group_id,
                    partitions: if all { FetchWhich::All } else { FetchWhich::These(places.collect()) },
                    stability: if stable { Stability::AfterPendingCommits } else { Stability::Durable },
                })
            }
            "describe" => GroupCommand::Describe(group_id),
            "list" => {
                let split = |name| words.get(name).map(|all: &str| all.split(',').map(String::from).collect());
                GroupCommand::List(ListFilter {
                    states: split("states").unwrap_or_default(),
                    types: split("types").unwrap_or_default(),
                })
            }
            "delete" => GroupCommand::DeleteGroup(group_id),
            "delete-offsets" => GroupCommand::OffsetDelete(OffsetDeleteRequest {
                group_id,
                partitions: words.plain.iter().map(|word| place(word)).collect(),
            }),
            "topics-deleted" => {
                GroupCommand::TopicsDeleted(words.plain.iter().map(|topic| TopicName::from(*topic)).collect())
            }
            _ => panic!("no such command: {verb}"),
        }
    }

    /// The member id a client learned; any other word stands for itself.
    fn id_of(&self, client: &str) -> MemberId {
        self.known.get(client).map_or_else(|| client.into(), |known| known.0.clone())
    }

    fn member_id(&self, who: &str, words: &Words<'_>) -> MemberId {
        match words.get("id") {
            Some("-") => "".into(),
            Some(other) => self.id_of(other),
            None => self.known.get(who).map(|known| known.0.clone()).unwrap_or_default(),
        }
    }

    fn member(&self, who: &str, words: &Words<'_>, group_id: GroupId) -> MemberRequest {
        MemberRequest {
            group_id,
            generation: words.number("gen", self.known.get(who).map_or(-1, |known| known.1)),
            member_id: self.member_id(who, words),
            instance_id: words.get("instance").map(Arc::from),
        }
    }

    fn ask(&mut self, asker: &str, command: GroupCommand) {
        self.tickets += 1;
        self.randoms += 1;
        let (ticket, mut fx) = (Ticket(self.tickets), Effects::default());
        self.askers.insert(ticket, asker.to_owned());
        self.partition.on_command(self.now(), ticket, command, self.randoms, &mut fx);
        self.take(fx);
    }

    fn take(&mut self, fx: Effects) {
        self.partition.check();
        for (ticket, answer) in fx.replies {
            let asker = self.askers.remove(&ticket).expect("answered once");
            self.learn(&asker, &answer);
            let text = self.shown(&answer);
            writeln!(self.trace, "{asker} <- {text}").unwrap();
        }
        for (id, records) in fx.writes {
            for record in &records {
                let text = self.shown_record(record);
                writeln!(self.trace, "write {text}").unwrap();
            }
            self.pending.push_back((id, records));
        }
    }

    /// Completes every pending write, and those that follow from it.
    fn complete(&mut self, error: Option<GroupError>) {
        while let Some((id, records)) = self.pending.pop_front() {
            if error.is_none() {
                self.log.extend(records.iter().map(|record| record.encode().expect("short strings")));
            }
            let mut fx = Effects::default();
            self.partition.on_written(self.now(), id, error.map_or(Ok(()), Err), &mut fx);
            self.take(fx);
            if self.held {
                break;
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        let end = self.elapsed + by;
        while let Some(at) = self.partition.next_deadline().filter(|at| *at <= end) {
            self.elapsed = self.elapsed.max(at);
            let mut fx = Effects::default();
            self.partition.on_tick(self.now(), &mut fx);
            if !fx.replies.is_empty() || !fx.writes.is_empty() {
                writeln!(self.trace, "at {:?}", self.elapsed).unwrap();
            }
            self.take(fx);
            if !self.held {
                self.complete(None);
            }
        }
        self.elapsed = end;
    }

    /// Time passes while a member heartbeats. Only other answers are traced.
    fn live(&mut self, by: Duration, who: &str) {
        let end = self.elapsed + by;
        while self.elapsed < end {
            self.advance(Duration::from_secs(300));
            let heartbeat = GroupCommand::Heartbeat(self.member(who, &Words::of(""), "g".into()));
            self.ask(who, heartbeat);
            let ok = format!("{who} <- ok\n");
            self.trace.truncate(self.trace.strip_suffix(&ok).map_or(self.trace.len(), str::len));
        }
    }

    fn restart(&mut self) {
        let before = self.partition.snapshot();
        for (ticket, answer) in self.partition.on_unload(self.now()) {
            let asker = self.askers.remove(&ticket).expect("answered once");
            let text = self.shown(&answer);
            writeln!(self.trace, "{asker} <- {text}").unwrap();
        }
        self.pending.clear();
        self.partition = Partition::new(self.settings.clone());
        for (key, value) in &self.log {
            let record = Record::parse(key, value.as_deref()).expect("our own records").expect("of our kinds");
            self.partition.replay(record);
        }
        for (group_id, after) in self.partition.snapshot() {
            let before = &before[&group_id];
            assert_eq!(before.offsets, after.offsets, "offsets of {group_id} after a restart");
            assert!(before.value.is_none() || before.value == after.value, "{group_id}: {before:?} became {after:?}");
        }
        let mut fx = Effects::default();
        self.partition.on_loaded(self.now(), &mut fx);
        self.take(fx);
    }

    fn learn(&mut self, asker: &str, answer: &GroupAnswer) {
        match answer {
            GroupAnswer::Join(Ok(joined)) => {
                self.known.insert(asker.to_owned(), (joined.member_id.clone(), joined.generation));
            }
            GroupAnswer::Join(Err(refused)) if refused.error == GroupError::MemberIdRequired => {
                self.known.insert(asker.to_owned(), (refused.member_id.clone(), -1));
            }
            _ => {}
        }
    }

    /// `name#7` for `name-00000000-0000-4000-8000-000000000007`.
    fn short(&self, id: &str) -> String {
        match id.rsplit_once("-0000-4000-8000-") {
            Some((prefix, number)) => {
                let name = prefix.strip_suffix("-00000000").expect("small randoms");
                format!("{name}#{}", u64::from_str_radix(number, 16).unwrap())
            }
            None if id.is_empty() => "none".to_owned(),
            None => id.to_owned(),
        }
    }

    fn shown(&self, answer: &GroupAnswer) -> String {
        let error = |error: &GroupError| format!("{error:?}");
        let share = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        match answer {
            GroupAnswer::Join(Ok(joined)) => {
                let member = |member: &JoinedMember| {
                    let id = self.short(&member.member_id);
                    member.instance_id.as_ref().map_or(id.clone(), |instance| format!("{id}({instance})"))
                };
                let members: Vec<String> = joined.members.iter().map(member).collect();
                let protocol = joined.protocol.as_deref().unwrap_or("none");
                let skip = if joined.skip_assignment { " skip assignment" } else { "" };
                format!(
                    "generation {} as {} of {}, leader {}, {protocol}, members [{}]{skip}",
                    joined.generation,
                    self.short(&joined.member_id),
                    joined.protocol_type.as_deref().unwrap_or("none"),
                    self.short(&joined.leader),
                    members.join(" ")
                )
            }
            GroupAnswer::Join(Err(refused)) => format!("{:?}, id {}", refused.error, self.short(&refused.member_id)),
            GroupAnswer::Sync(Ok(synced)) => {
                let protocol = synced.protocol.as_deref().unwrap_or("none");
                format!("share '{}' of {protocol}", share(&synced.assignment))
            }
            GroupAnswer::Heartbeat(Ok(())) | GroupAnswer::DeleteGroup(Ok(())) => "ok".to_owned(),
            GroupAnswer::Leave(Ok(left)) => {
                let one = |left: &Left| {
                    let name = match &left.instance_id {
                        Some(instance) => format!("{}({instance})", self.short(&left.member_id)),
                        None => self.short(&left.member_id),
                    };
                    format!("{name} {}", left.error.as_ref().map_or("left".to_owned(), error))
                };
                left.iter().map(one).collect::<Vec<_>>().join(", ")
            }
            GroupAnswer::OffsetCommit(Ok(results)) | GroupAnswer::OffsetDelete(Ok(results)) => {
                let one = |result: &PartitionResult| {
                    let outcome = result.error.as_ref().map_or("ok".to_owned(), error);
                    format!("{}/{} {outcome}", result.topic, result.partition)
                };
                results.iter().map(one).collect::<Vec<_>>().join(", ")
            }
            GroupAnswer::OffsetFetch(Ok(offsets)) => {
                let one = |fetched: &FetchedOffset| {
                    let at = format!("{}/{}", fetched.topic, fetched.partition);
                    fetched
                        .committed
                        .as_ref()
                        .map_or(format!("{at} none"), |known| format!("{at} {}", shown_offset(known)))
                };
                let all: Vec<String> = offsets.iter().map(one).collect();
                if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
            }
            GroupAnswer::Describe(Ok(group)) => {
                let member = |member: &DescribedMember| {
                    let subscribed = if member.metadata.is_empty() { "" } else { " subscribed" };
                    let id = self.short(&member.member_id);
                    format!(" {id}{}'{}'{subscribed}", member.client_host, share(&member.assignment))
                };
                let members: String = group.members.iter().map(member).collect();
                format!("{} type '{}' protocol '{}'{members}", group.state, group.protocol_type, group.protocol)
            }
            GroupAnswer::List(Ok(groups)) => {
                let one = |group: &ListedGroup| format!("{} {} '{}'", group.group_id, group.state, group.protocol_type);
                let all: Vec<String> = groups.iter().map(one).collect();
                if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
            }
            GroupAnswer::TopicsDeleted => "heard".to_owned(),
            GroupAnswer::Sync(Err(refused))
            | GroupAnswer::Heartbeat(Err(refused))
            | GroupAnswer::Leave(Err(refused))
            | GroupAnswer::OffsetCommit(Err(refused))
            | GroupAnswer::OffsetFetch(Err(refused))
            | GroupAnswer::Describe(Err(refused))
            | GroupAnswer::List(Err(refused))
            | GroupAnswer::DeleteGroup(Err(refused))
            | GroupAnswer::OffsetDelete(Err(refused)) => error(refused),
        }
    }

    fn shown_record(&self, record: &Record) -> String {
        match record {
            Record::Offset { group_id, topic, partition, value } => {
                let value = value.as_ref().map_or("forgotten".to_owned(), shown_offset);
                format!("{group_id} {topic}/{partition} {value}")
            }
            Record::Group { group_id, value: None } => format!("{group_id} deleted"),
            Record::Group { group_id, value: Some(value) } => {
                let member = |member: &ringlog::coordinator::records::MemberValue| {
                    format!(" {}'{}'", self.short(&member.member_id), String::from_utf8_lossy(&member.assignment))
                };
                let members: String = value.members.iter().map(member).collect();
                let protocol = value.protocol.as_deref().unwrap_or("none");
                let leader = self.short(value.leader.as_deref().unwrap_or_default());
                format!("{group_id} generation {} {protocol} leader {leader}{members}", value.generation)
            }
        }
    }
}

fn topic_id(words: &Words<'_>) -> Option<TopicId> {
    words.get("topic-id").map(|number| TopicId::from_bytes([number.parse().unwrap(); 16]))
}

fn shown_offset(known: &Committed) -> String {
    let mut text = known.offset.to_string();
    if let Some(epoch) = known.leader_epoch {
        write!(text, " epoch {epoch}").unwrap();
    }
    if !known.metadata.is_empty() {
        write!(text, " '{}'", known.metadata).unwrap();
    }
    if let Some(expires_at) = known.expires_at {
        write!(text, " until {}", expires_at - WALL_START).unwrap();
    }
    text
}

fn settings() -> GroupSettings {
    GroupSettings {
        initial_rebalance_delay: Duration::from_secs(3),
        min_session_timeout: Duration::from_secs(6),
        max_session_timeout: Duration::from_secs(1800),
        max_size: 1000,
        offset_metadata_max: 16,
        offsets_retention: duration("7d"),
        retention_check_interval: duration("10m"),
    }
}

/// The file with its traces as they are now.
fn played(text: &str) -> String {
    let mut world = World::new(settings());
    let mut out = String::new();
    let mut in_trace = false;
    for line in text.lines() {
        if line == "----" {
            in_trace = true;
            writeln!(out, "----").unwrap();
            out.push_str(&std::mem::take(&mut world.trace));
            continue;
        }
        if in_trace && !line.is_empty() {
            continue;
        }
        in_trace = false;
        writeln!(out, "{line}").unwrap();
        if !line.is_empty() && !line.starts_with('#') {
            world.command(line);
        }
    }
    assert!(world.trace.is_empty(), "the last block has no ----");
    out
}

#[test]
fn scenarios_end_as_written() {
    let rewrite = std::env::var_os("RINGLOG_REWRITE").is_some();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let mut different = Vec::new();
    for path in paths {
        let expected = std::fs::read_to_string(&path).unwrap();
        let actual = played(&expected);
        if rewrite {
            std::fs::write(&path, &actual).unwrap();
        } else if actual != expected {
            let line = actual.lines().zip(expected.lines()).position(|(a, b)| a != b);
            let shown = |text: &str| line.and_then(|line| text.lines().nth(line).map(String::from)).unwrap_or_default();
            let at = line.map_or("the end".to_owned(), |line| format!("line {}", line + 1));
            different.push(format!(
                "{} at {at}:\n  is   {}\n  want {}",
                path.display(),
                shown(&actual),
                shown(&expected)
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
