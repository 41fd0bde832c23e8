//! `ringlog log dump`: prints what lies in segment files, ours and Kafka's, with the fields of Kafka's own dump tool.
//!
//! Shell: reads files, writes lines. Owns the rendering; formats belong to `protocol::batch` and `log`. Always: a torn or
//! preallocated tail is told apart from corruption, an unreadable batch is named with its position, and nothing is ever
//! written to the files. Source: the output of Kafka 4.4's `DumpLogSegments`, byte for byte where it says the same thing.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};

use super::Failure;
use super::offsets_decoder::decoded;
use crate::log::index::{OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES};
use crate::log::producers::snapshot_entries;
use crate::protocol::batch::{self, BatchInfo, HEADER_BYTES, Record, Records};
use crate::types::Sequence;

/// Most bytes the records of one batch may take once decompressed; a file is data from anywhere.
const RECORDS_BYTES_MAX: usize = 256 << 20;

const EXAMPLES: &str = "\
Examples:
  ringlog log dump data/orders-0/00000000000000000000.log
  ringlog log dump --data data/orders-0/*.log
  ringlog log dump -o json data/orders-0/00000000000000000000.index
  ringlog log dump --decode offsets data/__consumer_offsets-*/*.log

Only looks: a broker may be running on the files. Ends with exit code 1 when a batch or an entry is not valid.";

/// Prints what lies in segment files, Kafka's too, with the fields of Kafka's own dump tool.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct DumpArgs {
    /// Files to print: .log, .index, .timeindex, .snapshot
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print every record of every batch, without keys and values
    #[arg(long)]
    pub records: bool,
    /// Print every record with its key and value as text
    #[arg(long)]
    pub data: bool,
    /// What keys and values are, beyond text; implies --data
    #[arg(long, value_name = "KIND", value_enum)]
    pub decode: Option<Decode>,
    /// Output: text as Kafka's tool prints it, or one JSON object a line
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// What keys and values are.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decode {
    /// Records of __consumer_offsets: committed offsets and groups.
    Offsets,
}

/// How lines are written.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Output {
    /// For people, and scripts that read Kafka's tool.
    Text,
    /// For scripts.
    Json,
}

/// What is shown of files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Each record.
    pub(super) records: bool,
    /// Its key and value.
    pub(super) data: bool,
    /// What they are.
    pub(super) decode: Option<Decode>,
    /// Of records, only key and value.
    pub(super) bare: bool,
    /// Of indexes, only what is wrong.
    pub(super) faults_only: bool,
    /// Batches that begin behind so many bytes are not shown.
    pub(super) bytes_max: usize,
    pub(super) output: Output,
}

/// Prints the files. Errors: a file that cannot be read or is of no known kind; batches that are not valid.
pub(super) fn run(args: &DumpArgs, out: &mut impl Write) -> Result<(), Failure> {
    let mut out = BufWriter::new(out);
    let look = Look {
        records: args.records || args.data || args.decode.is_some(),
        data: args.data || args.decode.is_some(),
        decode: args.decode,
        bare: false,
        faults_only: false,
        bytes_max: usize::MAX,
        output: args.output,
    };
    let mut faults = 0;
    for file in &args.files {
        faults += dump(file, &look, &mut out).with_context(|| file.display().to_string())?;
    }
    out.flush()?;
    if faults > 0 {
        let what = anyhow!("{faults} invalid batches or entries; see the lines marked isvalid: false and FAULT");
        return Err(Failure::Operation(what));
    }
    Ok(())
}

/// Prints one file; how many faults it has.
pub(super) fn dump(file: &Path, look: &Look, out: &mut dyn Write) -> anyhow::Result<usize> {
    let bytes = fs::read(file)?;
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let base = name.split('.').next().and_then(|digits| digits.parse::<i64>().ok());
    if look.output == Output::Text {
        writeln!(out, "Dumping {}", file.display())?;
    }
    let extension = file.extension().and_then(|extension| extension.to_str());
    match (extension, base) {
        (Some("log"), base) => {
            if let (Output::Text, Some(base)) = (look.output, base) {
                writeln!(out, "Log starting offset: {base}")?;
            }
            dump_batches(&bytes, look, out)
        }
        (Some("index"), Some(base)) => dump_offset_index(&bytes, base, look, out),
        (Some("timeindex"), Some(base)) => dump_time_index(&bytes, base, look, out),
        (Some("snapshot"), _) => dump_producers(&bytes, look.output, out),
        _ => bail!("not a segment file: expected <20 digits>.log, .index, .timeindex or .snapshot"),
    }
}

