//! The records of `__consumer_offsets`, byte for byte as Kafka writes them.
//!
//! Pure. Owns the formats of keys and values: OffsetCommitKey v0–1, OffsetCommitValue v0–4, GroupMetadataKey v2 and
//! GroupMetadataValue v0–4 are read; v1, v4, v2 and v3 are written, as Kafka 4.4 does (an offset with its own retention
//! goes out as value v1, the only version that has the field). Always: a key of a kind we do not know is passed over (the
//! newer group protocols keep theirs in the same topic), but a known key with a value of an unknown version is an error,
//! never a guess (KAFKA-18672): an older offset served in its place would be a step back. Source: Kafka's
//! `group-coordinator` message schemas; its DumpLogSegments with `--offsets-decoder` reads what is written here.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::command::{Committed, GroupId, MemberId};
use crate::types::{LeaderEpoch, PartitionIndex, TimestampMs, TopicId, TopicName};

const OFFSET_KEY_WRITTEN: i16 = 1;
const GROUP_KEY: i16 = 2;
const OFFSET_VALUE_WITH_EXPIRY: i16 = 1;
const OFFSET_VALUE_WRITTEN: i16 = 4;
const GROUP_VALUE_WRITTEN: i16 = 3;
/// The newest version of both values; it is also the first with compact fields and tags.
const VALUE_NEWEST: i16 = 4;
/// The tag of the topic id in OffsetCommitValue v4 (Kafka 4.1).
const TOPIC_ID_TAG: u32 = 0;

/// One record: a key and what holds for it from here on; without a value it is a tombstone.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// A committed offset.
    Offset {
        /// Whose.
        group_id: GroupId,
        /// Of which topic.
        topic: TopicName,
        /// And partition.
        partition: PartitionIndex,
        /// `None`: forgotten.
        value: Option<Committed>,
    },
    /// A group as it became stable or empty.
    Group {
        /// Which.
        group_id: GroupId,
        /// `None`: deleted.
        value: Option<GroupValue>,
    },
}

/// A group as the log keeps it.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupValue {
    /// Empty if no member ever joined.
    pub protocol_type: Arc<str>,
    /// Of this assignment.
    pub generation: i32,
    /// `None` when empty.
    pub protocol: Option<Arc<str>>,
    /// `None` when empty.
    pub leader: Option<MemberId>,
    /// Since when the group is in its state; `None` in records older than v2.
    pub state_since: Option<TimestampMs>,
    /// Stable members with their shares; none: the group is Empty.
    pub members: Vec<MemberValue>,
}

/// A member as the log keeps it.
#[derive(Clone, PartialEq, Debug)]
pub struct MemberValue {
    /// Its id.
    pub member_id: MemberId,
    /// `None` for dynamic members and in records older than v3.
    pub instance_id: Option<Arc<str>>,
    /// From its requests.
    pub client_id: Arc<str>,
    /// From its connection.
    pub client_host: Arc<str>,
    /// In records of v0 the session timeout stands for it.
    pub rebalance_timeout_ms: i32,
    /// How long it may be silent.
    pub session_timeout_ms: i32,
    /// Its metadata for the chosen protocol.
    pub subscription: Bytes,
    /// Its share.
    pub assignment: Bytes,
}

/// Why bytes of a known kind could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// Written by a newer version, or not by a coordinator.
    #[error("{what} of version {version}; up to 4 is known")]
    UnknownVersion {
        /// Which value.
        what: &'static str,
        /// As it stands in the bytes.
        version: i16,
    },
    /// Ends early, or a length is impossible.
    #[error("the record is cut short or malformed")]
    Malformed,
}

/// A string longer than Kafka's format can hold (32,767 bytes).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a string of {bytes} bytes does not fit a record")]
pub struct TooLong {
    /// Its length.
    pub bytes: usize,
}

impl Record {
    /// The bytes of key and value.
    pub fn encode(&self) -> Result<(Bytes, Option<Bytes>), TooLong> {
        let mut key = BytesMut::new();
        match self {
            Self::Offset { group_id, topic, partition, value } => {
                key.put_i16(OFFSET_KEY_WRITTEN);
                put_string(&mut key, group_id)?;
                put_string(&mut key, topic)?;
                key.put_i32(partition.value());
                Ok((key.freeze(), value.as_ref().map(encode_committed).transpose()?))
            }
            Self::Group { group_id, value } => {
                key.put_i16(GROUP_KEY);
                put_string(&mut key, group_id)?;
                Ok((key.freeze(), value.as_ref().map(encode_group).transpose()?))
            }
        }
    }

