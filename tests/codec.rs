//! Are the bytes right? Every message in every version against the crate `kafka-protocol`, which is generated from
//! Kafka's own schemas; then what must hold of bytes that are wrong.
//!
//! Messages are filled at random by our own `Wire::sample`. A failure names message, version and seed;
//! `CODEC_SEED=<seed>` runs that seed alone.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable};
use ringlog::protocol::wire::Form;
use ringlog::protocol::{
    ApiKey, Encoded, ErrorCode, HeaderError, Message, Reader, Records, RequestError, Segment, Wire, WireError, Writer,
    admin, api_versions_downgrade, decode_any_request, encode_request, encode_response, fetch, groups, operator,
    parse_request_header, parse_response_header, placement, produce,
};
use smallvec::smallvec;

/// A message encoded again after it was decoded, and its `Debug`.
type Again = (Vec<u8>, String);

/// One type of message, reduced to functions on the bytes of its body.
struct Case {
    name: &'static str,
    api: ApiKey,
    /// A random message, encoded by us. Asserts that decoding it gives the same message.
    sample: fn(&mut Rng, i16) -> Vec<u8>,
    /// Decodes.
    decode: fn(&[u8], i16) -> Result<(), WireError>,
    /// Decodes and encodes by us.
    ours: fn(&[u8], i16) -> Result<Again, WireError>,
    /// Decodes and encodes by `kafka-protocol`.
    theirs: fn(&[u8], i16) -> Again,
}

macro_rules! cases {
    ($($room:ident: $($api:ident $request:ident $response:ident),*;)*) => {
        vec![$($(cases!(@ $api $room $request), cases!(@ $api $room $response),)*)*]
    };
    (@ $api:ident $room:ident $message:ident) => {
        Case {
            name: stringify!($message),
            api: ApiKey::$api,
            sample: |random, version| {
                let form = Form::new(version, ApiKey::$api.flexible_from());
                let message: $room::$message = Wire::sample(random, form);
                let bytes = filled(encoded(&message, version), |_, length| {
                    (0..length).map(|_| random.u8(..)).collect()
                });
                let decoded = $room::$message::decode_body(Reader::new(&bytes), version);
                let decoded = decoded.expect("we read what we write");
                let text = format!("{decoded:?}");
                // Records differ: what was a length before is a place now.
                assert!(text == format!("{message:?}") || text.contains("Records"), "{message:?} became {text}");
                assert_eq!(format!("{:?}", decoded.into_owned()), text);
                bytes
            },
            decode: |bytes, version| $room::$message::decode_body(Reader::new(bytes), version).map(drop),
            ours: |bytes, version| {
                let message = $room::$message::decode_body(Reader::new(bytes), version)?;
                let again = filled(encoded(&message, version), |at, length| {
                    bytes.get(at..at + length).map_or(vec![0; length], <[u8]>::to_vec)
                });
                Ok((again, format!("{message:?}")))
            },
            theirs: |bytes, version| {
                let mut bytes = Bytes::copy_from_slice(bytes);
                let message = theirs::$message::decode(&mut bytes, version).expect("they read what we write");
                assert!(bytes.is_empty(), "they left {} bytes", bytes.len());
                let mut again = BytesMut::new();
                message.encode(&mut again, version).expect("they write what they read");
                (again.to_vec(), format!("{message:?}"))
            },
        }
    };
}

