//! Connections made and closed, again and again: what does a reconnecting fleet cost?
//!
//! Shell. Owns the loops of one thread: connect, ask one small question, close. Closed loop with the plan's connections at a
//! time, or open loop by its rate. Always true: latency is from the intended begin to the answer; a failed connection is an
//! error, not a gap.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_local;

use super::clock::Clock;
use super::schedule::{Arrival, Micros, Schedule};
use super::station::{Station, Told};
use super::target::BenchError;
use super::timer::Timer;
use super::wire::{Wire, first_address};
use crate::client::settings::HostPort;

/// After a refused connection: a broker whose backlog is full is not asked ten thousand times a second.
const AFTER_FAILURE: Duration = Duration::from_millis(20);

/// All loops of this thread.
pub(crate) async fn run(station: Arc<Station>) {
    if let Err(error) = storm(&station).await {
        station.tell(Told::Failed(error));
    }
}

async fn storm(station: &Arc<Station>) -> Result<(), BenchError> {
    let plan = &station.brief.plan;
    let address = first_address(&plan.bootstrap).map_err(BenchError::Plan)?;
    let host = |source| BenchError::Host { what: format!("connecting to {address}"), source };
    Wire::connect(&address).await.map_err(host)?.ask().await.map_err(host)?;
    station.tell(Told::Ready);
    let Some(clock) = station.started().await else { return Ok(()) };
    let tasks: Vec<_> = station
        .share(plan.connections)
        .map(|number| spawn_local(one_after_the_other(Arc::clone(station), clock, number, address.clone())))
        .collect();
    for task in tasks {
        _ = task.await;
    }
    Ok(())
}

async fn one_after_the_other(station: Arc<Station>, clock: Clock, number: u32, address: HostPort) {
    let plan = &station.brief.plan;
    let over_us = u64::try_from((plan.warmup + plan.duration).as_micros()).unwrap_or(u64::MAX);
    let mut schedule =
        Schedule::new(plan.rate, Arrival::Uniform, plan.connections, number, over_us, plan.workload.seed);
    let Ok(mut timer) = Timer::new(clock) else { return };
    while !station.is_stopping() && station.may_send(1) {
        let mut intended: Micros = clock.now();
        if let Some(schedule) = &mut schedule {
            intended = schedule.next_at();
            tokio::select! {
                woken = timer.until(intended) => if woken.is_err() { return },
                () = station.stopped() => break,
            }
            schedule.advance();
        }
        let began = clock.now();
        let answered = async { Wire::connect(&address).await?.ask().await }.await;
        let now = clock.now();
        let failed = {
            let mut sheet = station.sheet();
            sheet.last_us = sheet.last_us.max(now);
            match answered {
                Ok(()) => {
                    sheet.recorder.on_answer(now, intended, began);
                    false
                }
                Err(error) => {
                    sheet.recorder.on_failed(now, intended, began, 1);
                    sheet.on_error(&error.kind().to_string(), 1);
                    true
                }
            }
        };
        if failed {
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }
    if let Some(schedule) = &mut schedule {
        station.charge_unsent(schedule);
    }
}
