//! Pure. What each fuzz target does with its bytes, and valid inputs to begin from.
//!
//! Owns the bodies of the targets under `fuzz/`, which `tests/fuzz_bounded.rs` runs too. Always true of every target: any
//! bytes are an input, and a broken promise is a panic.

#![allow(clippy::unwrap_used, unreachable_pub)] // a test ends by panicking; `pub` is for those who include this file

use std::collections::BTreeSet;

use bytes::BytesMut;
use fastrand::Rng;
use ringlog::log::epochs::Epochs;
use ringlog::log::index::{OffsetIndex, TimeIndex};
use ringlog::log::producers::Producers;
use ringlog::log::recovery::{Found, Gaps, Known, Next, Recovery, Scanner};
use ringlog::log::{checkpoint, index};
use ringlog::protocol::batch::{self, BatchError, Builder, BuilderOptions, Codec, ProducerStamp, RecordRules, Records};
use ringlog::protocol::values::Wire;
use ringlog::protocol::wire::{Form, WireError};
use ringlog::protocol::{ApiKey, HeaderError, Request, RequestError, RequestHeader, Segment};
use ringlog::protocol::{admin, fetch, groups, operator, placement, produce};
use ringlog::protocol::{decode_any_request, encode_request, parse_request_header};
use ringlog::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

/// One target.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub corpus: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 5] = [
    Target { name: "frame", run: frame, corpus: request_corpus },
    Target { name: "request", run: request, corpus: request_corpus },
    Target { name: "batch", run: records, corpus: batch_corpus },
    Target { name: "recovery", run: recovery, corpus: segment_corpus },
    Target { name: "files", run: files, corpus: file_corpus },
];

/// The header of a request: what is believed of it lies within the frame and the table.
pub fn frame(bytes: &[u8]) {
    match parse_request_header(bytes) {
        Ok((header, body)) => {
            assert!(header.api.served() && header.api.versions().contains(&header.version));
            assert!(body.position() + body.remaining() == bytes.len());
            assert!(header.client_id.len() <= bytes.len());
        }
        Err(HeaderError::ApiVersionsTooNew { version, .. }) => {
            assert!(!ApiKey::ApiVersions.versions().contains(&version))
        }
        Err(HeaderError::UnknownVersion { api, version }) => assert!(!api.versions().contains(&version)),
        Err(HeaderError::UnknownApi(key)) => assert!(ApiKey::from_number(key).is_none_or(|api| !api.served())),
        Err(HeaderError::Wire(_)) => {}
    }
}

/// A whole request: it ends with its last byte, and neither a byte earlier nor one later.
pub fn request(bytes: &[u8]) {
    if let Ok(RequestHeader { api, version, .. }) = decode_any_request(bytes) {
        let (_, shorter) = bytes.split_last().expect("a header has ten bytes at least");
        assert!(decode_any_request(shorter).is_err());
        let longer = [bytes, &[0]].concat();
        let trailing = RequestError::Body { api, version, source: WireError::Trailing };
        assert_eq!(decode_any_request(&longer), Err(trailing));
    }
}

/// A record batch, as it came and with its length and checksum put right, so that chance gets past them.
pub fn records(bytes: &[u8]) {
    one_batch(bytes);
    if bytes.len() >= batch::HEADER_BYTES {
        let mut sealed = bytes.to_vec();
        sealed[8..12].copy_from_slice(&(bytes.len() as u32 - 12).to_be_bytes());
        sealed[16] = 2;
        let crc = crc32c::crc32c(&sealed[21..]);
        sealed[17..21].copy_from_slice(&crc.to_be_bytes());
        one_batch(&sealed);
    }
}