fn cases() -> Vec<Case> {
    cases! {
        produce: Produce ProduceRequest ProduceResponse;
        fetch: Fetch FetchRequest FetchResponse;
        admin:
            ApiVersions ApiVersionsRequest ApiVersionsResponse,
            CreateTopics CreateTopicsRequest CreateTopicsResponse,
            DeleteTopics DeleteTopicsRequest DeleteTopicsResponse,
            DescribeCluster DescribeClusterRequest DescribeClusterResponse,
            DescribeConfigs DescribeConfigsRequest DescribeConfigsResponse,
            InitProducerId InitProducerIdRequest InitProducerIdResponse,
            ListConfigResources ListConfigResourcesRequest ListConfigResourcesResponse,
            ListOffsets ListOffsetsRequest ListOffsetsResponse,
            Metadata MetadataRequest MetadataResponse;
        groups:
            DeleteGroups DeleteGroupsRequest DeleteGroupsResponse,
            DescribeGroups DescribeGroupsRequest DescribeGroupsResponse,
            FindCoordinator FindCoordinatorRequest FindCoordinatorResponse,
            Heartbeat HeartbeatRequest HeartbeatResponse,
            JoinGroup JoinGroupRequest JoinGroupResponse,
            LeaveGroup LeaveGroupRequest LeaveGroupResponse,
            ListGroups ListGroupsRequest ListGroupsResponse,
            OffsetCommit OffsetCommitRequest OffsetCommitResponse,
            OffsetDelete OffsetDeleteRequest OffsetDeleteResponse,
            OffsetFetch OffsetFetchRequest OffsetFetchResponse,
            SyncGroup SyncGroupRequest SyncGroupResponse;
        operator:
            AlterConfigs AlterConfigsRequest AlterConfigsResponse,
            CreatePartitions CreatePartitionsRequest CreatePartitionsResponse,
            DeleteRecords DeleteRecordsRequest DeleteRecordsResponse,
            DescribeAcls DescribeAclsRequest DescribeAclsResponse,
            DescribeLogDirs DescribeLogDirsRequest DescribeLogDirsResponse,
            DescribeProducers DescribeProducersRequest DescribeProducersResponse,
            DescribeTopicPartitions DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse,
            IncrementalAlterConfigs IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse,
            OffsetForLeaderEpoch OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse;
        placement:
            AlterPartitionReassignments AlterPartitionReassignmentsRequest AlterPartitionReassignmentsResponse,
            ElectLeaders ElectLeadersRequest ElectLeadersResponse,
            ListPartitionReassignments ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse;
    }
}

fn encoded<'a>(message: &impl Message<'a>, version: i16) -> Encoded {
    let mut writer = Writer::new(BytesMut::new());
    message.encode_body(&mut writer, version);
    writer.finish()
}

/// The whole message, with `records(position, length)` where records are missing.
fn filled(encoded: Encoded, mut records: impl FnMut(usize, usize) -> Vec<u8>) -> Vec<u8> {
    let bytes_total = encoded.bytes_total();
    let mut whole = Vec::new();
    for segment in encoded.into_segments() {
        match segment {
            Segment::Bytes(bytes) => whole.extend_from_slice(&bytes),
            Segment::Records { bytes, .. } => whole.extend(records(whole.len(), bytes)),
        }
    }
    assert_eq!(whole.len(), bytes_total);
    whole
}

/// Runs `check` on `samples` random messages of every case and version, naming the one at which it fails.
fn for_each_sample(samples: u64, check: impl Fn(&Case, i16, &[u8], &mut Rng)) {
    struct Failed(String);
    impl Drop for Failed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("failed at {}", self.0);
            }
        }
    }
    let only = std::env::var("CODEC_SEED").ok().map(|seed| seed.parse().expect("CODEC_SEED is a number"));
    let seeds = only.map_or(0..samples, |seed: u64| seed..seed + 1);
    for case in cases() {
        for version in case.api.versions() {
            for seed in seeds.clone() {
                let _failed = Failed(format!("{} version {version}, CODEC_SEED={seed}", case.name));
                let mut random = Rng::with_seed(seed);
                let bytes = (case.sample)(&mut random, version);
                check(&case, version, &bytes, &mut random);
            }
        }
    }
}

#[test]
fn every_api_of_the_table_is_compared() {
    let mut compared: Vec<ApiKey> = cases().iter().map(|case| case.api).collect();
    compared.sort_unstable();
    compared.dedup();
    assert_eq!(compared, ApiKey::ALL);
}

#[test]
fn both_codecs_read_and_write_the_same_bytes() {
    for_each_sample(30, |case, version, bytes, _| {
        let (theirs, message) = (case.theirs)(bytes, version);
        assert_eq!(theirs, bytes, "{message}");
        let (ours, message) = (case.ours)(&theirs, version).expect("we read what they write");
        assert_eq!(ours, theirs, "{message}");
    });
}

