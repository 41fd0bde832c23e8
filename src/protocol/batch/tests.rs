//! Pure. Proves the batch room: golden bytes, the crate `kafka-protocol` as a second opinion, refusals, chance.

#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation)]

use bytes::{Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    self as oracle, Compression, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions,
};
use proptest::prelude::*;

use super::*;

const PLENTY: usize = 64 << 20;
const ANY_RECORD: RecordRules = RecordRules { keys_required: false, timestamps: TimestampMs::MIN..=TimestampMs::MAX };

/// One record without key, one with everything, as `kafka-console-producer` could have sent them.
#[rustfmt::skip]
const GOLDEN: &[u8] = &[
    0, 0, 0, 0, 0, 0, 0, 0,                         // base offset
    0, 0, 0, 75,                                    // length: 49 + 26
    0xff, 0xff, 0xff, 0xff,                         // leader epoch -1
    2,                                              // magic
    0x18, 0x95, 0x9b, 0xa3,                         // crc
    0, 0,                                           // attributes
    0, 0, 0, 1,                                     // last offset delta
    0, 0, 1, 0x8b, 0xcf, 0xe5, 0x68, 0,             // base timestamp 1 700 000 000 000
    0, 0, 1, 0x8b, 0xcf, 0xe5, 0x68, 1,             // max timestamp
    0, 0, 0, 0, 0, 0, 0, 7,                         // producer id
    0, 3,                                           // producer epoch
    0, 0, 0, 9,                                     // base sequence
    0, 0, 0, 2,                                     // records
    16, 0, 0, 0, 1, 4, b'h', b'i', 0,               // length 8: null key, value "hi", no headers
    32, 0, 2, 2, 2, b'k', 1, 4,                     // length 16: +1 ms, delta 1, key "k", null value, two headers
    2, b'a', 4, b'x', b'y',                         //   "a" = "xy"
    4, b'b', b'b', 1,                               //   "bb" = null
];

fn golden_builder() -> Builder {
    let producer = ProducerStamp {
        id: ProducerId::new(7).unwrap(),
        epoch: ProducerEpoch::new(3).unwrap(),
        base_sequence: Sequence::new(9),
    };
    let mut builder = Builder::new(BuilderOptions { producer: Some(producer), ..plain(Codec::None) });
    builder.push(1_700_000_000_000, None, Some(b"hi"), &[]);
    builder.push(1_700_000_000_001, Some(b"k"), None, &[("a", Some(b"xy")), ("bb", None)]);
    builder
}

fn plain(codec: Codec) -> BuilderOptions {
    BuilderOptions { codec, level: None, producer: None, transactional: false, control: false }
}

fn resealed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = GOLDEN.to_vec();
    change(&mut bytes);
    reseal(&mut bytes);
    bytes
}