/// Whatever passes the checks can be read, stamped, marked and put under another codec, and stays the same.
fn one_batch(bytes: &[u8]) {
    const BYTES_MAX: usize = 1 << 20;
    const NO_RULE: RecordRules = RecordRules { keys_required: false, timestamps: i64::MIN..=i64::MAX };
    let Ok(info) = batch::check_produced(bytes) else { return };
    let mut whole = bytes[..info.bytes as usize].to_vec();
    assert_eq!(batch::check(&whole), Ok(info));

    batch::stamp(&mut whole, Offset::MAX, LeaderEpoch::ZERO);
    batch::set_max_timestamp(&mut whole, 7);
    assert_eq!(batch::check(&whole).unwrap().max_timestamp, 7);
    batch::set_max_timestamp(&mut whole, info.max_timestamp);

    let read = |batch: &[u8]| -> Result<Vec<_>, BatchError> {
        let records = Records::open(batch, BYTES_MAX)?;
        let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        records
            .iter()
            .map(|record| record.map(|record| (record.offset_delta, own(record.key), own(record.value))))
            .collect()
    };
    let records = read(&whole);
    assert_eq!(batch::validate_records(&whole, &NO_RULE, BYTES_MAX).is_ok(), records.is_ok());
    if let Ok(records) = records {
        assert_eq!(records.len(), info.records as usize);
        for codec in Codec::ALL {
            let again = batch::recompress(&whole, codec, None, BYTES_MAX).unwrap();
            assert_eq!(batch::check(&again).unwrap().codec, Some(codec));
            assert_eq!(read(&again).as_ref(), Ok(&records));
        }
    }
}

/// A segment's file after a crash. The first byte says how it is cut into pieces.
pub fn recovery(bytes: &[u8]) {
    let Some((&piece, file)) = bytes.split_first() else { return };
    let base = Offset::new(10).unwrap();
    for gaps in [Gaps::Refused, Gaps::Allowed] {
        let scan = |file: &[u8], piece: usize| {
            let mut scanner = Scanner::new(base, file.len() as u64, gaps);
            let mut found: Vec<Found> = Vec::new();
            file.chunks(piece).for_each(|piece| scanner.feed(piece, |batch| found.push(batch)));
            (scanner.valid_bytes(), scanner.next_offset(), scanner.fault(), found)
        };
        let whole = scan(file, usize::MAX);
        assert_eq!(scan(file, usize::from(piece) + 1), whole, "pieces are not seen");
        let (valid_bytes, next_offset, fault, found) = whole;
        // The batches tile what is kept, and each of them is sound.
        let mut position = 0;
        for batch in &found {
            assert_eq!(u64::from(batch.position), position);
            batch::check_stored(&file[position as usize..]).unwrap();
            position += u64::from(batch.info.bytes);
        }
        assert_eq!(position, valid_bytes);
        assert_eq!(fault.is_none(), valid_bytes == file.len() as u64);
        assert_eq!(next_offset, found.last().map_or(base, |last| last.last_offset.next()));
        // What is kept is kept again.
        assert_eq!(scan(&file[..valid_bytes as usize], usize::MAX), (valid_bytes, next_offset, None, found));
    }

    let known = Known { recovery_point: base, now: 0, index_interval_bytes: 64 };
    let mut recovery = Recovery::new(known, Producers::default(), Epochs::default());
    assert_eq!(recovery.begin(base, file.len() as u64), Next::Scan);
    recovery.feed(file);
    let recovered = recovery.end(None).expect("nothing below the recovery point can be damaged");
    assert!(recovered.valid_bytes + recovered.lost_bytes <= file.len() as u64);
    let (end, ..) = recovery.finish(base).unwrap();
    assert!(end >= base);
}