/// Bytes cannot tell two neighbouring fields of one type apart, but a value that occurs once names its field.
#[test]
fn both_codecs_call_a_value_by_the_same_name() {
    let compared = std::cell::Cell::new(0);
    for_each_sample(10, |case, version, bytes, _| {
        let theirs = names_of_values(&(case.theirs)(bytes, version).1);
        let ours = names_of_values(&(case.ours)(bytes, version).expect("we read what we write").1);
        for (value, name) in ours.iter().filter(|(value, _)| theirs.contains_key(*value)) {
            assert_eq!(theirs.get(value), Some(name), "{value}");
            compared.set(compared.get() + 1);
        }
    });
    assert!(compared.get() > 10_000, "only {} values were compared", compared.get());
}

/// From a `Debug` text, the field name of each number of six digits or more and each text of four bytes or more, where
/// only one field holds it.
fn names_of_values(debug: &str) -> HashMap<String, Option<String>> {
    let mut names = HashMap::new();
    let mut rest = debug;
    while let Some((before, after)) = rest.split_once(": ") {
        let name = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("").to_owned();
        // Some(..) and the newtypes of kafka-protocol stand around the value.
        let value = after.trim_start_matches(|c: char| c.is_alphabetic() || c == '(');
        let value = match value.strip_prefix('"') {
            Some(text) => text.split('"').next().filter(|text| text.len() >= 4),
            None => value.split([',', ' ', ')', ']']).next().filter(|number| {
                number.len() >= 6 && number.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit())
            }),
        };
        if let Some(value) = value {
            names.entry(value.to_owned()).and_modify(|name| *name = None).or_insert(Some(name));
        }
        rest = after;
    }
    names.retain(|_, name| name.is_some());
    names
}

#[test]
fn every_truncation_and_every_extra_byte_is_refused() {
    for_each_sample(5, |case, version, bytes, _| {
        for end in 0..bytes.len() {
            assert!((case.decode)(&bytes[..end], version).is_err(), "{end} of {} bytes were enough", bytes.len());
        }
        let longer = [bytes, &[0]].concat();
        assert_eq!((case.decode)(&longer, version), Err(WireError::Trailing));
    });
}

/// Wherever a count stands, a huge one costs no more than the message itself does.
#[test]
fn a_hostile_count_takes_no_memory() {
    for_each_sample(3, |case, version, bytes, _| {
        let honest = counting::allocated_by(|| (case.decode)(bytes, version)).1;
        let huge = [&[0x7f, 0xff, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0xff, 0x07], &[0xff, 0xff, 0xff, 0x7f]];
        for count in huge {
            for at in 0..bytes.len().saturating_sub(count.len()) {
                let mut hostile = bytes.to_vec();
                hostile[at..at + count.len()].copy_from_slice(count);
                let (_, allocated) = counting::allocated_by(|| (case.decode)(&hostile, version));
                let allowed = honest + 100 * bytes.len() + 1024;
                assert!(allocated <= allowed, "{allocated} bytes at {at}, honestly {honest} of {}", bytes.len());
            }
        }
        let (result, allocated) = counting::allocated_by(|| (case.decode)(b"\x7f\xff\xff\xff\0\0\0\0", version));
        assert!(allocated < 1024, "{allocated} bytes for a body of eight, {result:?}");
    });
}

