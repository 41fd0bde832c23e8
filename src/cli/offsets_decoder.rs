//! Records of `__consumer_offsets` as JSON people can read.
//!
//! Pure. Owns the rendering; the bytes are `coordinator::records`' matter, and what members of a consumer group say in their
//! subscriptions is read here. Always: fields stand in Kafka's order, and only those the record's version has. Source: Kafka 4.4's
//! kafka-dump-log with `--offsets-decoder`, and its OffsetsMessageFormatter.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use crate::coordinator::records::{GroupValue, Record, RecordError};

/// A key and its value, each as one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) key: String,
    /// `<DELETE>` for a tombstone, as Kafka's tool says.
    pub(super) payload: String,
    is_offset: bool,
}

impl Decoded {
    /// Both in one document, if it is a committed offset.
    pub(super) fn as_offset(&self) -> Option<String> {
        let value = if self.payload == "<DELETE>" { "null" } else { &self.payload };
        self.is_offset.then(|| format!("{{\"key\":{},\"value\":{value}}}", self.key))
    }
}

#[derive(Serialize)]
struct Key<D: Serialize> {
    r#type: String,
    data: D,
}

#[derive(Serialize)]
struct Versioned<D: Serialize> {
    version: String,
    data: D,
}

#[derive(Serialize)]
struct OffsetKey<'r> {
    group: &'r str,
    topic: &'r str,
    partition: i32,
}

