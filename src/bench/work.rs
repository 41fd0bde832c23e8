//! What one generator thread does from start to end, whatever the kind of run.
//!
//! Shell; a task on the thread of an `Io`. Owns which tasks a thread has and when it has ended. Always true: a thread tells that
//! it is ready once for each of [`tasks`], that it is done when nothing more will come of itself, and all it knows at the end.

use std::sync::Arc;

use tokio::task::{JoinHandle, spawn_local};

use super::plan::{Kind, Plan};
use super::station::{Station, Told};
use super::{consume, idle, prebuilt, produce, storm};
use crate::client::Io;

/// How many tasks the plan has in all: each tells when it is ready.
pub(crate) fn tasks(plan: &Plan) -> u32 {
    let producers = if plan.kind.produces() { plan.producers } else { 0 };
    let consumers = if plan.kind.consumes() { plan.consumers * plan.groups.max(1) } else { 0 };
    match plan.kind {
        Kind::Idle | Kind::ConnectStorm => plan.threads,
        _ => producers + consumers,
    }
}

/// The thread's work, from preparing to the end.
pub(crate) async fn run(station: Arc<Station>, io: Io) {
    let plan = &station.brief.plan;
    let mut sources: Vec<JoinHandle<()>> = Vec::new();
    let mut followers: Vec<JoinHandle<()>> = Vec::new();
    if plan.kind.produces() {
        for number in station.share(plan.producers) {
            let station = Arc::clone(&station);
            sources.push(if plan.prebuilt {
                spawn_local(prebuilt::run(station, number))
            } else {
                spawn_local(produce::run(station, io.clone(), number))
            });
        }
    }
    if plan.kind.consumes() {
        for number in station.share(plan.consumers * plan.groups.max(1)) {
            let task = spawn_local(consume::run(Arc::clone(&station), io.clone(), number));
            if plan.kind == Kind::Consume { sources.push(task) } else { followers.push(task) }
        }
    }
    match plan.kind {
        Kind::Idle => sources.push(spawn_local(idle::run(Arc::clone(&station)))),
        Kind::ConnectStorm => sources.push(spawn_local(storm::run(Arc::clone(&station)))),
        _ => {}
    }
    let reporting = {
        let station = Arc::clone(&station);
        spawn_local(async move {
            if let Some(clock) = station.started().await {
                station.report_seconds(clock).await;
            }
        })
    };
    for source in sources {
        // A task that panicked has told nothing; the others' results stand, and the leader sees fewer records.
        if source.await.is_err() {
            station.sheet().notes.push("A producer or consumer of this run ended by a panic.".to_owned());
        }
    }
    station.tell(Told::Done);
    station.stopped().await;
    for follower in followers {
        _ = follower.await;
    }
    _ = reporting.await;
    station.end();
}