/// The usual requests of one topic cost no heap, and their answers none beyond the buffer.
#[test]
fn produce_and_fetch_of_one_topic_are_decoded_and_answered_without_heap() {
    let records = Some(Records::EMPTY);
    let produced = produce::ProduceRequest {
        topic_data: smallvec![produce::ProduceTopic {
            name: "events".into(),
            partition_data: smallvec![produce::ProducePartition { index: 0, records }],
        }],
        ..Default::default()
    };
    let fetched = fetch::FetchRequest {
        topics: smallvec![fetch::FetchTopic {
            topic: "events".into(),
            partitions: smallvec![fetch::FetchPartition::default(); 2],
            ..Default::default()
        }],
        ..Default::default()
    };
    let produced = encode_request(BytesMut::new(), 11, 1, "client", &produced).into_bytes();
    let fetched = encode_request(BytesMut::new(), 17, 1, "client", &fetched).into_bytes();
    for frame in [produced, fetched] {
        let (result, allocated) = counting::allocated_by(|| decode_any_request(&frame[4..]));
        assert_eq!((result.map(|header| header.client_id), allocated), (Ok("client"), 0));
    }

    let buffer = BytesMut::with_capacity(1024);
    let (frame, allocated) = counting::allocated_by(|| {
        let partition = produce::ProducePartitionResponse { base_offset: 7, ..Default::default() };
        let topic = produce::ProduceTopicResponse { name: "events".into(), partition_responses: smallvec![partition] };
        let response = produce::ProduceResponse { responses: smallvec![topic], ..Default::default() };
        encode_response(buffer, ApiKey::Produce, 11, 1, &response)
    });
    assert_eq!((frame.bytes_total(), allocated), (57, 0));
}

/// What damaged bytes decode to, if they do, is a message like any other.
#[test]
fn damaged_messages_are_refused_or_round_trip() {
    for_each_sample(20, |case, version, bytes, random| {
        let mut damaged = bytes.to_vec();
        for _ in 0..random.usize(1..4) {
            if let Some(byte) = random.choice(&mut damaged) {
                *byte ^= random.choice([1, 2, 0x7f, 0x80, 0xff]).expect("there are some");
            }
        }
        damaged.truncate(random.usize(damaged.len() / 2..=damaged.len()));
        if let Ok((once, _)) = (case.ours)(&damaged, version) {
            let (twice, message) = (case.ours)(&once, version).expect("we read what we write");
            assert_eq!(twice, once, "{message}");
        }
    });
}

#[test]
fn whole_frames_decode_and_damaged_ones_never_panic() {
    let mut random = Rng::with_seed(1);
    let mut decoded = 0;
    for case in cases().iter().filter(|case| case.name.ends_with("Request") && case.api.served()) {
        for version in case.api.versions() {
            let mut frame = Vec::new();
            frame.extend_from_slice(&case.api.number().to_be_bytes());
            frame.extend_from_slice(&version.to_be_bytes());
            frame.extend_from_slice(b"\0\0\0\x07\0\x04kcat");
            frame.extend_from_slice(if version >= case.api.flexible_from() { b"\x01\x05\x02hi" } else { b"" });
            frame.extend((case.sample)(&mut random, version));
            let header = decode_any_request(&frame).expect("a whole frame");
            assert_eq!((header.api, header.version, header.correlation_id), (case.api, version, 7));
            assert_eq!(header.client_id, "kcat");
            decoded += 1;
            for end in 0..frame.len() {
                assert!(decode_any_request(&frame[..end]).is_err());
            }
            for _ in 0..100 {
                let mut damaged = frame.clone();
                let at = random.usize(..damaged.len());
                damaged[at] = random.u8(..);
                let _ = decode_any_request(&damaged);
            }
        }
    }
    assert!(decoded > 80, "only {decoded} frames");
}

#[test]
fn unknown_keys_and_versions_are_named() {
    let frame =
        |key: i16, version: i16| [&key.to_be_bytes()[..], &version.to_be_bytes(), b"\0\0\0\x05\xff\xff"].concat();
    let error = |key, version| decode_any_request(&frame(key, version)).expect_err("refused");
    assert_eq!(error(4, 0), RequestError::Header(HeaderError::UnknownApi(4)));
    assert_eq!(error(-1, 0), RequestError::Header(HeaderError::UnknownApi(-1)));
    for version in [-1, 0, 2, 12, i16::MAX] {
        let unknown = HeaderError::UnknownVersion { api: ApiKey::Produce, version };
        assert_eq!(error(0, version), RequestError::Header(unknown), "advertised from 0, decoded from 3");
    }
    let too_new = HeaderError::ApiVersionsTooNew { version: 99, correlation_id: 5 };
    assert_eq!(error(18, 99), RequestError::Header(too_new));
    // A null client id is an empty one.
    assert_eq!(decode_any_request(&frame(18, 0)).map(|header| header.client_id), Ok(""));
}