    /// About how many bytes it takes in a batch; never much less.
    pub(super) fn size_hint(&self) -> usize {
        /// Lengths, numbers, and the frame of a record in a batch.
        const FIXED: usize = 80;
        match self {
            Self::Offset { group_id, topic, value, .. } => {
                FIXED + group_id.len() + topic.len() + value.as_ref().map_or(0, |committed| committed.metadata.len())
            }
            Self::Group { group_id, value } => {
                let member = |member: &MemberValue| {
                    let names = member.member_id.len() + member.client_id.len() + member.client_host.len();
                    FIXED + names + member.subscription.len() + member.assignment.len()
                };
                let members = value.iter().flat_map(|value| &value.members);
                FIXED + group_id.len() + members.map(member).sum::<usize>()
            }
        }
    }

    /// Reads a record; `Ok(None)` if its key is of a kind that is not ours.
    pub fn parse(key: &[u8], value: Option<&[u8]>) -> Result<Option<Self>, RecordError> {
        let mut fields = Fields::new(key);
        match fields.int16()? {
            0 | OFFSET_KEY_WRITTEN => Ok(Some(Self::Offset {
                group_id: fields.string()?.into(),
                topic: fields.string()?.into(),
                partition: PartitionIndex::new(fields.int32()?).ok_or(RecordError::Malformed)?,
                value: value.map(parse_committed).transpose()?,
            })),
            GROUP_KEY => {
                Ok(Some(Self::Group { group_id: fields.string()?.into(), value: value.map(parse_group).transpose()? }))
            }
            _ => Ok(None),
        }
    }
}

fn encode_committed(committed: &Committed) -> Result<Bytes, TooLong> {
    let mut out = BytesMut::new();
    if let Some(expires_at) = committed.expires_at {
        // Leader epoch and topic id do not fit this version; Kafka drops them too.
        out.put_i16(OFFSET_VALUE_WITH_EXPIRY);
        out.put_i64(committed.offset);
        put_string(&mut out, &committed.metadata)?;
        out.put_i64(committed.committed_at);
        out.put_i64(expires_at);
    } else {
        out.put_i16(OFFSET_VALUE_WRITTEN);
        out.put_i64(committed.offset);
        out.put_i32(committed.leader_epoch.map_or(-1, LeaderEpoch::value));
        put_uvarint(&mut out, committed.metadata.len() as u32 + 1);
        out.put_slice(committed.metadata.as_bytes());
        out.put_i64(committed.committed_at);
        if committed.topic_id == TopicId::ZERO {
            put_uvarint(&mut out, 0);
        } else {
            for number in [1, TOPIC_ID_TAG, 16] {
                put_uvarint(&mut out, number);
            }
            out.put_slice(&committed.topic_id.to_bytes());
        }
    }
    Ok(out.freeze())
}

fn parse_committed(bytes: &[u8]) -> Result<Committed, RecordError> {
    let mut fields = Fields::new(bytes);
    let version = fields.version("OffsetCommitValue")?;
    let offset = fields.int64()?;
    let leader_epoch = if version >= 3 { LeaderEpoch::new(fields.int32()?) } else { None };
    let metadata = fields.string()?.into();
    let committed_at = fields.int64()?;
    let expires_at = if version == 1 { Some(fields.int64()?).filter(|&at| at >= 0) } else { None };
    let topic_id = fields.tag(TOPIC_ID_TAG)?.map_or(Ok(TopicId::ZERO), |bytes| {
        bytes.try_into().map(TopicId::from_bytes).map_err(|_| RecordError::Malformed)
    })?;
    Ok(Committed { offset, leader_epoch, metadata, committed_at, expires_at, topic_id })
}

fn encode_group(group: &GroupValue) -> Result<Bytes, TooLong> {
    let mut out = BytesMut::new();
    out.put_i16(GROUP_VALUE_WRITTEN);
    put_string(&mut out, &group.protocol_type)?;
    out.put_i32(group.generation);
    put_nullable_string(&mut out, group.protocol.as_deref())?;
    put_nullable_string(&mut out, group.leader.as_deref())?;
    out.put_i64(group.state_since.unwrap_or(-1));
    out.put_i32(group.members.len() as i32);
    for member in &group.members {
        put_string(&mut out, &member.member_id)?;
        put_nullable_string(&mut out, member.instance_id.as_deref())?;
        put_string(&mut out, &member.client_id)?;
        put_string(&mut out, &member.client_host)?;
        out.put_i32(member.rebalance_timeout_ms);
        out.put_i32(member.session_timeout_ms);
        for bytes in [&member.subscription, &member.assignment] {
            out.put_i32(bytes.len() as i32);
            out.put_slice(bytes);
        }
    }
    Ok(out.freeze())
}