fn reseal(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[CHECKED_FROM..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// (timestamp, key, value, headers)
type Plain = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

fn read(batch: &[u8]) -> Result<Vec<Plain>, BatchError> {
    let plain = |record: Record<'_>| {
        let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let headers = record.headers.iter().map(|&(name, value)| (name.to_owned(), own(value))).collect();
        (record.timestamp, own(record.key), own(record.value), headers)
    };
    Records::open(batch, PLENTY)?.iter().map(|record| record.map(plain)).collect()
}

#[test]
fn golden_bytes_read_as_written_by_hand() {
    assert_eq!(
        check(GOLDEN).unwrap(),
        BatchInfo {
            base_offset: 0,
            bytes: 87,
            leader_epoch: -1,
            last_offset_delta: 1,
            codec: Some(Codec::None),
            log_append_time: false,
            transactional: false,
            control: false,
            delete_horizon: false,
            base_timestamp: 1_700_000_000_000,
            max_timestamp: 1_700_000_000_001,
            producer: Some(ProducerStamp {
                id: ProducerId::new(7).unwrap(),
                epoch: ProducerEpoch::new(3).unwrap(),
                base_sequence: Sequence::new(9),
            }),
            records: 2,
            crc: 0x1895_9ba3,
        }
    );
    assert_eq!(
        Records::open(GOLDEN, PLENTY).unwrap().iter().collect::<Result<Vec<_>, _>>().unwrap(),
        [
            Record { offset_delta: 0, timestamp: 1_700_000_000_000, key: None, value: Some(b"hi"), headers: vec![] },
            Record {
                offset_delta: 1,
                timestamp: 1_700_000_000_001,
                key: Some(b"k"),
                value: None,
                headers: vec![("a", Some(b"xy")), ("bb", None)],
            },
        ]
    );
}

#[test]
fn builder_writes_the_golden_bytes() {
    assert_eq!(&golden_builder().finish()[..], GOLDEN);
}

#[test]
fn stamping_leaves_the_checksum_valid() {
    let mut bytes = GOLDEN.to_vec();
    stamp(&mut bytes, Offset::new(1 << 40).unwrap(), LeaderEpoch::new(6).unwrap());
    let info = check(&bytes).unwrap();
    assert_eq!((info.base_offset, info.leader_epoch, info.crc), (1 << 40, 6, parse_header(GOLDEN).unwrap().crc));
}

#[test]
fn log_append_time_holds_for_every_record_and_mends_the_checksum() {
    let mut bytes = GOLDEN.to_vec();
    set_log_append_time(&mut bytes, 42);
    let info = check(&bytes).unwrap();
    assert!(info.log_append_time);
    assert_eq!((info.base_timestamp, info.max_timestamp), (1_700_000_000_000, 42));
    assert!(read(&bytes).unwrap().iter().all(|record| record.0 == 42));
    set_create_time(&mut bytes);
    let info = check(&bytes).unwrap();
    assert_eq!((info.log_append_time, info.max_timestamp), (false, 42));
}

#[test]
fn a_batch_that_compaction_emptied_may_lie_in_a_log_but_not_be_produced() {
    let mut bytes = GOLDEN[..HEADER_BYTES].to_vec();
    bytes[8..12].copy_from_slice(&49i32.to_be_bytes());
    bytes[57..61].fill(0);
    reseal(&mut bytes);
    assert_eq!(check_stored(&bytes).unwrap().records, 0);
    assert_eq!(check(&bytes), Err(BatchError::Invalid("a batch without records")));
    assert_eq!(read(&bytes), Ok(vec![]));
    set_max_timestamp(&mut bytes, 5);
    assert_eq!(check_stored(&bytes).unwrap().max_timestamp, 5);
}

#[test]
fn each_truncation_is_named_as_one() {
    for have in 0..GOLDEN.len() {
        let need = if have < HEADER_BYTES { HEADER_BYTES } else { GOLDEN.len() } as u64;
        assert_eq!(check(&GOLDEN[..have]), Err(BatchError::Truncated { need, have: have as u64 }), "at {have} bytes");
    }
}

#[test]
fn a_header_is_enough_to_parse_and_its_length_is_known_even_when_damaged() {
    assert_eq!(parse_header(&GOLDEN[..HEADER_BYTES]), parse_header(GOLDEN));
    let mut damaged = GOLDEN[..HEADER_BYTES].to_vec();
    damaged[57] = 0x80;
    assert_eq!(parse_header(&damaged), Err(BatchError::Invalid("negative record count")));
    assert_eq!(announced(&damaged), Ok((87, Some(Codec::None))));
}

#[test]
fn each_flipped_bit_under_the_checksum_is_found() {
    for bit in CHECKED_FROM * 8..GOLDEN.len() * 8 {
        let mut bytes = GOLDEN.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(check(&bytes), Err(BatchError::Crc), "bit {bit}");
    }
}

#[test]
fn impossible_lengths_and_old_formats_are_told_apart() {
    let with = |length: i32, magic: u8| {
        let mut bytes = GOLDEN.to_vec();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[16] = magic;
        parse_header(&bytes)
    };
    assert_eq!(with(-1, 2), Err(BatchError::Length(-1)));
    assert_eq!(with(0, 0), Err(BatchError::Length(0)));
    assert_eq!(with(48, 2), Err(BatchError::Length(48)));
    assert_eq!(with(22, 1), Err(BatchError::Magic(1)));
    assert_eq!(with(75, 0xff), Err(BatchError::Magic(-1)));
    assert_eq!(with(i32::MAX, 2).unwrap().bytes, 0x8000_000b);
    // A whole message of format 1 may be shorter than our header: its format is what is wrong with it.
    let mut old = [0; 34];
    old[11] = 22;
    old[16] = 1;
    assert_eq!(parse_header(&old), Err(BatchError::Magic(1)));
}

#[test]
fn counts_that_contradict_each_other_are_refused() {
    let count = |last_offset_delta: i32, records: i32| {
        check(&resealed(|bytes| {
            bytes[23..27].copy_from_slice(&last_offset_delta.to_be_bytes());
            bytes[57..61].copy_from_slice(&records.to_be_bytes());
        }))
    };
    assert!(count(1, 2).is_ok());
    assert_eq!(count(1, 1), Err(BatchError::Invalid("the record count does not match the last offset delta")));
    assert_eq!(count(1, 3), Err(BatchError::Invalid("more records than offsets")));
    assert_eq!(count(-1, 0), Err(BatchError::Invalid("negative last offset delta")));
    assert_eq!(count(0, -1), Err(BatchError::Invalid("negative record count")));
    assert_eq!(count(i32::MAX, 0), Err(BatchError::Invalid("a batch without records")));
}

#[test]
fn producers_write_exactly_one_batch_of_data_at_offset_0() {
    assert!(check_produced(GOLDEN).is_ok());
    assert!(check_produced(&[GOLDEN, b"rubbish"].concat()).is_ok(), "Kafka ignores what is no batch");
    assert!(check_produced(&[GOLDEN, &GOLDEN[..80]].concat()).is_ok(), "nor is a part of one");
    assert_eq!(check_produced(&[GOLDEN, &[0; 20]].concat()), Err(BatchError::Length(0)));
    assert_eq!(check_produced(&[GOLDEN, &[b'j'; 40]].concat()), Err(BatchError::Magic(b'j' as i8)));
    let refused = |bytes: &[u8]| match check_produced(bytes) {
        Err(BatchError::Invalid(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&[GOLDEN, GOLDEN].concat()), "more than one batch for a partition");
    assert_eq!(refused(&resealed(|bytes| bytes[7] = 1)), "a producer's base offset must be 0");
    assert_eq!(refused(&resealed(|bytes| bytes[22] |= 1 << 5)), "clients may not write control batches");
    assert_eq!(refused(&resealed(|bytes| bytes[53..57].fill(0xff))), "a producer id without a sequence");
    assert_eq!(refused(&resealed(|bytes| bytes[51..53].fill(0xff))), "a producer id without an epoch");
    let mut damaged = GOLDEN.to_vec();
    damaged[86] ^= 1;
    assert_eq!(check_produced(&damaged), Err(BatchError::Crc));
}

#[test]
fn records_that_do_not_fill_their_batch_exactly_are_refused() {
    let body = |records: &[u8], count: u8| {
        let mut bytes = [&GOLDEN[..HEADER_BYTES], records].concat();
        let length = bytes.len() as u32 - UNCOUNTED_BYTES;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[26] = count - 1;
        bytes[60] = count;
        reseal(&mut bytes);
        check(&bytes).unwrap();
        read(&bytes).unwrap_err()
    };
    let hi: &[u8] = &[16, 0, 0, 0, 1, 4, b'h', b'i', 0];
    let two = [hi, hi].concat();
    assert_eq!(body(hi, 2), BatchError::Invalid("fewer records than the header counts"));
    assert_eq!(body(&two, 1), BatchError::Invalid("bytes after the last record"));
    const NOT_RISING: BatchError = BatchError::Invalid("record offsets do not rise within the batch");
    assert_eq!(body(&two, 2), NOT_RISING);
    assert_eq!(body(&[16, 0, 0, 2, 1, 4, b'h', b'i', 0], 1), NOT_RISING);
    assert_eq!(body(&[16, 0, 0, 1, 1, 4, b'h', b'i', 0], 1), NOT_RISING);
    let longer = BatchError::Invalid("a record is longer than its fields");
    assert_eq!(body(&[18, 0, 0, 0, 1, 4, b'h', b'i', 0, 0], 1), longer);

    let past = "a field ends past its record";
    let negative = "a negative length";
    let endless = "a varint without an end";
    #[rustfmt::skip]
    let broken: [(&[u8], &'static str); 13] = [
        (&[18, 0, 0, 0, 1, 4, b'h', b'i', 0], past),           // record past the batch
        (&[1, 0], negative),                                   // record length -1
        (&[14, 0, 0, 0, 1, 4, b'h', b'i'], endless),           // no header count
        (&[16, 0, 0, 0, 3, 4, b'h', b'i', 0], negative),       // key length -2
        (&[16, 0, 0, 0, 1, 8, b'h', b'i', 0], past),           // value past the record
        (&[16, 0, 0, 0, 1, 4, b'h', b'i', 1], negative),       // header count -1
        (&[16, 0, 0, 0, 1, 4, b'h', b'i', 2], "more headers than bytes for them"),
        (&[22, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0xf, 0], "more headers than bytes for them"), // 2^31 - 1 of them
        (&[16, 0, 0, 0, 1, 1, 2, 1, 1], negative),             // header name null
        (&[0xff, 0xff, 0xff, 0xff, 0x7f], "a varint of more than 32 bits"),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 1], endless),         // six bytes
        (&[30, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2, 0, 1, 1, 0], "a varint of more than 64 bits"),
        (&[8, 0, 0, 0x80, 0x80], endless),
    ];
    for (records, reason) in broken {
        assert_eq!(body(records, 1), BatchError::Invalid(reason), "{records:?}");
    }
}

#[test]
fn a_header_name_that_is_no_text_is_kept_and_reads_as_one_sign() {
    let mut bytes = [&GOLDEN[..HEADER_BYTES], &[18, 0, 0, 0, 1, 1, 2, 2, 0xff, 1]].concat();
    bytes[8..12].copy_from_slice(&59u32.to_be_bytes());
    bytes[26] = 0;
    bytes[60] = 1;
    reseal(&mut bytes);
    assert_eq!(read(&bytes).unwrap()[0].3, [("\u{fffd}".to_owned(), None)]);
    let again = recompress(&recompress(&bytes, Codec::Lz4, None, PLENTY).unwrap(), Codec::None, None, PLENTY).unwrap();
    assert_eq!(again[61..], bytes[61..]);
}

#[test]
fn topics_rules_are_held_record_by_record() {
    let compacted = RecordRules { keys_required: true, ..ANY_RECORD };
    let refused = |batch: &[u8], rules: &RecordRules| match validate_records(batch, rules, PLENTY) {
        Err(RecordsError::Refused(faults)) => faults,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(GOLDEN, &compacted), [RecordFault { index: 0, kind: RecordFaultKind::KeyMissing }]);
    let young = RecordRules { timestamps: 1_700_000_000_001..=i64::MAX, ..ANY_RECORD };
    let too_old = RecordFault { index: 0, kind: RecordFaultKind::Timestamp(1_700_000_000_000) };
    assert_eq!(refused(GOLDEN, &young), [too_old]);
    let facts = validate_records(GOLDEN, &ANY_RECORD, PLENTY).unwrap();
    assert_eq!(facts, RecordFacts { max_timestamp: 1_700_000_000_001, bytes: 26 });

    let mut both = Builder::new(plain(Codec::None));
    both.push(0, None, None, &[]);
    let strict = RecordRules { keys_required: true, ..young.clone() };
    let keyless = RecordFault { index: 0, kind: RecordFaultKind::KeyMissing };
    assert_eq!(refused(&both.finish(), &strict), [keyless], "of two faults of one record, the key's is told");

    let mut untimed = Builder::new(plain(Codec::None));
    untimed.push(-1, Some(b"k"), None, &[]);
    assert!(validate_records(&untimed.finish(), &young, PLENTY).is_ok(), "-1 says that there is no timestamp");

    let mut many = Builder::new(plain(Codec::Lz4));
    (0..5000).for_each(|_| many.push(0, None, None, &[]));
    assert_eq!(refused(&many.finish(), &young).len(), REPORTED_FAULTS_MAX);
}

#[test]
fn recompression_keeps_everything_but_the_codec_and_a_false_maximum() {
    let mut batch = golden_builder().finish();
    stamp(&mut batch, Offset::new(77).unwrap(), LeaderEpoch::new(4).unwrap());
    set_max_timestamp(&mut batch, 5);
    let before = parse_header(&batch).unwrap();
    for codec in Codec::ALL {
        let other = recompress(&batch, codec, None, PLENTY).unwrap();
        let after = check(&other).unwrap();
        let expected = BatchInfo {
            bytes: other.len() as u32,
            codec: Some(codec),
            crc: after.crc,
            max_timestamp: 1_700_000_000_001,
            ..before
        };
        assert_eq!(after, expected);
        assert_eq!(read(&other), read(&batch));
    }
    let garbage = resealed(|bytes| bytes[61..].fill(0x80));
    let endless = BatchError::Invalid("a varint without an end");
    assert_eq!(recompress(&garbage, Codec::Zstd, None, PLENTY), Err(endless));
    let no_gzip = resealed(|bytes| bytes[22] = 1);
    assert_eq!(recompress(&no_gzip, Codec::None, None, PLENTY), Err(BatchError::Unreadable("broken gzip stream")));
}

#[test]
fn unknown_codecs_parse_and_cannot_be_opened() {
    let bytes = resealed(|bytes| bytes[22] = 5);
    assert_eq!(check(&bytes).unwrap().codec, None);
    assert_eq!(read(&bytes), Err(BatchError::Unreadable("unknown codec")));
}

#[test]
fn bombs_stop_at_the_bound() {
    let zeros = vec![0; 8 << 20];
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut small = BytesMut::new();
        codecs::compress(codec, None, &zeros, &mut small);
        assert!(small.len() < zeros.len() / 15, "{codec:?}: {}", small.len());
        let bytes_max = 1 << 20;
        assert_eq!(codecs::decompress(codec, &small, bytes_max), Err(BatchError::TooLarge { bytes_max }), "{codec:?}");
        assert_eq!(codecs::decompress(codec, &small, zeros.len()).as_deref(), Ok(&zeros[..]), "{codec:?}");
    }
}

