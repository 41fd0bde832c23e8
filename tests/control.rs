//! The control plane from outside: every route of the admin listener, and a broker within another program.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod harness;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ringlog::client::admin::NewTopic;
use ringlog::client::{
    Admin, AdminSettings, Consumer, ConsumerSettings, Producer, ProducerRecord, ProducerSettings, Settings as _,
};
use ringlog::config::{self, Sources};
use ringlog::control::Embedded;
use ringlog::types::{PartitionIndex, TopicPartition};
use serde_json::{Value, json};

use harness::Broker;

const TIME_MAX: Duration = Duration::from_secs(30);

fn create(bootstrap: SocketAddr, topic: &str, partitions: i32) {
    let settings = AdminSettings::builder().set("bootstrap.servers", bootstrap).build().unwrap();
    let made = Admin::new(settings)
        .unwrap()
        .blocking()
        .create_topics(vec![NewTopic::new(topic).partitions(partitions)], false);
    assert!(made.unwrap().iter().all(|topic| topic.error.is_none()));
}

fn send(bootstrap: SocketAddr, topic: &str, value: &str) {
    let settings = ProducerSettings::builder().set("bootstrap.servers", bootstrap).build().unwrap();
    let producer = Producer::new(settings).unwrap();
    producer.send_sync(ProducerRecord::to(topic).value(value.to_owned())).unwrap();
}

/// The first value of the topic.
fn first(bootstrap: SocketAddr, topic: &str) -> String {
    let settings = ConsumerSettings::builder()
        .set("bootstrap.servers", bootstrap)
        .set("auto.offset.reset", "earliest")
        .build()
        .unwrap();
    let mut consumer = Consumer::new(settings).unwrap();
    consumer.assign([TopicPartition { topic: topic.into(), partition: PartitionIndex::ZERO }]).unwrap();
    let records = consumer.poll_sync(TIME_MAX).unwrap();
    String::from_utf8(records[0].value.clone().unwrap().to_vec()).unwrap()
}

/// Status and body of one page.
fn get(admin: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn get_json(admin: SocketAddr, path: &str) -> Value {
    let (status, body) = get(admin, path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn every_route_of_the_admin_listener_tells_what_is_true() {
    let broker = Broker::start(&[("engine.shards", "1")]);
    create(broker.kafka, "orders", 2);
    send(broker.kafka, "orders", "one");

    assert_eq!(get(broker.admin, "/health/live"), (200, "alive\n".to_owned()));
    assert_eq!(get_json(broker.admin, "/health/ready"), json!({ "ready": true, "reason": "serving" }));
    assert_eq!(get(broker.admin, "/api/nothing").0, 404);

    let cluster = get_json(broker.admin, "/api/cluster");
    let here = json!([{ "id": 1, "host": "127.0.0.1", "port": broker.kafka.port() }]);
    assert_eq!((&cluster["brokers"], &cluster["version"]), (&here, &json!(env!("CARGO_PKG_VERSION"))));

    let topics = get_json(broker.admin, "/api/topics");
    let orders = topics.as_array().unwrap().iter().find(|topic| topic["name"] == "orders").unwrap();
    let id = orders["id"].clone();
    assert_eq!(*orders, json!({ "name": "orders", "id": id, "internal": false, "partitions": 2, "configs": {} }));

    let partitions = get_json(broker.admin, "/api/partitions");
    let of_orders = || partitions.as_array().unwrap().iter().filter(|row| row["topic"] == "orders");
    assert!(of_orders().map(|row| &row["partition"]).eq([&json!(0), &json!(1)]), "{partitions}");
    let ends: i64 = of_orders().map(|row| row["log_end_offset"].as_i64().unwrap()).sum();
    assert_eq!(ends, 1, "{partitions}");

    assert_eq!(get_json(broker.admin, "/api/groups"), json!([]));
    let shards = get_json(broker.admin, "/api/shards");
    assert_eq!((&shards[0]["shard"], &shards[0]["answers"]), (&json!(0), &json!(true)), "{shards}");
    assert_eq!(shards[0]["counters"]["produce_records"], 1, "{shards}");

    let (_, metrics) = get(broker.admin, "/metrics");
    assert!(metrics.contains("topic=\"orders\"") && metrics.ends_with("# EOF\n"), "{metrics}");
    let (_, sums) = get(broker.admin, "/public_metrics");
    assert!(!sums.contains("topic=\"orders\"") && sums.ends_with("# EOF\n"), "{sums}");
}

#[test]
fn a_broker_within_this_program_serves_stops_and_keeps_its_records() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let start = || {
        let set = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let overrides = vec![
            set("log.dirs", &directory.path().display().to_string()),
            set("listeners", "PLAINTEXT://127.0.0.1:0"),
            set("admin.listener", "off"),
            set("engine.shards", "1"),
        ];
        let (settings, _) = config::load(&Sources { overrides, ..Sources::default() }).unwrap();
        Embedded::start(settings).unwrap()
    };
    let broker = start();
    create(broker.address(), "orders", 1);
    send(broker.address(), "orders", "kept");
    assert_eq!(first(broker.address(), "orders"), "kept");
    let gone = broker.address();
    broker.stop().unwrap();
    assert!(TcpStream::connect(gone).is_err(), "nobody listens after the stop");

    let broker = start();
    assert_eq!(first(broker.address(), "orders"), "kept");
    drop(broker);
}
