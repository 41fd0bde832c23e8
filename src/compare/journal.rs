//! What was measured, line by line, as it is measured: so that an interrupted comparison can go on.
//!
//! Shell: one file, appended to and synced after each line. Owns the lines' form. Always true: a line cut off by a crash is
//! forgotten, whatever came before it counts; a journal of another comparison is refused, with what differs.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::report::Measurement;
use crate::bench::report::Ceilings;

/// The version of the lines. It rises when one changes its meaning.
const VERSION: u32 = 1;
/// A journal larger than this is none of ours.
const BYTES_MAX: u64 = 1 << 30;

/// What a comparison is made of: two with the same one can be the same comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Of the lines.
    pub version: u32,
    /// RFC 3339, UTC: of the first start.
    pub started_at: String,
    /// Of the order.
    pub seed: u64,
    /// Pairs of each cell.
    pub pairs: u32,
    /// The preset's name.
    pub preset: String,
    /// Both targets, as the command line names them.
    pub targets: Vec<String>,
    /// What runs at each that is started, down to the file: another build is another comparison.
    pub software: Vec<String>,
    /// Where brokers have their data.
    pub directory: String,
    /// Of the generator, under each layout.
    pub threads: Vec<u32>,
    /// Layouts of cores.
    pub layouts: Vec<String>,
    /// Keys and plans of the cells.
    pub cells: Vec<String>,
    /// Seconds measured in a turn.
    pub seconds: f64,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first.
    Header(Header),
    /// The base workload's records per second at the largest, of each target, under a layout; 0 of a recorded one.
    Maximum {
        /// Which layout.
        layout: usize,
        /// Records per second.
        records_per_second: [f64; 2],
    },
    /// The unmeasured round found records missing.
    Lossy {
        /// Of which cell.
        cell: String,
        /// Which target.
        target: usize,
        /// What was wrong.
        why: String,
    },
    /// What the host can do.
    Ceilings(Ceilings),
    /// A turn.
    Turn {
        /// Which layout.
        layout: usize,
        /// Of which cell.
        cell: String,
        /// What was found.
        measurement: Box<Measurement>,
    },
    /// Everything was measured.
    Done {},
}

/// A journal open for appending, with what it held.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Its lines, the header left out.
    pub lines: Vec<Line>,
    /// Its first line.
    pub header: Header,
}

/// What to do with a journal that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Go on with it.
    Resume,
    /// An unfinished one is kept, and the comparison refused.
    Keep,
    /// It is replaced.
    Replace,
}

impl Journal {
    /// Opens or begins a journal. Errors: a sentence.
    pub fn open(path: &Path, header: Header, existing: Existing) -> Result<Self, String> {
        let header = Header { version: VERSION, ..header };
        let shown = path.display();
        match (read(path)?, existing) {
            (Some((found, lines, bytes)), Existing::Resume) => {
                differences(&found, &header).map_err(|why| {
                    format!("{shown} is of another comparison: {why}; give the same arguments, or another --journal")
                })?;
                let file = OpenOptions::new().append(true).open(path).map_err(|error| format!("{shown}: {error}"))?;
                // What a crash cut off would run into the next line.
                file.set_len(bytes).map_err(|error| format!("{shown}: {error}"))?;
                Ok(Self { file, path: path.to_owned(), lines, header: found })
            }
            (None, Existing::Resume) => Err(format!("there is no {shown} to go on with; leave --resume out")),
            (Some((_, lines, _)), Existing::Keep)
                if !lines.contains(&Line::Done {}) && lines.iter().any(|line| matches!(line, Line::Turn { .. })) =>
            {
                let turns = lines.iter().filter(|line| matches!(line, Line::Turn { .. })).count();
                Err(format!(
                    "{shown} holds an unfinished comparison ({turns} turns): --resume goes on with it, --fresh begins anew"
                ))
            }
            _ => {
                let file = File::create(path).map_err(|error| format!("{shown}: {error}"))?;
                let mut journal = Self { file, path: path.to_owned(), lines: Vec::new(), header: header.clone() };
                journal.append(&Line::Header(header)).map_err(|error| format!("{shown}: {error}"))?;
                Ok(journal)
            }
        }
    }