/// The small files beside a log. What can be read is written back to what reads the same.
pub fn files(bytes: &[u8]) {
    let base = Offset::new(10).unwrap();
    if let Ok(index) = OffsetIndex::parse(base, bytes, u64::from(u32::MAX)) {
        let again = OffsetIndex::parse(base, &index.to_bytes(), u64::from(u32::MAX));
        assert_eq!(again.map(|again| again.to_bytes()), Ok(index.to_bytes()));
        index.position_of(base);
    }
    if let Ok(index) = TimeIndex::parse(base, bytes) {
        assert_eq!(TimeIndex::parse(base, &index.to_bytes()).map(|again| again.to_bytes()), Ok(index.to_bytes()));
        index.offset_before(0);
    }
    if let Some(producers) = Producers::from_snapshot(bytes, 5) {
        let again = Producers::from_snapshot(&producers.to_snapshot(), 5).unwrap();
        assert_eq!(again.to_snapshot(), producers.to_snapshot());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(entries) = checkpoint::parse_epochs(text) {
            assert_eq!(checkpoint::parse_epochs(&checkpoint::format_epochs(&entries)), Ok(entries));
        }
        if let Ok(offsets) = checkpoint::parse_offsets(text) {
            let again = checkpoint::format_offsets(offsets.iter().map(|(tp, offset)| (tp, *offset)));
            assert_eq!(checkpoint::parse_offsets(&again), Ok(offsets));
        }
        let _ = checkpoint::parse_partition_metadata(text);
    }
}

/// A random request of each kind, in each of its versions.
fn request_corpus() -> Vec<Vec<u8>> {
    fn of<R: Request<'static> + Wire<'static>>(frames: &mut Vec<Vec<u8>>) {
        let mut random = Rng::with_seed(R::API.number() as u64);
        for version in R::API.versions() {
            let message: R = Wire::sample(&mut random, Form::new(version, R::API.flexible_from()));
            let mut frame = Vec::new();
            for segment in encode_request(BytesMut::new(), version, 7, "fuzz", &message).into_segments() {
                match segment {
                    Segment::Bytes(bytes) => frame.extend_from_slice(&bytes),
                    Segment::Records { bytes, .. } => frame.resize(frame.len() + bytes, 0),
                }
            }
            frames.push(frame.split_off(4));
        }
    }
    let mut frames = Vec::new();
    of::<produce::ProduceRequest<'_>>(&mut frames);
    of::<fetch::FetchRequest<'_>>(&mut frames);
    of::<admin::ApiVersionsRequest<'_>>(&mut frames);
    of::<admin::CreateTopicsRequest<'_>>(&mut frames);
    of::<admin::DeleteTopicsRequest<'_>>(&mut frames);
    of::<admin::DescribeClusterRequest>(&mut frames);
    of::<admin::DescribeConfigsRequest<'_>>(&mut frames);
    of::<admin::InitProducerIdRequest<'_>>(&mut frames);
    of::<admin::ListConfigResourcesRequest>(&mut frames);
    of::<admin::ListOffsetsRequest<'_>>(&mut frames);
    of::<admin::MetadataRequest<'_>>(&mut frames);
    of::<groups::DeleteGroupsRequest<'_>>(&mut frames);
    of::<groups::DescribeGroupsRequest<'_>>(&mut frames);
    of::<groups::FindCoordinatorRequest<'_>>(&mut frames);
    of::<groups::HeartbeatRequest<'_>>(&mut frames);
    of::<groups::JoinGroupRequest<'_>>(&mut frames);
    of::<groups::LeaveGroupRequest<'_>>(&mut frames);
    of::<groups::ListGroupsRequest<'_>>(&mut frames);
    of::<groups::OffsetCommitRequest<'_>>(&mut frames);
    of::<groups::OffsetDeleteRequest<'_>>(&mut frames);
    of::<groups::OffsetFetchRequest<'_>>(&mut frames);
    of::<groups::SyncGroupRequest<'_>>(&mut frames);
    of::<operator::AlterConfigsRequest<'_>>(&mut frames);
    of::<operator::CreatePartitionsRequest<'_>>(&mut frames);
    of::<operator::DeleteRecordsRequest<'_>>(&mut frames);
    of::<operator::DescribeAclsRequest<'_>>(&mut frames);
    of::<operator::DescribeLogDirsRequest<'_>>(&mut frames);
    of::<operator::DescribeProducersRequest<'_>>(&mut frames);
    of::<operator::DescribeTopicPartitionsRequest<'_>>(&mut frames);
    of::<operator::IncrementalAlterConfigsRequest<'_>>(&mut frames);
    of::<operator::OffsetForLeaderEpochRequest<'_>>(&mut frames);
    of::<placement::AlterPartitionReassignmentsRequest<'_>>(&mut frames);
    of::<placement::ElectLeadersRequest<'_>>(&mut frames);
    of::<placement::ListPartitionReassignmentsRequest<'_>>(&mut frames);
    let kinds: BTreeSet<_> = frames.iter().map(|frame| [frame[0], frame[1]]).collect();
    assert_eq!(kinds.len(), ApiKey::ALL.len());
    frames
}

