//! The load generator: workloads, schedules, histograms, verification, what the broker paid, reports.
//!
//! Shell, over pure parts. Speaks to any Kafka broker through `client`; knows nothing of the server's rooms.
//!
//! ```text
//! plan       everything a run is told                 load      leads a run: prepare, warm up, measure, drain, verify
//! workload   what is sent    schedule  when           station   one generator thread: produce, prebuilt, consume, idle, storm
//! recorder   histograms, seconds    verify  ledger    target    topic, offsets, settings of the cluster    reader  fetches
//! assemble   from what was found to the report        read_back reads everything back for the ledger
//! search, steady, fail_if, stats   decisions          host, process, ceilings, broker_cost, ack_class   beside the numbers
//! checkup    is this host fit?      probes  what it takes a few seconds to know
//! report     run.json        omb  OpenMessaging       figures, svg, plots, html   the page       csv  the seconds
//! ```

pub mod ack_class;
pub mod assemble;
pub mod broker_cost;
pub mod ceilings;
pub mod checkup;
pub mod clock;
mod consume;
pub mod csv;
pub mod fail_if;
pub mod figures;
pub mod host;
pub mod html;
mod idle;
pub mod load;
pub mod omb;
pub mod plan;
pub mod plots;
mod prebuilt;
pub mod probes;
pub mod process;
mod produce;
mod read_back;
mod reader;
pub mod recorder;
pub mod report;
pub mod schedule;
pub mod search;
mod station;
pub mod stats;
pub mod steady;
mod storm;
pub mod svg;
pub mod target;
mod timer;
pub mod units;
pub mod verify;
pub mod watch;
mod wire;
mod work;
pub mod workload;
