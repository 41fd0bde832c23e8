//! The admin door: health, metrics, and JSON for people and scripts.
//!
//! Shell, on the control thread, never on a shard. Owns the routes; every fact is asked of the shards through the mesh at
//! the time of the request. Always: reads only, waits at most [`SHARD_PATIENCE`] for each question even when a shard hangs
//! (what it did not say is left out), and listens on loopback unless told otherwise, since nothing here asks who is calling.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::{Router, routing::get};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::exposition::{self, Detail, Scrape, ShardScrape};
use super::groups::GroupFacts;
use super::mesh::{self, ShardPort};
use crate::controller::image::Image;
use crate::metrics::ShardMetrics;
use crate::shard::calls::{ShardAnswer, ShardCall, ShardFacts};

/// How long one shard may take to answer before its part is left out.
const SHARD_PATIENCE: Duration = Duration::from_secs(1);

/// Where the broker stands in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// Logs are being opened.
    Starting = 0,
    /// Serving.
    Ready = 1,
    /// Finishing what was accepted.
    Draining = 2,
}

/// What the routes can see.
pub struct Facts {
    /// The mesh.
    pub shards: ShardPort,
    /// Counters by shard; readable without asking.
    pub counters: Vec<Arc<ShardMetrics>>,
    /// The newest image.
    pub image: watch::Receiver<Arc<Image>>,
    /// When the process began.
    pub started: Instant,
    /// See [`Phase`].
    pub phase: AtomicU8,
}

impl Facts {
    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Draining,
        }
    }

    /// Moves to `phase`.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    async fn shard_facts(&self) -> Vec<Option<Box<ShardFacts>>> {
        let answers = mesh::ask_all(&self.shards, SHARD_PATIENCE, || ShardCall::Describe).await;
        let facts = |answer| if let Some(ShardAnswer::Facts(facts)) = answer { Some(facts) } else { None };
        answers.into_iter().map(facts).collect()
    }

    async fn groups(&self, described: &[Option<Box<ShardFacts>>]) -> Vec<GroupFacts> {
        let image = self.image.borrow().clone();
        let partitions: Vec<_> = described.iter().flatten().flat_map(|facts| facts.partitions.clone()).collect();
        super::groups::gather(&self.shards, &image, &partitions, SHARD_PATIENCE).await
    }
}

/// The routes.
pub fn router(facts: Arc<Facts>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/public_metrics", get(public_metrics))
        .route("/health/live", get(live))
        .route("/healthz", get(live))
        .route("/health/ready", get(ready))
        .route("/v1/status/ready", get(ready))
        .route("/api/cluster", get(cluster))
        .route("/api/topics", get(topics))
        .route("/api/partitions", get(partitions))
        .route("/api/groups", get(groups))
        .route("/api/shards", get(shards))
        .with_state(facts)
}

async fn live() -> &'static str {
    "alive\n"
}

async fn ready(State(facts): State<Arc<Facts>>) -> Response {
    let (status, reason) = match facts.phase() {
        Phase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "logs are being opened"),
        Phase::Ready => (StatusCode::OK, "serving"),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "shutting down"),
    };
    (status, Json(json!({ "ready": status == StatusCode::OK, "reason": reason }))).into_response()
}

async fn metrics(State(facts): State<Arc<Facts>>) -> Response {
    exposition_of(&facts, Detail::PerPartition).await
}

async fn public_metrics(State(facts): State<Arc<Facts>>) -> Response {
    exposition_of(&facts, Detail::Sums).await
}

async fn exposition_of(facts: &Facts, detail: Detail) -> Response {
    let reports = mesh::ask_all(&facts.shards, SHARD_PATIENCE, || ShardCall::Metrics).await;
    let described = facts.shard_facts().await;
    let groups = if detail == Detail::PerPartition { facts.groups(&described).await } else { Vec::new() };
    let broker = facts.image.borrow().brokers.first().cloned();
    let shards = facts.counters.iter().zip(reports).zip(described).map(|((counters, report), facts)| ShardScrape {
        counters: Arc::clone(counters),
        report: if let Some(ShardAnswer::Metrics(report)) = report { Some(report) } else { None },
        facts,
    });
    let scrape = Scrape {
        shards: shards.collect(),
        groups,
        uptime: facts.started.elapsed(),
        node_id: broker.as_ref().map_or(-1, |broker| broker.id.value()),
        address: broker.map_or_else(String::new, |broker| format!("{}:{}", broker.host, broker.port)),
    };
    let text = exposition::render(&scrape, detail);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}

async fn cluster(State(facts): State<Arc<Facts>>) -> Json<Value> {
    let image = facts.image.borrow().clone();
    let brokers = image.brokers.iter();
    Json(json!({
        "cluster_id": image.cluster_id,
        "version": env!("CARGO_PKG_VERSION"),
        "metadata_version": image.version,
        "uptime_seconds": facts.started.elapsed().as_secs(),
        "brokers": brokers
            .map(|broker| json!({ "id": broker.id.value(), "host": broker.host, "port": broker.port }))
            .collect::<Vec<_>>(),
    }))
}

async fn topics(State(facts): State<Arc<Facts>>) -> Json<Value> {
    let image = facts.image.borrow().clone();
    let topics = image.topics.values().map(|topic| {
        json!({
            "name": &*topic.name,
            "id": topic.id.to_string(),
            "internal": topic.internal,
            "partitions": topic.partitions.len(),
            "configs": topic.configs,
        })
    });
    Json(Value::Array(topics.collect()))
}

async fn partitions(State(facts): State<Arc<Facts>>) -> Json<Value> {
    let mut rows = Vec::new();
    for shard in facts.shard_facts().await.into_iter().flatten() {
        let index = shard.shard;
        rows.extend(shard.partitions.into_iter().map(|partition| {
            let mut row = serde_json::to_value(partition).unwrap_or(Value::Null);
            row["shard"] = json!(index);
            row
        }));
    }
    rows.sort_by_key(|row| (row["topic"].as_str().map(str::to_owned), row["partition"].as_i64()));
    Json(Value::Array(rows))
}

async fn groups(State(facts): State<Arc<Facts>>) -> Json<Value> {
    let groups = facts.groups(&facts.shard_facts().await).await;
    Json(serde_json::to_value(groups).unwrap_or(Value::Null))
}

async fn shards(State(facts): State<Arc<Facts>>) -> Json<Value> {
    let described = facts.shard_facts().await;
    let rows = facts.counters.iter().enumerate().zip(described).map(|((index, counters), described)| {
        json!({
            "shard": index,
            "answers": described.is_some(),
            "connections": counters.connections_open(),
            "partitions": described.map(|facts| facts.partitions.len()),
            "counters": counters.named().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        })
    });
    Json(Value::Array(rows.collect()))
}