#[derive(Serialize)]
struct GroupKey<'r> {
    group: &'r str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OffsetData<'r> {
    offset: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader_epoch: Option<i32>,
    metadata: &'r str,
    commit_timestamp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_timestamp: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic_id: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupData<'r> {
    protocol_type: &'r str,
    generation: i32,
    protocol: Option<&'r str>,
    leader: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_state_timestamp: Option<i64>,
    members: Vec<MemberData<'r>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MemberData<'r> {
    member_id: &'r str,
    /// Absent, null, or an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    group_instance_id: Option<Option<&'r str>>,
    client_id: &'r str,
    client_host: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rebalance_timeout: Option<i32>,
    session_timeout: i32,
    subscription: Said,
    assignment: Said,
}

/// What a member said: read, or as it is.
#[derive(Serialize)]
#[serde(untagged)]
enum Said {
    Subscription(Subscription),
    Assignment(Assignment),
    Bytes(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Subscription {
    topics: Vec<String>,
    user_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owned_partitions: Option<Vec<TopicPartitions>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_id: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rack_id: Option<Option<String>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Assignment {
    assigned_partitions: Vec<TopicPartitions>,
    user_data: Option<String>,
}

#[derive(Serialize)]
struct TopicPartitions {
    topic: String,
    partitions: Vec<i32>,
}

fn text(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("strings and numbers are always JSON")
}

/// The version a key or value begins with.
fn version(bytes: &[u8]) -> i16 {
    bytes.first_chunk().map_or(-1, |version| i16::from_be_bytes(*version))
}

/// Reads a record. Errors: bytes of a known kind that cannot be read.
pub(super) fn decoded(key: &[u8], value: Option<&[u8]>) -> Result<Decoded, RecordError> {
    let kind = version(key);
    let wrap = |data: Value| text(&Key { r#type: kind.to_string(), data });
    let Some(record) = Record::parse(key, value)? else {
        // A kind of the newer group protocols: shown as bytes.
        let shown =
            value.map(|value| text(&json!({ "version": version(value).to_string(), "data": STANDARD.encode(value) })));
        return Ok(Decoded {
            key: wrap(json!(STANDARD.encode(key))),
            payload: shown.unwrap_or_else(|| "<DELETE>".to_owned()),
            is_offset: false,
        });
    };
    let of_value = value.map_or(-1, version);
    let named = of_value.to_string();
    Ok(match &record {
        Record::Offset { group_id, topic, partition, value } => Decoded {
            key: text(&Key {
                r#type: kind.to_string(),
                data: OffsetKey { group: group_id, topic, partition: partition.value() },
            }),
            payload: value.as_ref().map_or_else(
                || "<DELETE>".to_owned(),
                |committed| {
                    let data = OffsetData {
                        offset: committed.offset,
                        leader_epoch: (of_value >= 3).then(|| committed.leader_epoch.map_or(-1, |epoch| epoch.value())),
                        metadata: &committed.metadata,
                        commit_timestamp: committed.committed_at,
                        expire_timestamp: (of_value == 1).then(|| committed.expires_at.unwrap_or(-1)),
                        topic_id: (of_value >= 4).then(|| committed.topic_id.to_string()),
                    };
                    text(&Versioned { version: named.clone(), data })
                },
            ),
            is_offset: true,
        },
        Record::Group { group_id, value } => Decoded {
            key: text(&Key { r#type: kind.to_string(), data: GroupKey { group: group_id } }),
            payload: value.as_ref().map_or_else(
                || "<DELETE>".to_owned(),
                |group| text(&Versioned { version: named.clone(), data: group_data(group, of_value) }),
            ),
            is_offset: false,
        },
    })
}

fn group_data(group: &GroupValue, version: i16) -> GroupData<'_> {
    let consumers = &*group.protocol_type == "consumer";
    let member = |member| {
        let member: &crate::coordinator::records::MemberValue = member;
        MemberData {
            member_id: &member.member_id,
            group_instance_id: (version >= 3).then_some(member.instance_id.as_deref()),
            client_id: &member.client_id,
            client_host: &member.client_host,
            rebalance_timeout: (version >= 1).then_some(member.rebalance_timeout_ms),
            session_timeout: member.session_timeout_ms,
            subscription: said(consumers, &member.subscription, |bytes| subscription(bytes).map(Said::Subscription)),
            assignment: said(consumers, &member.assignment, |bytes| assignment(bytes).map(Said::Assignment)),
        }
    };
    GroupData {
        protocol_type: &group.protocol_type,
        generation: group.generation,
        protocol: group.protocol.as_deref(),
        leader: group.leader.as_deref(),
        current_state_timestamp: (version >= 2).then(|| group.state_since.unwrap_or(-1)),
        members: group.members.iter().map(member).collect(),
    }
}

fn said(consumers: bool, bytes: &[u8], read: impl Fn(&[u8]) -> Option<Said>) -> Said {
    let read = if consumers { read(bytes) } else { None };
    read.unwrap_or_else(|| Said::Bytes(STANDARD.encode(bytes)))
}

/// Takes fields off the front of bytes; `None` when they are not there.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn int16(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(*self.take(2)?.first_chunk()?))
    }

    fn int32(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(*self.take(4)?.first_chunk()?))
    }

    fn string(&mut self) -> Option<String> {
        self.nullable_string()?
    }

    /// `Some(None)` is null.
    fn nullable_string(&mut self) -> Option<Option<String>> {
        match usize::try_from(self.int16()?) {
            Err(_) => Some(None),
            Ok(length) => Some(Some(String::from_utf8_lossy(self.take(length)?).into_owned())),
        }
    }

    /// As base64; `Some(None)` is null.
    fn nullable_bytes(&mut self) -> Option<Option<String>> {
        match usize::try_from(self.int32()?) {
            Err(_) => Some(None),
            Ok(length) => Some(Some(STANDARD.encode(self.take(length)?))),
        }
    }

    /// As many as are announced; the count takes no memory before they are there.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.int32()?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(one(self)?);
        }
        Some(list)
    }

    fn partitions(&mut self) -> Option<TopicPartitions> {
        Some(TopicPartitions { topic: self.string()?, partitions: self.list(Self::int32)? })
    }
}

fn subscription(bytes: &[u8]) -> Option<Subscription> {
    let mut fields = Fields(bytes);
    let version = fields.int16()?;
    let since = |first: i16| version >= first;
    Some(Subscription {
        topics: fields.list(Fields::string)?,
        user_data: fields.nullable_bytes()?,
        owned_partitions: if since(1) { Some(fields.list(Fields::partitions)?) } else { None },
        generation_id: if since(2) { Some(fields.int32()?) } else { None },
        rack_id: if since(3) { Some(fields.nullable_string()?) } else { None },
    })
}

fn assignment(bytes: &[u8]) -> Option<Assignment> {
    let mut fields = Fields(bytes);
    fields.int16()?;
    Some(Assignment { assigned_partitions: fields.list(Fields::partitions)?, user_data: fields.nullable_bytes()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::records::MemberValue;
    use crate::types::{PartitionIndex, TopicId};
    use bytes::{BufMut, Bytes, BytesMut};

    fn both(record: &Record) -> Decoded {
        let (key, value) = record.encode().unwrap();
        decoded(&key, value.as_deref()).unwrap()
    }

    #[test]
    fn committed_offsets_look_as_kafka_prints_them() {
        let committed = crate::coordinator::command::Committed {
            offset: 4,
            leader_epoch: None,
            metadata: "".into(),
            committed_at: 1_796_006_561_914,
            expires_at: None,
            topic_id: TopicId::parse("tZMdALe6QIu1oFDP3iYEJw").unwrap(),
        };
        let record = |value| Record::Offset {
            group_id: "g1".into(),
            topic: "s1".into(),
            partition: PartitionIndex::ZERO,
            value,
        };
        let shown = both(&record(Some(committed)));
        assert_eq!(shown.key, r#"{"type":"1","data":{"group":"g1","topic":"s1","partition":0}}"#);
        assert_eq!(
            shown.payload,
            r#"{"version":"4","data":{"offset":4,"leaderEpoch":-1,"metadata":"","commitTimestamp":1796006561914,"topicId":"tZMdALe6QIu1oFDP3iYEJw"}}"#
        );
        assert!(shown.as_offset().unwrap().starts_with(r#"{"key":{"type":"1","#));
        assert_eq!(both(&record(None)).payload, "<DELETE>");
    }

    #[test]
    fn groups_show_what_their_members_said() {
        let mut subscription = BytesMut::new();
        subscription.put_i16(3);
        subscription.put_i32(1);
        subscription.put_i16(2);
        subscription.put_slice(b"s1");
        subscription.put_i32(-1);
        subscription.put_i32(0);
        subscription.put_i32(-1);
        subscription.put_i16(-1);
        let mut assignment = BytesMut::new();
        assignment.put_i16(3);
        assignment.put_i32(1);
        assignment.put_i16(2);
        assignment.put_slice(b"s1");
        assignment.put_i32(1);
        assignment.put_i32(0);
        assignment.put_i32(-1);
        let member = MemberValue {
            member_id: "m".into(),
            instance_id: None,
            client_id: "console-consumer".into(),
            client_host: "/127.0.0.1".into(),
            rebalance_timeout_ms: 300_000,
            session_timeout_ms: 45_000,
            subscription: subscription.freeze(),
            assignment: assignment.freeze(),
        };
        let group = |protocol_type: &str, member: MemberValue| GroupValue {
            protocol_type: protocol_type.into(),
            generation: 1,
            protocol: Some("range".into()),
            leader: Some("m".into()),
            state_since: Some(7),
            members: vec![member],
        };
        let record = |value| Record::Group { group_id: "g1".into(), value: Some(value) };
        assert_eq!(
            both(&record(group("consumer", member.clone()))).payload,
            r#"{"version":"3","data":{"protocolType":"consumer","generation":1,"protocol":"range","leader":"m","currentStateTimestamp":7,"members":[{"memberId":"m","groupInstanceId":null,"clientId":"console-consumer","clientHost":"/127.0.0.1","rebalanceTimeout":300000,"sessionTimeout":45000,"subscription":{"topics":["s1"],"userData":null,"ownedPartitions":[],"generationId":-1,"rackId":null},"assignment":{"assignedPartitions":[{"topic":"s1","partitions":[0]}],"userData":null}}]}}"#
        );
        let other =
            both(&record(group("connect", MemberValue { subscription: Bytes::from_static(b"\x01"), ..member })));
        assert!(other.payload.contains(r#""subscription":"AQ==""#), "{}", other.payload);
    }

    #[test]
    fn kinds_that_are_not_known_are_shown_as_bytes_and_damage_is_an_error() {
        let shown = decoded(&[0, 3, 1], Some(&[0, 0, 9])).unwrap();
        assert_eq!(shown.key, r#"{"type":"3","data":"AAMB"}"#);
        assert!(shown.as_offset().is_none());
        assert!(decoded(&[0, 1], None).is_err());
    }

    #[test]
    fn a_member_that_says_nonsense_is_shown_as_bytes() {
        assert!(subscription(&[0, 3, 0x7f, 0xff, 0xff, 0xff]).is_none());
        assert!(matches!(said(true, b"x", |bytes| subscription(bytes).map(Said::Subscription)), Said::Bytes(_)));
    }
}