/// Written by hand from the protocol guide.
#[test]
fn api_versions_has_its_golden_bytes() {
    let version_0 = b"\x00\x12\x00\x00\x00\x00\x00\x2a\x00\x04kcat";
    assert_eq!(decode_any_request(version_0).map(|header| header.client_id), Ok("kcat"));

    let version_3 = b"\x00\x12\x00\x03\x00\x00\x00\x2a\x00\x07rdkafka\x00\x0blibrdkafka\x062.3.0\x00";
    let (header, body) = parse_request_header(version_3).expect("a header");
    assert_eq!((header.version, header.correlation_id, header.client_id), (3, 42, "rdkafka"));
    let request = admin::ApiVersionsRequest::decode_body(body, 3).expect("a body");
    assert_eq!(&*request.client_software_name, "librdkafka");
    assert_eq!(&*request.client_software_version, "2.3.0");
    let again = encode_request(BytesMut::new(), 3, 42, "rdkafka", &request).into_bytes();
    assert_eq!(again, [b"\x00\x00\x00\x24", &version_3[..]].concat());

    let response = admin::ApiVersionsResponse {
        api_keys: vec![ApiKey::Produce.advertised(), ApiKey::ApiVersions.advertised()],
        throttle_time_ms: 1,
        supported_features: vec![admin::SupportedFeature { name: "f".into(), min_version: 1, max_version: 2 }],
        finalized_features_epoch: 9,
        ..Default::default()
    };
    let frame = |version| encode_response(BytesMut::new(), ApiKey::ApiVersions, version, 42, &response).into_bytes();
    assert_eq!(
        &frame(0)[..],
        b"\x00\x00\x00\x16\x00\x00\x00\x2a\x00\x00\x00\x00\x00\x02\
          \x00\x00\x00\x00\x00\x0b\x00\x12\x00\x00\x00\x04"
    );
    // The header has no tagged fields, though the body does.
    assert_eq!(
        &frame(3)[..],
        b"\x00\x00\x00\x2e\x00\x00\x00\x2a\x00\x00\x03\
          \x00\x00\x00\x00\x00\x0b\x00\x00\x12\x00\x00\x00\x04\x00\
          \x00\x00\x00\x01\
          \x02\x00\x08\x02\x02f\x00\x01\x00\x02\x00\x01\x08\x00\x00\x00\x00\x00\x00\x00\x09"
    );
    assert_eq!(
        &api_versions_downgrade(BytesMut::new(), 42).into_bytes()[..],
        b"\x00\x00\x00\x10\x00\x00\x00\x2a\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x04"
    );
}

#[test]
fn a_produce_request_tells_where_its_records_lie() {
    for version in ApiKey::Produce.versions() {
        let partition = |index, records| produce::ProducePartition { index, records };
        let request = produce::ProduceRequest {
            acks: -1,
            topic_data: [produce::ProduceTopic {
                name: "events".into(),
                partition_data: [
                    partition(0, Some(Records::of_length(5))),
                    partition(1, None),
                    partition(2, Some(Records::EMPTY)),
                ]
                .into_iter()
                .collect(),
            }]
            .into_iter()
            .collect(),
            ..Default::default()
        };
        let frame = filled(encode_request(BytesMut::new(), version, 1, "", &request), |_, _| b"batch".to_vec());
        let frame = &frame[4..];
        let (_, body) = parse_request_header(frame).expect("a header");
        let request = produce::ProduceRequest::decode_body(body, version).expect("a body");
        let records: Vec<Option<&[u8]>> = request.topic_data[0]
            .partition_data
            .iter()
            .map(|partition| partition.records.map(|records| &frame[records.range()]))
            .collect();
        assert_eq!(records, [Some(&b"batch"[..]), None, Some(&b""[..])]);
    }
}