#[test]
fn announced_sizes_take_no_memory() {
    // Five bytes of snappy that announce 4 GiB.
    let lie = [0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_eq!(codecs::decompress(Codec::Snappy, &lie, usize::MAX), Err(BatchError::Unreadable("broken snappy block")));
    // A zstd frame that announces 4 GiB and a window as large, and holds one empty block.
    let lie = [0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0xff, 0xff, 0xff, 0xff, 0x01, 0, 0];
    assert_eq!(codecs::decompress(Codec::Zstd, &lie, usize::MAX - 1), Err(BatchError::Unreadable("broken zstd frame")));
}

#[test]
fn bare_snappy_blocks_are_read_and_cut_streams_refused() {
    let text = b"a block, a block, a block without a stream around it".repeat(40);
    let bare = snap::raw::Encoder::new().compress_vec(&text).unwrap();
    assert_eq!(codecs::decompress(Codec::Snappy, &bare, PLENTY).as_deref(), Ok(&text[..]));
    let mut stream = BytesMut::new();
    codecs::compress(Codec::Snappy, None, &text, &mut stream);
    for cut in 17..stream.len() {
        assert!(codecs::decompress(Codec::Snappy, &stream[..cut], PLENTY).is_err(), "cut at {cut}");
    }
}

#[test]
fn lz4_frames_look_as_javas() {
    let mut frame = BytesMut::new();
    codecs::compress(Codec::Lz4, None, &vec![7; 200_000], &mut frame);
    // Magic; version 1, independent blocks, no checksums, no size; 64 KiB blocks; second byte of xxh32 of the two.
    assert_eq!(&frame[..7], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]);
    assert_eq!(&frame[frame.len() - 4..], [0; 4]);
}

