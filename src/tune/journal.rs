//! Every trial in a file, one line each, so that an interrupted search goes on where it stopped.
//!
//! Shell: plain files; the lines are pure. Owns the format: JSON lines, a header first, then facts and trials as they come.
//! Always true: a trial is on the device before the next begins; a last line cut short by a crash is dropped and overwritten;
//! a journal of another load, goal or budget is not gone on with.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::load::Asked;
use super::search::Record;
use super::trial::Facts;

/// Rises when a line changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;
/// A journal larger than this is not one: a thousand trials are three megabytes.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Header { schema_version: u32, tool: String, started_at: String, asked: Asked },
    Facts(Facts),
    Trial(Record),
}

/// What a journal holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// When the search began, RFC 3339.
    pub started_at: String,
    /// The question.
    pub asked: Asked,
    /// Absent when not even one trial was finished.
    pub facts: Option<Facts>,
    /// In their order.
    pub records: Vec<Record>,
    /// Bytes up to the end of the last whole line.
    length: u64,
}

impl Kept {
    /// Nothing kept yet.
    pub fn empty(asked: Asked, started_at: String) -> Self {
        Self { started_at, asked, facts: None, records: Vec::new(), length: 0 }
    }
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system said so.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// It is there and must not be overwritten.
    #[error("{} holds a search already; go on with it by --resume, or name another file with --journal", .0.display())]
    Exists(PathBuf),
    /// It is no journal, or not one of this version.
    #[error("{} is no journal of ringlog tune: {why}", .path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// Line and reason.
        why: String,
    },
    /// It is of another question.
    #[error("{} was written for another search: {difference}. Repeat its command with --resume, or name another file with --journal", .path.display())]
    Other {
        /// Which file.
        path: PathBuf,
        /// What differs.
        difference: String,
    },
}

/// Reads the text of a journal. Errors: a reason with its line.
pub fn parse(text: &str) -> Result<Kept, String> {
    let mut kept: Option<Kept> = None;
    let mut length = 0;
    for (number, piece) in text.split_inclusive('\n').enumerate() {
        if !piece.ends_with('\n') {
            // The process died while writing: the trial counts as not made.
            break;
        }
        let line: Line = serde_json::from_str(piece).map_err(|error| format!("line {}: {error}", number + 1))?;
        length += piece.len() as u64;
        match (line, &mut kept) {
            (Line::Header { schema_version, started_at, asked, .. }, None) => {
                if schema_version != SCHEMA_VERSION {
                    return Err(format!("it has schema version {schema_version}; this program reads {SCHEMA_VERSION}"));
                }
                kept = Some(Kept { started_at, asked, facts: None, records: Vec::new(), length: 0 });
            }
            (Line::Header { .. }, Some(_)) => return Err(format!("line {}: a second header", number + 1)),
            (_, None) => return Err("the first line is no header".to_owned()),
            (Line::Facts(facts), Some(kept)) => kept.facts = Some(facts),
            (Line::Trial(record), Some(kept)) => {
                if record.order.number != kept.records.len() || record.ended < record.began {
                    return Err(format!("line {}: trial {} is out of order", number + 1, record.order.number));
                }
                kept.records.push(record);
            }
        }
    }
    let mut kept = kept.ok_or("it is empty")?;
    kept.length = length;
    Ok(kept)
}

