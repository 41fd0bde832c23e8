//! Pure. A bounded run of each fuzz target: valid inputs, cut and damaged by seeded chance.
//!
//! `RINGLOG_FUZZ_RUNS` (50,000) says how many inputs a target gets; `RINGLOG_SEED` sets the first seed. The same targets
//! run without bound, guided by coverage, under `fuzz/`; `RINGLOG_FUZZ_CORPUS=fuzz/corpus` writes the valid inputs there.

mod fuzz_support;

use std::path::Path;
use std::{fs, io};

use fastrand::Rng;
use fuzz_support::TARGETS;

fn from_environment(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

/// Tells which input broke a target, should it panic.
struct Input<'a> {
    target: &'static str,
    seed: u64,
    bytes: &'a [u8],
}

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("target {} failed with RINGLOG_SEED={} on {:?}", self.target, self.seed, self.bytes);
        }
    }
}

#[test]
fn every_target_keeps_its_promises_on_damaged_input() {
    let runs = from_environment("RINGLOG_FUZZ_RUNS").unwrap_or(50_000);
    let first_seed = from_environment("RINGLOG_SEED").unwrap_or(1);
    for target in TARGETS {
        let corpus = (target.corpus)();
        if let Some(directory) = std::env::var_os("RINGLOG_FUZZ_CORPUS") {
            write_corpus(&Path::new(&directory).join(target.name), &corpus).expect("the corpus could not be written");
        }
        for bytes in &corpus {
            let _input = Input { target: target.name, seed: first_seed, bytes };
            (target.run)(bytes);
        }
        for seed in first_seed..first_seed + runs {
            let bytes = damaged(&corpus, &mut Rng::with_seed(seed));
            let _input = Input { target: target.name, seed, bytes: &bytes };
            (target.run)(&bytes);
        }
    }
}

fn write_corpus(directory: &Path, corpus: &[Vec<u8>]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    corpus
        .iter()
        .enumerate()
        .try_for_each(|(number, bytes)| fs::write(directory.join(format!("valid-{number}")), bytes))
}

/// One of the corpus after one to six changes of the kinds that break parsers.
fn damaged(corpus: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut bytes = corpus[random.usize(..corpus.len())].clone();
    for _ in 0..random.u8(1..=6) {
        if bytes.is_empty() {
            bytes.push(random.u8(..));
        }
        let at = random.usize(..bytes.len());
        match random.u8(..7) {
            0 => bytes[at] ^= 1 << random.u8(..8),
            1 => bytes[at] = random.choice([0, 1, 0x7f, 0x80, 0xff]).expect("there are some"),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.u8(..)),
            4 => drop(bytes.drain(at..(at + random.usize(1..20)).min(bytes.len()))),
            5 => {
                // A number at the edge of its range.
                let number = random.choice([0, 1, -1, i32::MAX, i32::MIN]).expect("there are some").to_be_bytes();
                bytes.iter_mut().skip(at).zip(number).for_each(|(byte, new)| *byte = new);
            }
            _ => {
                // A piece of another input.
                let other = &corpus[random.usize(..corpus.len())];
                let from = random.usize(..other.len());
                let piece = &other[from..(from + random.usize(1..40)).min(other.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
        }
    }
    bytes
}
