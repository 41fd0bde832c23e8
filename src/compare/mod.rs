//! Two targets, one load, paired runs: is there a difference, how large, how sure?
//!
//! Shell, over pure parts. Measures any Kafka broker with `bench`; knows nothing of the server's rooms.
//!
//! ```text
//! targets    what is compared, as it is written      presets   workloads, durations       order    pairs, drawn by seed
//! brokers    processes that are started   kafka      jars, Java, settings   side   a target as it is reached
//! soak       a load for hours, in stretches
//! turn       one target under one load    run        leads: start, warm up, measure, end    journal   line by line, resumable
//! metric     the numbers and promises     verdict    faster, slower, no difference shown    assemble  turns to cells
//! report     compare.json                 html, figures   the page                          repeat    the call that does it alone
//! ```

mod assemble;
mod brokers;
mod figures;
pub mod html;
pub mod journal;
mod kafka;
pub mod metric;
pub mod order;
pub mod presets;
mod repeat;
pub mod report;
pub mod run;
mod side;
pub mod soak;
pub mod targets;
mod turn;
pub mod verdict;
