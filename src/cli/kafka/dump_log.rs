//! `kafka-dump-log`.
//!
//! Shell: reads files. Owns the tool's flags; the text is that of `ringlog log dump`, which says what Kafka's tool says. Always: only
//! looks. Source: Kafka 4.4's DumpLogSegments, asked.

use std::path::Path;

use super::options::{Flag, Manner, Words, maybe, switch, value};
use super::{Desk, Stop, Tool, Wrong};
use crate::cli::dump::{Decode, Look, Output, dump};

pub(super) const TOOL: Tool = Tool {
    name: "kafka-dump-log",
    about: "Shows what lies in the files of a log.",
    flags: FLAGS,
    manner: Manner::Plain,
    wrong: Wrong::After("Exception in thread \"main\" joptsimple.UnrecognizedOptionException: "),
    run,
};

const FLAGS: &[Flag] = &[
    switch("cluster-metadata-decoder", "Keys and values of Kafka's metadata log: not read here."),
    switch("deep-iteration", "Every record of every batch."),
    value("files", "file,…", "REQUIRED: .log, .index, .timeindex or .snapshot files."),
    switch("help", "Show this page."),
    switch("index-sanity-check", "Of indexes: only whether their entries are in order."),
    maybe("key-decoder-class", "class", "What keys are: only Kafka's StringDecoder."),
    value("max-bytes", "bytes", "Of each log: batches of so many bytes."),
    value("max-message-size", "bytes", "Records are read whatever their size."),
    switch("offsets-decoder", "Keys and values of __consumer_offsets."),
    switch("print-data-log", "Every record with its key and value."),
    switch("remote-log-metadata-decoder", "Keys and values of remote log metadata: not read here."),
    switch("share-group-state-decoder", "Keys and values of __share_group_state: not read here."),
    switch("skip-record-metadata", "Of records, only key and value."),
    switch("transaction-log-decoder", "Keys and values of __transaction_state: not read here."),
    maybe("value-decoder-class", "class", "What values are: only Kafka's StringDecoder."),
    switch("verify-index-only", "Of indexes: only what is wrong."),
    switch("version", "Show whose output is spoken."),
];

fn run(words: &Words, desk: &mut Desk<'_>) -> Result<(), Stop> {
    words.require(&["files"]).map_err(Stop::Usage)?;
    let exception = |why: String| Stop::Said(format!("Exception in thread \"main\" {why}"));
    for unread in [
        "cluster-metadata-decoder",
        "remote-log-metadata-decoder",
        "share-group-state-decoder",
        "transaction-log-decoder",
    ] {
        if words.has(unread) {
            return Err(Stop::Said(format!(
                "--{unread} is not read here: Kafka's own kafka-dump-log reads these files"
            )));
        }
    }
    for decoder in ["key-decoder-class", "value-decoder-class"] {
        if let Some(class) = words.value(decoder).map_err(exception)?
            && !class.ends_with("StringDecoder")
        {
            return Err(exception(format!(
                "java.lang.RuntimeException: Failed to load decoder class\nCaused by: java.lang.ClassNotFoundException: {class}"
            )));
        }
    }
    let decoders = words.has("offsets-decoder") || words.has("key-decoder-class") || words.has("value-decoder-class");
    let data = words.has("print-data-log") || decoders;
    let bytes_max: Option<i64> = words.number("max-bytes").map_err(exception)?;
    let look = Look {
        records: data || words.has("deep-iteration"),
        data,
        decode: words.has("offsets-decoder").then_some(Decode::Offsets),
        bare: words.has("skip-record-metadata"),
        faults_only: words.has("index-sanity-check") || words.has("verify-index-only"),
        bytes_max: bytes_max.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX),
        output: Output::Text,
    };
    for file in words.value("files").map_err(exception)?.unwrap_or_default().split(',').map(str::trim) {
        let path = Path::new(file);
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let known = ["log", "index", "timeindex", "snapshot"].contains(&extension);
        if !known || !path.exists() {
            writeln!(desk.out, "Dumping {file}")?;
            if known {
                if let ("log", Some(Ok(base))) =
                    (extension, path.file_stem().and_then(|stem| stem.to_str()).map(str::parse::<i64>))
                {
                    writeln!(desk.out, "Log starting offset: {base}")?;
                }
                return Err(exception(format!("java.nio.file.NoSuchFileException: {file}")));
            }
            desk.out.flush()?;
            eprintln!("Ignoring unknown file {file}");
            continue;
        }
        let faults = dump(path, &look, &mut desk.out).map_err(|error| exception(format!("{file}: {error}")))?;
        if words.has("index-sanity-check") && extension.ends_with("index") && faults == 0 {
            writeln!(desk.out, "{file} passed sanity check.")?;
        }
    }
    Ok(())
}