fn dump_batches(bytes: &[u8], look: &Look, out: &mut dyn Write) -> anyhow::Result<usize> {
    let mut position = 0;
    let mut faults = 0;
    while let Some(rest) = bytes.get(position..).filter(|rest| !rest.is_empty()) {
        if rest.iter().all(|byte| *byte == 0) {
            note(look.output, out, position, &format!("{} preallocated bytes, no data", rest.len()))?;
            break;
        }
        let info = match batch::parse_header(rest) {
            Ok(info) if info.bytes as usize <= rest.len() => info,
            Ok(info) => {
                let missing = info.bytes as usize - rest.len();
                note(look.output, out, position, &format!("the last batch is cut short by {missing} bytes"))?;
                faults += 1;
                break;
            }
            Err(error) => {
                note(look.output, out, position, &format!("no batch here: {error}"))?;
                faults += 1;
                break;
            }
        };
        let whole = &rest[..info.bytes as usize];
        let valid = batch::check_stored(whole).is_ok();
        faults += usize::from(!valid);
        match look.output {
            Output::Text => writeln!(out, "{}", batch_text(&info, whole, position, valid))?,
            Output::Json => writeln!(out, "{}", batch_json(&info, whole, position, valid))?,
        }
        if valid && look.records {
            dump_records(whole, &info, look, out)?;
        }
        position += info.bytes as usize;
        if position >= look.bytes_max {
            break;
        }
    }
    Ok(faults)
}

fn note(output: Output, out: &mut dyn Write, position: usize, what: &str) -> io::Result<()> {
    match output {
        Output::Text => writeln!(out, "FAULT at position {position}: {what}"),
        Output::Json => writeln!(out, "{}", json!({ "position": position, "note": what })),
    }
}

fn timestamp_kind(info: &BatchInfo) -> &'static str {
    if info.log_append_time { "LogAppendTime" } else { "CreateTime" }
}

struct Sequences {
    id: i64,
    epoch: i16,
    first: i32,
    last: i32,
}

/// Where a batch header keeps the first sequence, which coordinators set although they are no producers.
const BASE_SEQUENCE_AT: usize = 53;

/// As it stands in the header; −1 for none.
fn base_sequence(whole: &[u8]) -> i32 {
    let at = whole.get(BASE_SEQUENCE_AT..).and_then(|rest| rest.first_chunk());
    at.map_or(-1, |bytes| i32::from_be_bytes(*bytes))
}

/// Sequences wrap to 0 after 2^31 − 1; −1 stays.
fn sequence_after(first: i32, delta: u32) -> i32 {
    Sequence::new(first).map_or(-1, |first| first.plus(delta).value())
}

fn sequences(info: &BatchInfo, whole: &[u8]) -> Sequences {
    let first = base_sequence(whole);
    let (id, epoch) = info.producer.map_or((-1, -1), |producer| (producer.id.value(), producer.epoch.value()));
    Sequences { id, epoch, first, last: sequence_after(first, info.last_offset_delta) }
}

fn batch_text(info: &BatchInfo, whole: &[u8], position: usize, valid: bool) -> String {
    let Sequences { id, epoch, first, last } = sequences(info, whole);
    let horizon = if info.delete_horizon {
        format!("OptionalLong[{}]", info.base_timestamp)
    } else {
        "OptionalLong.empty".to_owned()
    };
    format!(
        "baseOffset: {} lastOffset: {} count: {} baseSequence: {first} lastSequence: {last} producerId: {id} \
         producerEpoch: {epoch} partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {horizon} \
         position: {position} {}: {} size: {} magic: 2 compresscodec: {} crc: {} isvalid: {valid}",
        info.base_offset,
        info.base_offset + i64::from(info.last_offset_delta),
        info.records,
        info.leader_epoch,
        info.transactional,
        info.control,
        timestamp_kind(info),
        info.max_timestamp,
        info.bytes,
        info.codec.map_or("unknown", batch::Codec::name),
        info.crc,
    )
}