#[test]
fn levels_are_taken_and_absurd_ones_are_clamped() {
    let text = b"levels change the effort, not the meaning; ".repeat(200);
    for codec in Codec::ALL {
        for level in [i32::MIN, -131_072, -1, 0, 1, 9, 17, 22, i32::MAX] {
            let mut out = BytesMut::new();
            codecs::compress(codec, Some(level), &text, &mut out);
            assert_eq!(codecs::decompress(codec, &out, PLENTY).as_deref(), Ok(&text[..]), "{codec:?} {level}");
        }
    }
}

// The second opinion.

fn oracle_codec(codec: Codec) -> Compression {
    match codec {
        Codec::None => Compression::None,
        Codec::Gzip => Compression::Gzip,
        Codec::Snappy => Compression::Snappy,
        Codec::Lz4 => Compression::Lz4,
        Codec::Zstd => Compression::Zstd,
    }
}

fn build(records: &[Plain], options: BuilderOptions) -> BytesMut {
    let mut builder = Builder::new(options);
    for (timestamp, key, value, headers) in records {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        builder.push(*timestamp, key.as_deref(), value.as_deref(), &headers);
    }
    assert_eq!(builder.count(), records.len());
    builder.finish()
}

fn oracle_records(records: &[Plain]) -> Vec<oracle::Record> {
    records
        .iter()
        .zip(0..)
        .map(|((timestamp, key, value, headers), offset)| oracle::Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: 9,
            producer_epoch: 1,
            timestamp_type: oracle::TimestampType::Creation,
            offset,
            sequence: 100 + offset as i32,
            timestamp: *timestamp,
            key: key.clone().map(Bytes::from),
            value: value.clone().map(Bytes::from),
            headers: headers
                .iter()
                .map(|(name, value)| (StrBytes::from_string(name.clone()), value.clone().map(Bytes::from)))
                .collect::<IndexMap<_, _>>(),
        })
        .collect()
}

