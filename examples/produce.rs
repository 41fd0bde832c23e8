//! Sends records to any Kafka broker, three ways: awaiting each, with callbacks, and by keys and values of the program's types.
//!
//! `cargo run --example produce -- 127.0.0.1:9092 greetings`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ringlog::client::{Plain, Producer, ProducerRecord, ProducerSettings, SendError, Settings as _};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let brokers = arguments.next().unwrap_or_else(|| "127.0.0.1:9092".to_owned());
    let topic = arguments.next().unwrap_or_else(|| "greetings".to_owned());

    let settings = ProducerSettings::builder()
        .set("bootstrap.servers", &brokers)
        .set("client.id", "example")
        .set("linger.ms", 5)
        .set("compression.type", "lz4")
        .build()?;
    // It has a thread of its own; this one only hands records over.
    let producer = Producer::new(settings)?;

    // One record, and where it went.
    let record = ProducerRecord::to(&*topic).key("en").value("hello").header("sender", "example");
    let metadata = producer.send_sync(record)?;
    println!("hello is at {metadata}");

    // Many, without waiting for each. A full buffer is the brokers' way to say "slower".
    let delivered = Arc::new(AtomicU64::new(0));
    for number in 0..10_000_u32 {
        let value = format!("greeting number {number}");
        let record = ProducerRecord::to(&*topic).value(value);
        loop {
            let delivered = Arc::clone(&delivered);
            let told = move |outcome: Result<_, _>| match outcome {
                Ok(_) => _ = delivered.fetch_add(1, Relaxed),
                Err(error) => eprintln!("a greeting was lost: {error}"),
            };
            match producer.try_send(&record, told) {
                Err(SendError::WouldBlock) => producer.flush_sync(),
                other => break other?,
            }
        }
    }
    producer.flush_sync();
    println!("{} greetings were delivered", delivered.load(Relaxed));

    // Keys and values of the program's types; both serializers are Kafka's own.
    let counts = producer.typed::<str, i64>(Plain, Plain);
    println!("a count is at {}", counts.send_sync(&*topic, Some("greetings"), &10_001)?);

    producer.close_sync(Duration::from_secs(10));
    let metrics = producer.metrics();
    println!("{} records in {} batches and {} requests", metrics.records_acked, metrics.batches, metrics.requests);
    Ok(())
}