    /// Appends a line; it is on the device when this returns.
    pub fn append(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text)?;
        self.file.sync_data()
    }

    /// Removes the file when it holds nothing but its header.
    pub fn discard_empty(&self) {
        if self.lines.is_empty() {
            // What cannot be removed is overwritten the next time.
            _ = std::fs::remove_file(&self.path);
        }
    }

    /// Appends a line and remembers it. Errors: a sentence with the path.
    pub fn add(&mut self, line: Line) -> Result<(), String> {
        self.append(&line).map_err(|error| format!("{}: {error}", self.path.display()))?;
        self.lines.push(line);
        Ok(())
    }

    /// Pairs of which both turns are there: layout, pair, cell by its place in `keys`.
    pub fn done(&self, keys: &[&str]) -> BTreeSet<(usize, u32, usize)> {
        let turns = |target: usize| {
            self.lines.iter().filter_map(move |line| match line {
                Line::Turn { layout, cell, measurement } if measurement.target == target => {
                    let cell = keys.iter().position(|key| key == cell)?;
                    Some((*layout, measurement.pair, cell))
                }
                _ => None,
            })
        };
        let ours: BTreeSet<_> = turns(0).collect();
        turns(1).filter(|turn| ours.contains(turn)).collect()
    }

    /// The turns of a cell under a layout; of a turn that was done again, the last one.
    pub fn turns(&self, layout: usize, key: &str) -> Vec<Measurement> {
        let mut turns: Vec<Measurement> = Vec::new();
        for line in &self.lines {
            match line {
                Line::Turn { layout: of, cell, measurement } if *of == layout && cell == key => {
                    turns.retain(|turn| (turn.pair, turn.target) != (measurement.pair, measurement.target));
                    turns.push((**measurement).clone());
                }
                _ => {}
            }
        }
        turns
    }

    /// The base workload's maximum of each target under a layout.
    pub fn maximum(&self, layout: usize) -> Option<[f64; 2]> {
        self.lines.iter().rev().find_map(|line| match line {
            Line::Maximum { layout: of, records_per_second } if *of == layout => Some(*records_per_second),
            _ => None,
        })
    }

    /// What the unmeasured rounds found wrong with a cell: which target, and what.
    pub fn lossy(&self, key: &str) -> Vec<(usize, String)> {
        let of = |line: &Line| match line {
            Line::Lossy { cell, target, why } if cell == key => Some((*target, why.clone())),
            _ => None,
        };
        self.lines.iter().filter_map(of).collect()
    }

    /// Every look at the host's limits.
    pub fn ceilings(&self) -> Vec<Ceilings> {
        let of = |line: &Line| match line {
            Line::Ceilings(ceilings) => Some(*ceilings),
            _ => None,
        };
        self.lines.iter().filter_map(of).collect()
    }
}

/// Header, lines, and the bytes they take; `None` when there is no file, or no line in it.
type Found = Option<(Header, Vec<Line>, u64)>;

fn read(path: &Path) -> Result<Found, String> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{shown}: {error}")),
        Ok(found) if found.len() > BYTES_MAX => {
            return Err(format!("{shown} is larger than any journal; give another --journal"));
        }
        Ok(_) => {}
    }
    let text = std::fs::read(path).map_err(|error| format!("{shown}: {error}"))?;
    let (mut lines, mut header, mut bytes) = (Vec::new(), None, 0);
    for piece in text.split_inclusive(|byte| *byte == b'\n') {
        let whole = piece.ends_with(b"\n");
        match serde_json::from_slice(piece) {
            Ok(Line::Header(first)) if bytes == 0 => header = Some(first),
            Ok(line) if header.is_some() && whole => lines.push(line),
            _ if header.is_some() => break,
            _ => return Err(format!("{shown} is no journal of a comparison; give another --journal")),
        }
        bytes += piece.len() as u64;
    }
    match header {
        Some(header) if header.version != VERSION => {
            Err(format!("{shown} has version {}; this tool reads version {VERSION}", header.version))
        }
        Some(header) => Ok(Some((header, lines, bytes))),
        None => Ok(None),
    }
}