fn batch_json(info: &BatchInfo, whole: &[u8], position: usize, valid: bool) -> Value {
    let Sequences { id, epoch, first, last } = sequences(info, whole);
    json!({
        "baseOffset": info.base_offset,
        "lastOffset": info.base_offset + i64::from(info.last_offset_delta),
        "count": info.records,
        "baseSequence": first,
        "lastSequence": last,
        "producerId": id,
        "producerEpoch": epoch,
        "partitionLeaderEpoch": info.leader_epoch,
        "isTransactional": info.transactional,
        "isControl": info.control,
        "deleteHorizonMs": info.delete_horizon.then_some(info.base_timestamp),
        "position": position,
        "timestampType": timestamp_kind(info),
        "maxTimestamp": info.max_timestamp,
        "size": info.bytes,
        "magic": 2,
        "compresscodec": info.codec.map(batch::Codec::name),
        "crc": info.crc,
        "isvalid": valid,
    })
}

fn dump_records(whole: &[u8], info: &BatchInfo, look: &Look, out: &mut dyn Write) -> anyhow::Result<()> {
    let records = match Records::open(whole, RECORDS_BYTES_MAX.max(whole.len() - HEADER_BYTES)) {
        Ok(records) => records,
        Err(error) => {
            return Ok(note(look.output, out, 0, &format!("records of offset {}: {error}", info.base_offset))?);
        }
    };
    let first = base_sequence(whole);
    for record in records.iter() {
        match record {
            Ok(record) => {
                let line = match look.output {
                    Output::Text => record_text(&record, info, first, look),
                    Output::Json => record_json(&record, info, first, look).to_string(),
                };
                writeln!(out, "{line}")?;
            }
            Err(error) => note(look.output, out, 0, &format!("records of offset {}: {error}", info.base_offset))?,
        }
    }
    Ok(())
}

fn size(bytes: Option<&[u8]>) -> i64 {
    bytes.map_or(-1, |bytes| bytes.len() as i64)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Key and value as the tool shows them; `None` is not shown.
fn shown(record: &Record<'_>, look: &Look) -> (Option<String>, Option<String>) {
    let plain = (record.key.map(lossy), record.value.map(lossy));
    match (look.decode, record.key) {
        (None, _) if !look.data => (None, None),
        (None, _) | (Some(Decode::Offsets), None) => plain,
        (Some(Decode::Offsets), Some(key)) => match decoded(key, record.value) {
            Ok(both) => (Some(both.key), Some(both.payload)),
            Err(error) => (plain.0, Some(format!("({error})"))),
        },
    }
}

fn record_text(record: &Record<'_>, info: &BatchInfo, first: i32, look: &Look) -> String {
    let headers: Vec<_> = record.headers.iter().map(|(name, _)| *name).collect();
    let metadata = format!(
        " offset: {} {}: {} keySize: {} valueSize: {} sequence: {} headerKeys: [{}]",
        info.base_offset + i64::from(record.offset_delta),
        timestamp_kind(info),
        record.timestamp,
        size(record.key),
        size(record.value),
        sequence_after(first, record.offset_delta),
        headers.join(","),
    );
    let mut line = if look.bare { "|".to_owned() } else { format!("|{metadata}") };
    let (key, payload) = shown(record, look);
    if let Some(key) = key {
        line.push_str(&format!(" key: {key}"));
    }
    if let Some(payload) = payload {
        line.push_str(&format!(" payload: {payload}"));
    }
    line
}

fn record_json(record: &Record<'_>, info: &BatchInfo, first: i32, look: &Look) -> Value {
    let mut line = json!({
        "offset": info.base_offset + i64::from(record.offset_delta),
        "timestamp": record.timestamp,
        "keySize": size(record.key),
        "valueSize": size(record.value),
        "sequence": sequence_after(first, record.offset_delta),
        "headerKeys": record.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
    });
    if look.data {
        let document = |text: Option<String>| match (look.decode, text) {
            (_, None) => Value::Null,
            (None, Some(text)) => json!(text),
            // Decoded keys and values are documents themselves; a tombstone's is not, and no value.
            (Some(_), Some(text)) if text == "<DELETE>" => Value::Null,
            (Some(_), Some(text)) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        };
        let (key, payload) = shown(record, look);
        line["key"] = document(key);
        line["payload"] = document(payload);
    }
    line
}

/// Entries until the zeros of a preallocated file, each as (its number, its bytes).
fn entries<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8; N])> {
    bytes
        .as_chunks::<N>()
        .0
        .iter()
        .enumerate()
        .take_while(|(index, entry)| *index == 0 || entry.iter().any(|byte| *byte != 0))
}