fn parse_group(bytes: &[u8]) -> Result<GroupValue, RecordError> {
    let mut fields = Fields::new(bytes);
    let version = fields.version("GroupMetadataValue")?;
    let protocol_type = fields.string()?.into();
    let generation = fields.int32()?;
    let protocol = fields.nullable_string()?.map(Arc::from);
    let leader = fields.nullable_string()?.map(Arc::from);
    let state_since = if version >= 2 { Some(fields.int64()?).filter(|&since| since >= 0) } else { None };
    // The count is not trusted with memory: each member must be there.
    let members = (0..fields.count()?).map(|_| parse_member(&mut fields, version)).collect::<Result<_, _>>()?;
    fields.tag(u32::MAX)?;
    Ok(GroupValue { protocol_type, generation, protocol, leader, state_since, members })
}

fn parse_member(fields: &mut Fields<'_>, version: i16) -> Result<MemberValue, RecordError> {
    let member_id = fields.string()?.into();
    let instance_id = if version >= 3 { fields.nullable_string()?.map(Arc::from) } else { None };
    let client_id = fields.string()?.into();
    let client_host = fields.string()?.into();
    let rebalance_timeout_ms = if version >= 1 { fields.int32()? } else { -1 };
    let session_timeout_ms = fields.int32()?;
    let member = MemberValue {
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms: if rebalance_timeout_ms < 0 { session_timeout_ms } else { rebalance_timeout_ms },
        session_timeout_ms,
        subscription: Bytes::copy_from_slice(fields.bytes()?),
        assignment: Bytes::copy_from_slice(fields.bytes()?),
    };
    fields.tag(u32::MAX)?;
    Ok(member)
}

fn put_string(out: &mut BytesMut, text: &str) -> Result<(), TooLong> {
    let length = i16::try_from(text.len()).map_err(|_| TooLong { bytes: text.len() })?;
    out.put_i16(length);
    out.put_slice(text.as_bytes());
    Ok(())
}

fn put_nullable_string(out: &mut BytesMut, text: Option<&str>) -> Result<(), TooLong> {
    match text {
        Some(text) => put_string(out, text),
        None => {
            out.put_i16(-1);
            Ok(())
        }
    }
}