/// Reads a journal from its file.
pub fn read(path: &Path) -> Result<Kept, JournalError> {
    let io = |source| JournalError::Io { path: path.to_owned(), source };
    let foreign = |why: String| JournalError::Foreign { path: path.to_owned(), why };
    let mut file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() > JOURNAL_BYTES_MAX {
        return Err(foreign(format!("it is larger than {} MiB", JOURNAL_BYTES_MAX >> 20)));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(io)?;
    // A cut last line may end within a letter.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = std::str::from_utf8(&bytes[..whole]).map_err(|_| foreign("it is no text".to_owned()))?;
    parse(text).map_err(foreign)
}

/// A journal open for writing.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// A new one. Errors: there is one already.
    pub fn create(path: &Path, asked: &Asked, started_at: &str) -> Result<Self, JournalError> {
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|source| {
            if source.kind() == io::ErrorKind::AlreadyExists {
                JournalError::Exists(path.to_owned())
            } else {
                JournalError::Io { path: path.to_owned(), source }
            }
        })?;
        let mut journal = Self { path: path.to_owned(), file };
        journal.put(&Line::Header {
            schema_version: SCHEMA_VERSION,
            tool: format!("ringlog tune {}", env!("CARGO_PKG_VERSION")),
            started_at: started_at.to_owned(),
            asked: asked.clone(),
        })?;
        Ok(journal)
    }

    /// Goes on with one that was written for the same question.
    pub fn resume(path: &Path, asked: &Asked) -> Result<(Self, Kept), JournalError> {
        let kept = read(path)?;
        if let Some(difference) = kept.asked.difference(asked) {
            return Err(JournalError::Other { path: path.to_owned(), difference });
        }
        let io = |source| JournalError::Io { path: path.to_owned(), source };
        let mut file = OpenOptions::new().write(true).open(path).map_err(io)?;
        file.set_len(kept.length).map_err(io)?;
        file.seek(SeekFrom::End(0)).map_err(io)?;
        Ok((Self { path: path.to_owned(), file }, kept))
    }

    /// What the first trial told.
    pub fn on_facts(&mut self, facts: &Facts) -> Result<(), JournalError> {
        self.put(&Line::Facts(facts.clone()))
    }

    /// A trial; on the device when this returns. Gives back the record as a reader of the file will see it: a decimal may end a
    /// hair off its binary, and a search that is resumed must see the same numbers as one that was not.
    pub fn on_record(&mut self, record: &Record) -> Result<Record, JournalError> {
        self.put(&Line::Trial(record.clone()))?;
        let text = serde_json::to_string(record).expect("all of a record can be written as JSON");
        Ok(serde_json::from_str(&text).expect("what was just written can be read"))
    }

    fn put(&mut self, line: &Line) -> Result<(), JournalError> {
        let mut text = serde_json::to_string(line).expect("all of a line can be written as JSON");
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|source| JournalError::Io { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::load::{Connection, Load};
    use crate::tune::search::{Order, Purpose};
    use crate::tune::trial::Measured;
    use std::time::Duration;

    fn asked() -> Asked {
        Asked {
            mode: "tune".to_owned(),
            bootstrap: "localhost:9092".to_owned(),
            load: Load::default(),
            connection: Connection::default(),
            target: "latency".to_owned(),
            slo: String::new(),
            space: "linger.ms: 0 5".to_owned(),
            budget_seconds: 60,
            warmup_seconds: 1,
            seed: 1,
        }
    }

    fn record(number: usize) -> Record {
        let began = Duration::from_millis(1500 * number as u64);
        Record {
            order: Order {
                number,
                point: vec![0, number],
                duration: Duration::from_secs(1),
                purpose: Purpose::Explore,
            },
            began,
            ended: began + Duration::from_millis(1400),
            measured: Measured { p99_us: 1234.5, broker_cpu_ms_per_mb: Some(0.7), valid: true, ..Measured::default() },
        }
    }

    #[test]
    fn what_was_written_is_read_back_and_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tune.jsonl");
        let mut journal = Journal::create(&path, &asked(), "2026-01-01T00:00:00Z").unwrap();
        journal.on_record(&record(0)).unwrap();
        let facts = Facts { software: "kafka".to_owned(), ..Facts::default() };
        journal.on_facts(&facts).unwrap();
        drop(journal);
        // A crash in the middle of a line.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all("{\"trial\":{\"order\":\u{e4}".as_bytes()).unwrap();
        drop(file);

        let (mut journal, kept) = Journal::resume(&path, &asked()).unwrap();
        assert_eq!((kept.records, kept.facts), (vec![record(0)], Some(facts)));
        journal.on_record(&record(1)).unwrap();
        assert_eq!(read(&path).unwrap().records, vec![record(0), record(1)]);
    }

    #[test]
    fn a_search_is_never_overwritten_nor_mixed_with_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tune.jsonl");
        Journal::create(&path, &asked(), "").unwrap();
        assert!(matches!(Journal::create(&path, &asked(), ""), Err(JournalError::Exists(_))));
        let mut other = asked();
        other.load.producers = 7;
        let why = Journal::resume(&path, &other).unwrap_err().to_string();
        assert!(why.contains("load.producers was 1 and is 7 now"), "{why}");
        assert!(matches!(read(&dir.path().join("none")), Err(JournalError::Io { .. })));
    }

    #[test]
    fn foreign_files_are_refused_with_their_line() {
        for (text, part) in [("", "empty"), ("hello\n", "line 1"), ("{\"facts\":{}}\n", "no header")] {
            assert!(parse(text).unwrap_err().contains(part), "{text}");
        }
        let header = serde_json::to_string(&Line::Header {
            schema_version: SCHEMA_VERSION,
            tool: String::new(),
            started_at: String::new(),
            asked: asked(),
        })
        .unwrap();
        let trial = serde_json::to_string(&Line::Trial(record(3))).unwrap();
        assert!(parse(&format!("{header}\n{trial}\n")).unwrap_err().contains("out of order"));
        assert!(parse(&format!("{header}\n{header}\n")).unwrap_err().contains("second header"));
        assert!(parse(&header.replace(":1,", ":9,")).is_err());
    }
}