fn differences(found: &Header, asked: &Header) -> Result<(), String> {
    let pairs = [
        ("targets", found.targets.join(" and "), asked.targets.join(" and ")),
        ("binaries", found.software.join(" and "), asked.software.join(" and ")),
        ("directories", found.directory.clone(), asked.directory.clone()),
        ("generator threads", format!("{:?}", found.threads), format!("{:?}", asked.threads)),
        ("preset", found.preset.clone(), asked.preset.clone()),
        ("layouts", found.layouts.join(", "), asked.layouts.join(", ")),
        ("pairs", found.pairs.to_string(), asked.pairs.to_string()),
        ("seed", found.seed.to_string(), asked.seed.to_string()),
        ("seconds measured", found.seconds.to_string(), asked.seconds.to_string()),
    ];
    for (name, found, asked) in pairs {
        if found != asked {
            return Err(format!("its {name} were {found}, not {asked}"));
        }
    }
    if found.cells != asked.cells { Err("its workloads were others".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header { seed: 3, pairs: 5, targets: vec!["a=h:1".to_owned(), "b=h:2".to_owned()], ..Header::default() }
    }

    fn turn(pair: u32, target: usize) -> Line {
        let measurement = Box::new(Measurement { pair, target, ..Measurement::default() });
        Line::Turn { layout: 0, cell: "W2".to_owned(), measurement }
    }

    #[test]
    fn what_was_appended_is_there_again_and_a_cut_line_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut journal = Journal::open(&path, header(), Existing::Keep).unwrap();
        for line in [turn(0, 0), turn(0, 1), turn(1, 1), Line::Maximum { layout: 0, records_per_second: [5.0, 6.0] }] {
            journal.add(line).unwrap();
        }
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"turn\":{\"lay").unwrap();
        let mut journal = Journal::open(&path, header(), Existing::Resume).unwrap();
        assert_eq!(journal.lines.len(), 4);
        assert_eq!(journal.done(&["W1", "W2"]), [(0, 0, 1)].into());
        assert_eq!(journal.maximum(0), Some([5.0, 6.0]));
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        journal.add(turn(1, 0)).unwrap();
        assert_eq!(Journal::open(&path, header(), Existing::Resume).unwrap().done(&["W2"]).len(), 2);
    }

    #[test]
    fn an_unfinished_journal_is_not_overwritten_by_accident() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut journal = Journal::open(&path, header(), Existing::Keep).unwrap();
        journal.add(turn(0, 0)).unwrap();
        let why = Journal::open(&path, header(), Existing::Keep).unwrap_err();
        assert!(why.contains("--resume") && why.contains("--fresh"), "{why}");
        journal.add(Line::Done {}).unwrap();
        assert!(Journal::open(&path, header(), Existing::Keep).unwrap().lines.is_empty());
    }

    #[test]
    fn a_journal_of_another_comparison_is_refused_with_what_differs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        assert!(Journal::open(&path, header(), Existing::Resume).unwrap_err().contains("no "));
        Journal::open(&path, header(), Existing::Keep).unwrap();
        let other = Header { pairs: 9, ..header() };
        assert!(Journal::open(&path, other, Existing::Resume).unwrap_err().contains("pairs were 5, not 9"));
        let builds = |version: &str| vec![format!("ringlog {version}, 9 bytes"), "kafka 4.4.0".to_owned()];
        let first = Header { software: builds("0.1.0"), ..header() };
        assert!(
            differences(&first, &Header { software: builds("0.1.1"), ..header() }).unwrap_err().contains("binaries")
        );
        assert!(differences(&header(), &Header { directory: "/other".to_owned(), ..header() }).is_err());
        assert!(differences(&header(), &Header { threads: vec![3], ..header() }).is_err());
        assert_eq!(differences(&first, &first), Ok(()));
        std::fs::write(&path, "something else\n").unwrap();
        assert!(Journal::open(&path, header(), Existing::Keep).unwrap_err().contains("no journal"));
    }

    #[test]
    fn a_turn_done_again_counts_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&directory.path().join("journal"), header(), Existing::Keep).unwrap();
        journal.add(turn(0, 0)).unwrap();
        journal.add(turn(0, 0)).unwrap();
        assert_eq!(journal.turns(0, "W2").len(), 1);
    }
}
