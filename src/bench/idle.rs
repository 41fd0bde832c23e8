//! Connections that do next to nothing: what do they cost the broker, and how long does each rare question take?
//!
//! Shell. Owns the connections of one thread. Each asks one small question in [`EVERY`], evenly spread, or as often as the
//! plan's rate says; the broker's memory and processor time are the result. Always true: a connection that breaks is counted
//! as an error, and opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::spawn_local;

use super::clock::Clock;
use super::schedule::{Arrival, Rate, Schedule};
use super::station::{Station, Told};
use super::target::BenchError;
use super::timer::Timer;
use super::wire::{Wire, first_address};
use crate::client::settings::HostPort;

/// How often a connection asks, unless the plan has a rate.
const EVERY: Duration = Duration::from_secs(10);
/// Connections opened at the same time.
const OPENING_MAX: usize = 64;

/// All idle connections of this thread.
pub(crate) async fn run(station: Arc<Station>) {
    if let Err(error) = idle(&station).await {
        station.tell(Told::Failed(error));
    }
}

async fn idle(station: &Arc<Station>) -> Result<(), BenchError> {
    let plan = &station.brief.plan;
    let address = first_address(&plan.bootstrap).map_err(BenchError::Plan)?;
    let numbers: Vec<u32> = station.share(plan.connections).collect();
    let opening = Arc::new(Semaphore::new(OPENING_MAX));
    let opened = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    // The first one tells whether the broker is there at all.
    open(&address).await?;
    let memory = || station.brief.broker_pid.and_then(super::process::process).map(|process| process.rss_bytes);
    let before = memory();
    for number in &numbers {
        let (station, address, opening, opened) =
            (Arc::clone(station), address.clone(), Arc::clone(&opening), Arc::clone(&opened));
        let number = *number;
        tasks.push(spawn_local(async move {
            let wire = {
                let _one = opening.acquire().await;
                open(&address).await.ok()
            };
            opened.fetch_add(1, Ordering::Relaxed);
            if let Some(clock) = station.started().await {
                converse(&station, clock, number, wire, &address).await;
            }
        }));
    }
    while opened.load(Ordering::Relaxed) < numbers.len() as u64 && !station.is_stopping() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if let (Some(before), Some(after), 0) = (before, memory(), station.number) {
        let growth = after.saturating_sub(before) as f64 / f64::from(plan.connections);
        let note = format!("Opening the connections grew the broker's memory by {} each.", super::units::bytes(growth));
        station.sheet().notes.push(note);
    }
    station.tell(Told::Ready);
    for task in tasks {
        _ = task.await;
    }
    Ok(())
}

async fn open(address: &HostPort) -> Result<Wire, BenchError> {
    let host = |source| BenchError::Host { what: format!("connecting to {address}"), source };
    let mut wire = Wire::connect(address).await.map_err(host)?;
    wire.ask().await.map_err(host)?;
    Ok(wire)
}

/// One connection's questions until the stop.
async fn converse(station: &Station, clock: Clock, number: u32, mut wire: Option<Wire>, address: &HostPort) {
    let plan = &station.brief.plan;
    let rate = match plan.rate {
        Rate::Max => Rate::Fixed(f64::from(plan.connections) / EVERY.as_secs_f64()),
        rate => rate,
    };
    let over_us = u64::try_from((plan.warmup + plan.duration).as_micros()).unwrap_or(u64::MAX);
    let schedule = Schedule::new(rate, Arrival::Uniform, plan.connections, number, over_us, plan.workload.seed);
    let (Some(mut schedule), Ok(mut timer)) = (schedule, Timer::new(clock)) else { return };
    loop {
        let intended = schedule.next_at();
        tokio::select! {
            woken = timer.until(intended) => if woken.is_err() { return },
            () = station.stopped() => return station.charge_unsent(&mut schedule),
        }
        schedule.advance();
        let began = clock.now();
        if wire.is_none() {
            wire = Wire::connect(address).await.ok();
        }
        let answered = match &mut wire {
            Some(wire) => wire.ask().await,
            None => Err(std::io::ErrorKind::NotConnected.into()),
        };
        let now = clock.now();
        let mut sheet = station.sheet();
        match answered {
            Ok(()) => sheet.recorder.on_answer(now, intended, began),
            Err(error) => {
                sheet.recorder.on_failed(now, intended, began, 1);
                sheet.on_error(&error.kind().to_string(), 1);
                drop(sheet);
                wire = None;
            }
        }
    }
}