fn put_uvarint(out: &mut BytesMut, mut number: u32) {
    while number >= 0x80 {
        out.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

/// Reads Kafka's fields off the front of borrowed bytes; every length is checked against what is there.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    /// Lengths are compact and structures end in tags.
    flexible: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, flexible: false }
    }

    /// The leading version of a value; from here on lengths are read as that version has them.
    fn version(&mut self, what: &'static str) -> Result<i16, RecordError> {
        let version = self.int16()?;
        if !(0..=VALUE_NEWEST).contains(&version) {
            return Err(RecordError::UnknownVersion { what, version });
        }
        self.flexible = version >= VALUE_NEWEST;
        Ok(version)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(RecordError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(RecordError::Malformed)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn int16(&mut self) -> Result<i16, RecordError> {
        self.array().map(i16::from_be_bytes)
    }

    pub(super) fn int32(&mut self) -> Result<i32, RecordError> {
        self.array().map(i32::from_be_bytes)
    }

    fn int64(&mut self) -> Result<i64, RecordError> {
        self.array().map(i64::from_be_bytes)
    }

    fn uvarint(&mut self) -> Result<u32, RecordError> {
        let mut number = 0u64;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(number).map_err(|_| RecordError::Malformed);
            }
        }
        Err(RecordError::Malformed)
    }

    /// A compact length is one more than it says; zero is null.
    fn compact_length(&mut self) -> Result<Option<usize>, RecordError> {
        Ok(self.uvarint()?.checked_sub(1).map(|length| length as usize))
    }

    pub(super) fn string(&mut self) -> Result<&'a str, RecordError> {
        self.nullable_string()?.ok_or(RecordError::Malformed)
    }

    fn nullable_string(&mut self) -> Result<Option<&'a str>, RecordError> {
        let length = if self.flexible { self.compact_length()? } else { usize::try_from(self.int16()?).ok() };
        length.map(|length| std::str::from_utf8(self.take(length)?).map_err(|_| RecordError::Malformed)).transpose()
    }

    fn bytes(&mut self) -> Result<&'a [u8], RecordError> {
        let length = self.count()?;
        self.take(length as usize)
    }

    /// The length of an array or of bytes, neither of which may be null here.
    fn count(&mut self) -> Result<u32, RecordError> {
        let length = if self.flexible { self.uvarint()?.checked_sub(1) } else { u32::try_from(self.int32()?).ok() };
        length.ok_or(RecordError::Malformed)
    }

    /// Reads the tags that end a structure of a flexible version, and returns the bytes of the one asked for.
    fn tag(&mut self, wanted: u32) -> Result<Option<&'a [u8]>, RecordError> {
        let mut found = None;
        let count = if self.flexible { self.uvarint()? } else { 0 };
        for _ in 0..count {
            let tag = self.uvarint()?;
            let length = self.uvarint()?;
            let bytes = self.take(length as usize)?;
            if tag == wanted {
                found = Some(bytes);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(expires_at: Option<TimestampMs>) -> Committed {
        Committed {
            offset: 7,
            leader_epoch: if expires_at.is_some() { None } else { LeaderEpoch::new(3) },
            metadata: "note".into(),
            committed_at: 1_795_987_153_990,
            expires_at,
            topic_id: if expires_at.is_some() { TopicId::ZERO } else { TopicId::from_bytes([9; 16]) },
        }
    }

    fn offset_record(value: Option<Committed>) -> Record {
        Record::Offset { group_id: "g".into(), topic: "t".into(), partition: PartitionIndex::new(2).unwrap(), value }
    }

    fn group_record() -> Record {
        let member = |id: &str, instance: Option<&str>| MemberValue {
            member_id: id.into(),
            instance_id: instance.map(Arc::from),
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            rebalance_timeout_ms: 10_000,
            session_timeout_ms: 20_000,
            subscription: Bytes::from_static(b"sub"),
            assignment: Bytes::from_static(b"share"),
        };
        Record::Group {
            group_id: "g".into(),
            value: Some(GroupValue {
                protocol_type: "consumer".into(),
                generation: 5,
                protocol: Some("range".into()),
                leader: Some("a".into()),
                state_since: Some(12),
                members: vec![member("a", None), member("b", Some("i"))],
            }),
        }
    }

    fn parse(record: &Record) -> Record {
        let (key, value) = record.encode().unwrap();
        Record::parse(&key, value.as_deref()).unwrap().unwrap()
    }

    #[test]
    fn records_read_back_as_they_were_written() {
        for record in [
            offset_record(Some(committed(None))),
            offset_record(Some(committed(Some(99)))),
            offset_record(None),
            group_record(),
            Record::Group { group_id: "".into(), value: None },
        ] {
            assert_eq!(parse(&record), record);
        }
    }

    /// The bytes Kafka 4.4 wrote for the same commit, from its log.
    #[test]
    fn offset_commits_have_kafkas_bytes() {
        let (key, value) = offset_record(Some(committed(None))).encode().unwrap();
        assert_eq!(&key[..], b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x02");
        let mut expected = b"\x00\x04\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x03\x05note".to_vec();
        expected.extend_from_slice(b"\x00\x00\x01\xa2\x29\x2d\x24\x46\x01\x00\x10");
        expected.extend_from_slice(&[9; 16]);
        assert_eq!(value.unwrap(), expected);
    }

    /// The first two records of a group in a log of Kafka 4.4, up to the first member's id.
    #[test]
    fn groups_have_kafkas_bytes() {
        let empty = GroupValue {
            protocol_type: "".into(),
            generation: 0,
            protocol: None,
            leader: None,
            state_since: Some(0x0000_01a2_292d_2431),
            members: vec![],
        };
        let (key, value) = Record::Group { group_id: "g3-zn962".into(), value: Some(empty) }.encode().unwrap();
        assert_eq!(&key[..], b"\x00\x02\x00\x08g3-zn962");
        let expected =
            b"\x00\x03\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x01\xa2\x29\x2d\x24\x31\x00\x00\x00\x00";
        assert_eq!(&value.unwrap()[..], expected);

        let (_, value) = group_record().encode().unwrap();
        let expected = b"\x00\x03\x00\x08consumer\x00\x00\x00\x05\x00\x05range\x00\x01a\
            \x00\x00\x00\x00\x00\x00\x00\x0c\x00\x00\x00\x02\
            \x00\x01a\xff\xff\x00\x01c\x00\x0a/127.0.0.1\x00\x00\x27\x10\x00\x00\x4e\x20\
            \x00\x00\x00\x03sub\x00\x00\x00\x05share\
            \x00\x01b\x00\x01i\x00\x01c\x00\x0a/127.0.0.1\x00\x00\x27\x10\x00\x00\x4e\x20\
            \x00\x00\x00\x03sub\x00\x00\x00\x05share";
        assert_eq!(&value.unwrap()[..], expected);
    }

    #[test]
    fn older_versions_are_read() {
        let key = b"\x00\x00\x00\x01g\x00\x01t\x00\x00\x00\x00";
        let v0 = b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05";
        let Some(Record::Offset { value: Some(value), .. }) = Record::parse(key, Some(v0)).unwrap() else { panic!() };
        assert_eq!((value.offset, value.leader_epoch, value.committed_at, value.expires_at), (9, None, 5, None));

        // v0 of a group: no state timestamp, no rebalance timeout, no instance id.
        let v0 = b"\x00\x00\x00\x08consumer\x00\x00\x00\x01\x00\x05range\x00\x01a\x00\x00\x00\x01\
            \x00\x01a\x00\x01c\x00\x01h\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00";
        let parsed = Record::parse(b"\x00\x02\x00\x01g", Some(v0)).unwrap();
        let Some(Record::Group { value: Some(group), .. }) = parsed else { panic!() };
        assert_eq!(group.state_since, None);
        assert_eq!((group.members[0].rebalance_timeout_ms, group.members[0].session_timeout_ms), (7, 7));
    }

    #[test]
    fn the_flexible_group_value_is_read() {
        let v4 = b"\x00\x04\x09consumer\x00\x00\x00\x01\x06range\x02a\x00\x00\x00\x00\x00\x00\x00\x03\x02\
            \x02a\x00\x02c\x02h\x00\x00\x00\x08\x00\x00\x00\x07\x02s\x03as\x01\x05\x01x\x00";
        let parsed = Record::parse(b"\x00\x02\x00\x01g", Some(v4)).unwrap();
        let Some(Record::Group { value: Some(group), .. }) = parsed else { panic!() };
        assert_eq!(group.state_since, Some(3));
        assert_eq!((&group.members[0].subscription[..], &group.members[0].assignment[..]), (&b"s"[..], &b"as"[..]));
    }

    #[test]
    fn values_of_the_future_are_refused_and_keys_of_other_kinds_passed_over() {
        let (key, _) = offset_record(None).encode().unwrap();
        let error = RecordError::UnknownVersion { what: "OffsetCommitValue", version: 5 };
        assert_eq!(Record::parse(&key, Some(b"\x00\x05")), Err(error));
        assert_eq!(Record::parse(b"\x00\x03\x00\x01g", Some(b"\x00\x00")), Ok(None));
        assert_eq!(Record::parse(b"\x00", None), Err(RecordError::Malformed));
    }

    #[test]
    fn records_cut_anywhere_are_errors() {
        for record in [offset_record(Some(committed(None))), offset_record(Some(committed(Some(1)))), group_record()] {
            let (key, value) = record.encode().unwrap();
            let value = value.unwrap();
            for cut in 0..value.len() {
                assert_eq!(Record::parse(&key, Some(&value[..cut])), Err(RecordError::Malformed), "cut at {cut}");
            }
            for cut in 0..key.len() {
                assert_eq!(Record::parse(&key[..cut], Some(&value)), Err(RecordError::Malformed), "key cut at {cut}");
            }
        }
    }

    #[test]
    fn absurd_counts_take_no_memory() {
        let claims_two_billion =
            b"\x00\x03\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff";
        let parsed = Record::parse(b"\x00\x02\x00\x01g", Some(claims_two_billion));
        assert_eq!(parsed, Err(RecordError::Malformed));
    }

    #[test]
    fn strings_beyond_the_format_are_refused() {
        let record = Record::Group { group_id: "x".repeat(40_000).into(), value: None };
        assert_eq!(record.encode(), Err(TooLong { bytes: 40_000 }));
    }
}