/// A batch of `count` records.
fn built(codec: Codec, producer: Option<ProducerStamp>, count: i64) -> BytesMut {
    let mut builder =
        Builder::new(BuilderOptions { codec, level: None, producer, transactional: false, control: false });
    for n in 0..count {
        let header: &[_] = if n % 2 == 0 { &[("name", Some(&b"value"[..])), ("none", None)] } else { &[] };
        builder.push(
            1000 + n,
            (n % 3 != 0).then_some(b"key"),
            (n % 5 != 0).then_some(b"a value of some length"),
            header,
        );
    }
    builder.finish()
}

fn producer(sequence: i32) -> ProducerStamp {
    let (id, epoch) = (ProducerId::new(4).unwrap(), ProducerEpoch::new(1).unwrap());
    ProducerStamp { id, epoch, base_sequence: Sequence::new(sequence) }
}

fn batch_corpus() -> Vec<Vec<u8>> {
    let one = Codec::ALL.map(|codec| built(codec, None, 1).to_vec());
    let many = Codec::ALL.map(|codec| built(codec, Some(producer(3)), 50).to_vec());
    let two = [&one[0][..], &many[0]].concat();
    [&one[..], &many, &[two]].concat()
}

/// Segments that begin at offset 10, each behind a byte that says how to cut it.
fn segment_corpus() -> Vec<Vec<u8>> {
    let mut segment = vec![40];
    let mut offset = 10;
    for (codec, count) in Codec::ALL.into_iter().cycle().zip(1..8) {
        let mut batch = built(codec, Some(producer(offset as i32)), count);
        batch::stamp(&mut batch, Offset::new(offset).unwrap(), LeaderEpoch::new(offset as i32 / 4).unwrap());
        segment.extend_from_slice(&batch);
        offset += count;
    }
    let padded = [&segment[..], &[0; 700]].concat();
    let torn = segment[..segment.len() - 30].to_vec();
    vec![segment, padded, torn]
}

fn file_corpus() -> Vec<Vec<u8>> {
    let at = |offset| Offset::new(offset).unwrap();
    let mut segment = index::SegmentIndex::new(at(10));
    for n in 0..20 {
        let place = index::IndexedBatch {
            position: n * 100,
            bytes: 100,
            last_offset: at(10 + i64::from(n)),
            max_timestamp: i64::from(n * 7 % 40),
        };
        segment.on_batch(place, 150);
    }
    segment.finish();
    let mut producers = Producers::default();
    for (sequence, offset) in [(0, 10), (50, 60)] {
        let info = batch::check(&built(Codec::None, Some(producer(sequence)), 50)).unwrap();
        producers.replay(&info, at(offset), 9);
    }
    vec![
        segment.offsets.to_bytes(),
        segment.times.to_bytes(),
        producers.to_snapshot(),
        b"0\n2\n0 0\n3 17\n".to_vec(),
        b"0\n2\nevents 0 17\nother.topic 12 99\n".to_vec(),
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg".to_vec(),
    ]
}