fn dump_offset_index(bytes: &[u8], base: i64, look: &Look, out: &mut dyn Write) -> anyhow::Result<usize> {
    let mut previous = None;
    let mut faults = 0;
    for (index, entry) in entries::<OFFSET_ENTRY_BYTES>(bytes) {
        let [a, b, c, d, rest @ ..] = *entry;
        let offset = base + i64::from(u32::from_be_bytes([a, b, c, d]));
        let position = u32::from_be_bytes(rest);
        match look.output {
            _ if look.faults_only => {}
            Output::Text => writeln!(out, "offset: {offset} position: {position}")?,
            Output::Json => writeln!(out, "{}", json!({ "offset": offset, "position": position }))?,
        }
        faults += out_of_order(&mut previous, offset, index, OFFSET_ENTRY_BYTES, look.output, out)?;
    }
    Ok(faults)
}

fn dump_time_index(bytes: &[u8], base: i64, look: &Look, out: &mut dyn Write) -> anyhow::Result<usize> {
    let mut previous = None;
    let mut faults = 0;
    for (index, entry) in entries::<TIME_ENTRY_BYTES>(bytes) {
        let (timestamp, rest) = entry.split_first_chunk().expect("an entry is longer than its timestamp");
        let timestamp = i64::from_be_bytes(*timestamp);
        let relative = rest.first_chunk().map_or(0, |relative| u32::from_be_bytes(*relative));
        let offset = base + i64::from(relative);
        match look.output {
            _ if look.faults_only => {}
            Output::Text => writeln!(out, "timestamp: {timestamp} offset: {offset}")?,
            Output::Json => writeln!(out, "{}", json!({ "timestamp": timestamp, "offset": offset }))?,
        }
        faults += out_of_order(&mut previous, timestamp, index, TIME_ENTRY_BYTES, look.output, out)?;
    }
    Ok(faults)
}

/// Index keys rise strictly; anything else sends lookups astray.
fn out_of_order(
    previous: &mut Option<i64>,
    key: i64,
    index: usize,
    entry_bytes: usize,
    output: Output,
    out: &mut dyn Write,
) -> io::Result<usize> {
    let wrong = previous.is_some_and(|previous| key <= previous);
    *previous = Some(key);
    if wrong {
        note(output, out, index * entry_bytes, "this entry does not lie after the one before it")?;
    }
    Ok(usize::from(wrong))
}

fn dump_producers(bytes: &[u8], output: Output, out: &mut dyn Write) -> anyhow::Result<usize> {
    let Some(entries) = snapshot_entries(bytes) else { bail!("not a sound producer snapshot (version or checksum)") };
    for entry in entries {
        // Sequences wrap to 0 after 2^31 − 1.
        let first_sequence = match u32::try_from(entry.last_sequence) {
            Ok(last) => i64::from(last.wrapping_sub(entry.offset_delta) & 0x7fff_ffff),
            Err(_) => -1,
        };
        match output {
            Output::Text => writeln!(
                out,
                "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} lastTimestamp: {} \
                 firstSequence: {first_sequence} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                if entry.transaction_first < 0 {
                    "OptionalLong.empty".to_owned()
                } else {
                    format!("OptionalLong[{}]", entry.transaction_first)
                },
                entry.timestamp,
                entry.last_sequence,
                entry.last_offset,
                entry.offset_delta,
                entry.timestamp,
            )?,
            Output::Json => writeln!(
                out,
                "{}",
                json!({
                    "producerId": entry.producer_id,
                    "producerEpoch": entry.producer_epoch,
                    "coordinatorEpoch": entry.coordinator_epoch,
                    "currentTxnFirstOffset": (entry.transaction_first >= 0).then_some(entry.transaction_first),
                    "firstSequence": first_sequence,
                    "lastSequence": entry.last_sequence,
                    "lastOffset": entry.last_offset,
                    "offsetDelta": entry.offset_delta,
                    "timestamp": entry.timestamp,
                })
            )?,
        }
    }
    Ok(0)
}