fn producer_of_the_oracle() -> ProducerStamp {
    let (id, epoch) = (ProducerId::new(9).unwrap(), ProducerEpoch::new(1).unwrap());
    ProducerStamp { id, epoch, base_sequence: Sequence::new(100) }
}

fn agree_both_ways(records: &[Plain], codec: Codec) {
    let theirs = oracle_records(records);
    let ours = build(records, BuilderOptions { producer: Some(producer_of_the_oracle()), ..plain(codec) });
    let decoded = RecordBatchDecoder::decode(&mut ours.clone().freeze()).unwrap();
    assert_eq!(decoded.compression, oracle_codec(codec));
    assert_eq!(decoded.records, theirs);

    let mut encoded = BytesMut::new();
    let options = RecordEncodeOptions { version: 2, compression: oracle_codec(codec) };
    RecordBatchEncoder::encode(&mut encoded, theirs.iter(), &options).unwrap();
    let info = check_produced(&encoded).unwrap();
    assert_eq!(
        (info.codec, info.producer, info.records as usize),
        (Some(codec), Some(producer_of_the_oracle()), records.len())
    );
    assert_eq!(read(&encoded).as_deref(), Ok(records));
}

#[test]
fn kafka_protocol_agrees_both_ways_for_each_codec() {
    let one = vec![(1_700_000_000_000, Some(b"key".to_vec()), Some(b"value".to_vec()), vec![])];
    let many: Vec<Plain> = (0..3000)
        .map(|n| {
            let headers = vec![(format!("h{}", n % 3), (n % 2 == 0).then(|| vec![n as u8; 40])), ("last".into(), None)];
            (
                1_700_000_000_000 + n * 17 % 5,
                (n % 5 != 0).then(|| vec![1; n as usize % 9]),
                Some(vec![n as u8; 70]),
                headers,
            )
        })
        .collect();
    for codec in Codec::ALL {
        agree_both_ways(&one, codec);
        agree_both_ways(&many, codec);
    }
}

