//! A producer over a socket, from a broker that changes its mind about a topic.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

use futures_lite::future::poll_once;
use tokio::net::TcpListener;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::*;
use crate::client::accumulator::TopicView;
use crate::client::fake_broker::{FakeBroker, metadata, on_a_thread};
use crate::client::settings::Settings as _;
use crate::protocol::admin::{MetadataPartition, MetadataResponse, MetadataTopic};
use crate::protocol::{ApiKey, ErrorCode};
use crate::types::PartitionIndex;

/// How long it may take to hear of the change.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker that says `first` of topic `t` to the first question and `then` to all others: a code, and how many partitions
/// there are.
async fn fickle(first: (ErrorCode, i32), then: (ErrorCode, i32)) -> FakeBroker {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked_before = Rc::new(Cell::new(false));
    FakeBroker::on(listener, move |_, mut peer| {
        let asked_before = Rc::clone(&asked_before);
        async move {
            peer.greet().await;
            while let Some(asked) = peer.next().await {
                if asked.api != ApiKey::Metadata {
                    continue;
                }
                let (error_code, count) = if asked_before.replace(true) { then } else { first };
                let partition =
                    |partition_index| MetadataPartition { partition_index, leader_id: 1, ..Default::default() };
                let topic = MetadataTopic {
                    name: Some("t".into()),
                    error_code,
                    partitions: (0..count).map(partition).collect(),
                    ..Default::default()
                };
                let answer = MetadataResponse { topics: vec![topic], ..metadata(&[(1, port)]) };
                peer.answer(&asked, &answer).await;
            }
        }
    })
}

fn settings(broker: &FakeBroker) -> ProducerSettings {
    let words = ProducerSettings::builder().set("bootstrap.servers", &broker.address).set("client.id", "tester");
    words.set("retry.backoff.ms", 1).build().unwrap()
}

/// Sends to the last of two partitions until a record is taken. Nobody waits for it to be delivered.
async fn until_taken(producer: &Producer) {
    let record = || ProducerRecord::to("t").partition(PartitionIndex::new(1).unwrap());
    let taken = async {
        while producer.send(record()).await.is_err() {
            yield_now().await;
        }
    };
    timeout(PATIENCE, taken).await.unwrap();
    producer.close(Duration::ZERO).await;
}

#[test]
fn a_topic_that_was_forbidden_is_sent_to_once_it_is_allowed() {
    on_a_thread(async {
        let broker = fickle((ErrorCode::TOPIC_AUTHORIZATION_FAILED, 0), (ErrorCode::NONE, 2)).await;
        let producer = Producer::new(settings(&broker)).unwrap();
        let refused = producer.send(ProducerRecord::to("t")).await.unwrap_err();
        assert!(matches!(refused, SendError::Topic { code: ErrorCode::TOPIC_AUTHORIZATION_FAILED, .. }), "{refused}");
        until_taken(&producer).await;
    });
}

#[test]
fn a_partition_that_was_added_is_sent_to() {
    on_a_thread(async {
        let broker = fickle((ErrorCode::NONE, 1), (ErrorCode::NONE, 2)).await;
        let producer = Producer::new(settings(&broker)).unwrap();
        assert_eq!(producer.partition_count("t").await, Ok(1));
        until_taken(&producer).await;
    });
}

#[test]
fn who_waits_for_news_of_a_topic_is_told_when_the_producer_is_closed() {
    on_a_thread(async {
        let broker = FakeBroker::start(|_, mut peer| async move {
            peer.greet().await;
            while peer.next().await.is_some() {}
        })
        .await;
        let mut settings = settings(&broker);
        settings.max_block = Duration::MAX;
        let producer = Producer::new(settings).unwrap();
        let mut send = pin!(producer.send(ProducerRecord::to("t")));
        assert!(poll_once(&mut send).await.is_none());
        producer.close(Duration::ZERO).await;
        assert_eq!(timeout(PATIENCE, send).await.unwrap().unwrap_err(), SendError::Closed);
    });
}

#[test]
fn a_program_may_wait_for_ever() {
    on_a_thread(async {
        let broker = fickle((ErrorCode::NONE, 2), (ErrorCode::NONE, 2)).await;
        let mut settings = settings(&broker);
        (settings.linger, settings.max_block, settings.delivery_timeout) =
            (Duration::MAX, Duration::MAX, Duration::MAX);
        until_taken(&Producer::new(settings).unwrap()).await;
    });
}

#[test]
fn nobody_waits_for_a_producer_whose_driver_ended_by_a_panic() {
    on_a_thread(async {
        let broker = fickle((ErrorCode::NONE, 2), (ErrorCode::NONE, 2)).await;
        let producer = Producer::new(settings(&broker)).unwrap();
        // A topic without a leader whose name the driver never learned: it panics when it wants to ask about it.
        producer.0.shared.lock().queues.set_topic("t", TopicView::Known { id: None, leaders: &[None] });
        let delivery = producer.send(ProducerRecord::to("t")).await.unwrap();
        let ends = async {
            assert_eq!(delivery.await, Err(ProduceError::Closed { maybe_written: false }));
            producer.flush().await;
            assert_eq!(producer.send(ProducerRecord::to("t")).await.unwrap_err(), SendError::Closed);
            producer.close(Duration::MAX).await;
        };
        timeout(PATIENCE, ends).await.unwrap();
    });
}