#[test]
fn a_fetch_response_is_cut_where_records_go_and_announces_its_whole_length() {
    let partition = |partition_index, bytes| fetch::FetchPartitionResponse {
        partition_index,
        high_watermark: 10,
        records: Some(Records::of_length(bytes)),
        ..Default::default()
    };
    let topic = |name: &'static str, partitions: [fetch::FetchPartitionResponse; 2]| fetch::FetchTopicResponse {
        topic: name.into(),
        partitions: partitions.into_iter().collect(),
        ..Default::default()
    };
    for version in ApiKey::Fetch.versions() {
        let response = fetch::FetchResponse {
            responses: [topic("a", [partition(0, 6), partition(1, 0)]), topic("b", [partition(0, 0), partition(1, 4)])]
                .into_iter()
                .collect(),
            ..Default::default()
        };
        let encoded = encode_response(BytesMut::new(), ApiKey::Fetch, version, 3, &response);
        let bytes_total = encoded.bytes_total();
        let mut frame = Vec::new();
        let mut payloads = Vec::new();
        for segment in encoded.into_segments() {
            match segment {
                Segment::Bytes(bytes) => frame.extend_from_slice(&bytes),
                Segment::Records { index, bytes } => {
                    payloads.push(index);
                    frame.extend_from_slice(&b"recordsX"[..bytes]);
                }
            }
        }
        assert_eq!(payloads, [0, 3]);
        assert_eq!(frame.len(), bytes_total);
        assert_eq!(frame[..4], u32::try_from(bytes_total - 4).unwrap().to_be_bytes());
        let (correlation_id, body) = parse_response_header(&frame[4..], ApiKey::Fetch, version).expect("a header");
        assert_eq!(correlation_id, 3);
        let decoded = fetch::FetchResponse::decode_body(body, version).expect("a body");
        let records = |topic: usize, partition: usize| {
            &frame[4..][decoded.responses[topic].partitions[partition].records.expect("never null").range()]
        };
        assert_eq!((records(0, 0), records(0, 1), records(1, 1)), (&b"record"[..], &b""[..], &b"reco"[..]));
    }
}

#[test]
fn what_a_version_lacks_is_left_out_and_null_becomes_empty() {
    let topic = admin::MetadataTopic {
        error_code: ErrorCode::UNKNOWN_TOPIC_ID,
        topic_authorized_operations: 7,
        ..Default::default()
    };
    let decode = |version| {
        let response = admin::MetadataResponse { topics: vec![topic.clone()], ..Default::default() };
        let bytes = encoded(&response, version).into_bytes();
        let decoded =
            admin::MetadataResponse::decode_body(Reader::new(&bytes), version).expect("we read what we write");
        let topic = decoded.topics.first().expect("one").clone();
        (topic.name.map(|name| name.to_string()), topic.topic_authorized_operations)
    };
    assert_eq!(decode(13), (None, 7));
    assert_eq!(decode(11), (Some(String::new()), 7));
    assert_eq!(decode(0), (Some(String::new()), i32::MIN));
}

/// Counts what this thread allocates.
mod counting {
    #![allow(unsafe_code)]

    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    thread_local! {
        static ALLOCATED: Cell<usize> = const { Cell::new(0) };
    }

    struct Counting;

    #[global_allocator]
    static COUNTING: Counting = Counting;

    // SAFETY: every call is handed to `System` unchanged. The counter has no destructor, so it can be used at any time.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            ALLOCATED.with(|allocated| allocated.set(allocated.get() + layout.size()));
            // SAFETY: the caller keeps the contract of `alloc`.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            // SAFETY: the caller keeps the contract of `dealloc`.
            unsafe { System.dealloc(pointer, layout) }
        }
    }

    /// What `work` returns, and how many bytes it allocated, freed ones included.
    pub(super) fn allocated_by<T>(work: impl FnOnce() -> T) -> (T, usize) {
        let before = ALLOCATED.with(Cell::get);
        let result = work();
        (result, ALLOCATED.with(Cell::get) - before)
    }
}