// Chance.

fn any_bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::weighted(0.8, proptest::collection::vec(any::<u8>(), 0..200))
}

fn any_records() -> impl Strategy<Value = Vec<Plain>> {
    let headers = proptest::collection::vec(("[a-zé]{0,8}", any_bytes()), 0..4);
    proptest::collection::vec((any::<i64>(), any_bytes(), any_bytes(), headers), 1..40)
}

fn any_codec() -> impl Strategy<Value = Codec> {
    proptest::sample::select(&Codec::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn what_is_built_reads_back(records in any_records(), codec in any_codec()) {
        let batch = build(&records, plain(codec));
        prop_assert_eq!(check_produced(&batch).unwrap().records as usize, records.len());
        prop_assert_eq!(read(&batch), Ok(records));
    }

    #[test]
    fn mutations_give_errors_or_records_but_never_a_panic(
        records in any_records(),
        codec in any_codec(),
        mutations in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<proptest::sample::Index>(),
        seal_again: bool,
    ) {
        let mut batch = build(&records, plain(codec)).to_vec();
        for (place, byte) in mutations {
            let place = place.index(batch.len());
            batch[place] = byte;
        }
        if seal_again {
            reseal(&mut batch);
        }
        for bytes in [&batch[..], &batch[..cut.index(batch.len())]] {
            let _ = check_produced(bytes);
            let _ = check_stored(bytes);
            let _ = validate_records(bytes, &ANY_RECORD, 1 << 20);
            let _ = recompress(bytes, Codec::Lz4, None, 1 << 20);
        }
    }
}
