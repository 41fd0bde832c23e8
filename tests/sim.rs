//! Pure rooms under chance: seeded runs in virtual time, with lost answers, deaths and restarts, and a checker.
//!
//! `RINGLOG_SEED=7` runs one seed; `RINGLOG_SEEDS=5000` that many. A failure names its seed.

#![allow(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

#[path = "sim/groups.rs"]
mod groups;

/// Runs `one` for each seed asked for, `usual` of them unless told.
fn for_seeds(usual: u64, one: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("RINGLOG_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RINGLOG_SEEDS").unwrap_or(usual),
    };
    println!("seeds {seeds:?}");
    for seed in seeds {
        if let Err(panic) = std::panic::catch_unwind(|| one(seed)) {
            eprintln!("failed with RINGLOG_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
