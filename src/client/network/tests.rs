//! Connections and metadata against brokers that behave well and ill.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::{Network, Target};
use crate::client::error::{CallError, ClientError};
use crate::client::fake_broker::{Asked, FakeBroker, Peer, metadata, on_a_thread, settings};
use crate::client::settings::HostPort;
use crate::protocol::admin::*;
use crate::protocol::fetch::*;
use crate::protocol::groups::*;
use crate::protocol::produce::*;
use crate::protocol::{ApiKey, ErrorCode, Records, Segment, encode_response};
use crate::types::{BrokerId, PartitionIndex};

const SOON: Duration = Duration::from_secs(10);
const ONE: BrokerId = BrokerId::new(1).unwrap();

fn heartbeat(group: &str) -> HeartbeatRequest<'_> {
    HeartbeatRequest { group_id: group.into(), ..Default::default() }
}

fn beats(code: i16) -> HeartbeatResponse {
    HeartbeatResponse { error_code: ErrorCode(code), ..Default::default() }
}

/// A network that knows the broker as broker 1.
async fn acquainted(broker: &FakeBroker) -> Network {
    let network = Network::new(broker.settings());
    network.metadata_for(&[], SOON).await.unwrap();
    network
}

async fn beat(network: &Network) -> Result<ErrorCode, CallError> {
    let reply = network.call(Target::Broker(ONE), &heartbeat("g"), SOON).await?;
    Ok(reply.read::<HeartbeatRequest<'_>>().unwrap().error_code)
}

fn connect_error(error: &ClientError) -> String {
    match error {
        ClientError::TimedOut { last: Some(last), .. } => last.to_string(),
        other => other.to_string(),
    }
}

#[test]
fn requests_handed_over_before_the_connection_are_written_in_their_order() {
    on_a_thread(async {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let broker = {
            let seen = Rc::clone(&seen);
            FakeBroker::alone(move |mut asked: Asked, mut peer: Peer| {
                let seen = Rc::clone(&seen);
                async move {
                    loop {
                        let group = asked.read::<HeartbeatRequest<'_>>().group_id.to_string();
                        let code = group.parse().unwrap();
                        seen.borrow_mut().push(group);
                        peer.answer(&asked, &beats(code)).await;
                        match peer.next().await {
                            Some(next) => asked = next,
                            None => return,
                        }
                    }
                }
            })
            .await
        };
        let network = acquainted(&broker).await;
        network.disconnect(ONE, "the test wants a new connection");
        assert!(!network.is_connected(ONE));
        let names: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        let pending: Vec<_> = names.iter().map(|name| network.send(ONE, &heartbeat(name), Vec::new(), SOON)).collect();
        for (number, pending) in pending.into_iter().enumerate() {
            let reply = pending.await.unwrap();
            assert_eq!(usize::try_from(reply.read::<HeartbeatRequest<'_>>().unwrap().error_code.0), Ok(number));
        }
        assert_eq!(*seen.borrow(), names);
        assert!(network.is_connected(ONE));
    });
}

#[test]
fn answers_are_put_together_from_single_bytes() {
    on_a_thread(async {
        let broker = FakeBroker::alone(|asked: Asked, mut peer: Peer| async move {
            let bytes = encode_response(BytesMut::new(), asked.api, asked.version, asked.correlation, &beats(27));
            for byte in bytes.into_bytes() {
                peer.put(&[byte]).await;
                tokio::task::yield_now().await;
            }
            peer.next().await;
        })
        .await;
        assert_eq!(beat(&acquainted(&broker).await).await, Ok(ErrorCode::REBALANCE_IN_PROGRESS));
    });
}

#[test]
fn records_go_out_and_come_in_where_the_messages_announce_them() {
    on_a_thread(async {
        let (sender, came) = oneshot::channel();
        let sender = Rc::new(Cell::new(Some(sender)));
        let broker = FakeBroker::alone(move |asked: Asked, mut peer: Peer| {
            let sender = Rc::clone(&sender);
            async move {
                let request = asked.read::<ProduceRequest<'_>>();
                let at = |partition: &ProducePartition| partition.records.unwrap().range();
                let partitions = &request.topic_data[0].partition_data;
                let got: Vec<_> = partitions.iter().map(|one| asked.frame.slice(at(one))).collect();
                _ = sender.take().unwrap().send(got);
                peer.answer(&asked, &ProduceResponse::default()).await;
                let asked = peer.next().await.unwrap();
                let partition = FetchPartitionResponse { records: Some(Records::of_length(5)), ..Default::default() };
                let topic = FetchTopicResponse { partitions: [partition].into_iter().collect(), ..Default::default() };
                let fetched = FetchResponse { responses: [topic].into_iter().collect(), ..Default::default() };
                let answer = encode_response(BytesMut::new(), asked.api, asked.version, asked.correlation, &fetched);
                for segment in answer.into_segments() {
                    match segment {
                        Segment::Bytes(bytes) => peer.put(&bytes).await,
                        Segment::Records { .. } => peer.put(b"tenth").await,
                    }
                }
                peer.next().await;
            }
        })
        .await;
        let network = acquainted(&broker).await;
        let records = vec![Bytes::from_static(b"first"), Bytes::new(), Bytes::from(vec![7; 300_000])];
        let partition = |(index, bytes): (usize, &Bytes)| ProducePartition {
            index: i32::try_from(index).unwrap(),
            records: Some(Records::of_length(bytes.len())),
        };
        let topic =
            ProduceTopic { name: "t".into(), partition_data: records.iter().enumerate().map(partition).collect() };
        let request = ProduceRequest { acks: 1, topic_data: [topic].into_iter().collect(), ..Default::default() };
        network.send(ONE, &request, records.clone(), SOON).await.unwrap();
        assert_eq!(came.await.unwrap(), records);
        let reply = network.call(Target::Broker(ONE), &FetchRequest::default(), SOON).await.unwrap();
        let fetched = reply.read::<FetchRequest<'_>>().unwrap();
        assert_eq!(reply.records(fetched.responses[0].partitions[0].records.unwrap()), &b"tenth"[..]);
    });
}

#[test]
fn a_request_without_an_answer_is_done_when_its_bytes_are_away() {
    on_a_thread(async {
        let broker = FakeBroker::alone(|_: Asked, mut peer: Peer| async move {
            while let Some(asked) = peer.next().await {
                if asked.api == ApiKey::Heartbeat {
                    peer.answer(&asked, &beats(0)).await;
                }
            }
        })
        .await;
        let network = acquainted(&broker).await;
        let request = ProduceRequest::default();
        let first = network.send_unanswered(ONE, &request, Vec::new(), SOON).await.unwrap();
        assert!(first.len() == 0);
        let second = network.send_unanswered(ONE, &request, Vec::new(), SOON);
        assert_eq!(beat(&network).await, Ok(ErrorCode::NONE));
        second.await.unwrap();
    });
}

#[test]
fn a_request_without_an_answer_that_is_not_written_in_time_ends_its_connection() {
    on_a_thread(async {
        let broker = FakeBroker::alone(|asked: Asked, mut peer: Peer| async move {
            peer.answer(&asked, &beats(0)).await;
            // From here on it reads nothing, and holds the connection.
            std::future::pending::<()>().await;
            drop(peer);
        })
        .await;
        let network = acquainted(&broker).await;
        assert_eq!(beat(&network).await, Ok(ErrorCode::NONE));
        // More than the kernel takes for a peer that does not read.
        let records = Bytes::from(vec![0; 64 << 20]);
        let partition = ProducePartition { index: 0, records: Some(Records::of_length(records.len())) };
        let topic = ProduceTopic { name: "t".into(), partition_data: [partition].into_iter().collect() };
        let request = ProduceRequest { topic_data: [topic].into_iter().collect(), ..Default::default() };
        let written = network.send_unanswered(ONE, &request, vec![records], Duration::from_millis(30));
        let error = tokio::time::timeout(SOON, written).await.unwrap().unwrap_err();
        assert!(
            matches!(error, CallError::TimedOut { api: "Produce", after, .. } if after.as_millis() == 30),
            "{error}"
        );
    });
}

#[test]
fn an_answer_to_another_request_ends_the_connection_and_the_next_call_gets_a_new_one() {
    on_a_thread(async {
        let times = Rc::new(Cell::new(0));
        let broker = FakeBroker::alone(move |asked: Asked, mut peer: Peer| {
            let time = times.replace(times.get() + 1);
            async move {
                let correlation = asked.correlation + i32::from(time == 0);
                peer.answer_as(&asked, correlation, &beats(0)).await;
                peer.next().await;
            }
        })
        .await;
        let network = acquainted(&broker).await;
        let (first, second) = {
            let (one, two) = (heartbeat("a"), heartbeat("b"));
            let first = network.send(ONE, &one, Vec::new(), SOON);
            (first, network.send(ONE, &two, Vec::new(), SOON))
        };
        let error = first.await.unwrap_err();
        assert!(matches!(&error, CallError::Malformed { api: "Heartbeat", .. }), "{error}");
        let error = second.await.unwrap_err();
        assert!(matches!(&error, CallError::Disconnected { api: "Heartbeat", .. }), "{error}");
        assert!(error.to_string().contains("correlation id differs"), "{error}");
        assert_eq!(beat(&network).await, Ok(ErrorCode::NONE));
    });
}

#[test]
fn a_broker_that_goes_away_fails_all_in_flight_by_name() {
    on_a_thread(async {
        let broker = FakeBroker::alone(|_, mut peer: Peer| async move {
            peer.next().await;
        })
        .await;
        let network = acquainted(&broker).await;
        let pending: Vec<_> = (0..3).map(|_| network.send(ONE, &heartbeat("g"), Vec::new(), SOON)).collect();
        for pending in pending {
            let error = pending.await.unwrap_err();
            // Reset or closed: the bytes it did not read decide.
            assert!(matches!(&error, CallError::Disconnected { .. }) && error.retriable() && error.maybe_done());
            assert!(error.to_string().contains(&broker.address.to_string()), "{error}");
        }
    });
}

#[test]
fn what_is_not_answered_in_time_ends_its_connection() {
    on_a_thread(async {
        let broker = FakeBroker::alone(|_, mut peer: Peer| async move { while peer.next().await.is_some() {} }).await;
        let network = acquainted(&broker).await;
        let patient = network.send(ONE, &heartbeat("g"), Vec::new(), SOON);
        let short = network.send(ONE, &heartbeat("g"), Vec::new(), Duration::from_millis(30));
        let error = short.await.unwrap_err();
        assert!(matches!(error, CallError::TimedOut { api: "Heartbeat", after, .. } if after.as_millis() == 30));
        let error = patient.await.unwrap_err();
        assert!(
            matches!(&error, CallError::Disconnected { why, .. } if why.contains("not answered within 30ms")),
            "{error}"
        );
    });
}

#[test]
fn garbage_and_absurd_lengths_end_the_connection() {
    on_a_thread(async {
        for (bytes, told) in [
            (&b"\xff\xff\xff\xff"[..], "-1 bytes"),
            (b"\x7f\xff\xff\xff", "more than receive.message.max.bytes"),
            (b"\0\0\0\0", "0 bytes"),
            (b"\0\0\0\x04\0\0\0\x02", "answers"),
        ] {
            let broker = FakeBroker::alone(move |_, mut peer: Peer| async move {
                peer.put(bytes).await;
                peer.next().await;
                peer.next().await;
            })
            .await;
            let network = acquainted(&broker).await;
            let reply = network.call(Target::Broker(ONE), &heartbeat("g"), SOON).await;
            let error = match reply {
                Err(error) => error.to_string(),
                Ok(reply) => format!("answers with {}", reply.read::<HeartbeatRequest<'_>>().unwrap_err()),
            };
            assert!(error.contains(told), "{error}");
        }
    });
}

/// The error of a client whose only server treats its first connection so.
async fn met_by<Fut: Future<Output = ()> + 'static>(
    serve: impl Fn(usize, Peer) -> Fut + 'static,
) -> (ClientError, HostPort) {
    let broker = FakeBroker::start(serve).await;
    let mut settings = broker.settings();
    settings.connection_setup_timeout_max = Duration::from_millis(50);
    let error = Network::new(settings).metadata_for(&[], Duration::from_millis(200)).await.unwrap_err();
    (error, broker.address.clone())
}

#[test]
fn a_server_of_another_protocol_is_named() {
    on_a_thread(async {
        let (error, address) = met_by(|_, mut peer: Peer| async move {
            peer.put(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            peer.next().await;
        })
        .await;
        assert_eq!(
            error.to_string(),
            format!(
                "the bootstrap server at {address} sent what is no answer to ApiVersions: it speaks HTTP, not Kafka's \
                 protocol: is the port right?"
            )
        );
    });
}

#[test]
fn a_server_that_closes_at_once_or_says_nothing_is_explained() {
    on_a_thread(async {
        let (error, _) = met_by(|_, mut peer: Peer| async move {
            peer.next().await;
        })
        .await;
        let told = connect_error(&error);
        assert!(told.contains("closed the connection instead of saying which versions it speaks"), "{told}");
        assert!(told.contains("is it a Kafka broker"), "{told}");
        let (error, _) = met_by(|_, peer: Peer| async move {
            std::future::pending::<()>().await;
            drop(peer);
        })
        .await;
        let told = connect_error(&error);
        assert!(told.contains("said nothing for 50ms"), "{told}");
    });
}

#[test]
fn a_refused_connection_says_so() {
    on_a_thread(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = HostPort { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        drop(listener);
        let network = Network::new(settings(&[&address]));
        let error = network.call(Target::Any, &heartbeat("g"), SOON).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "could not connect to {address} (connection refused): is a broker running there? Look at bootstrap.servers"
            )
        );
        let name = HostPort { host: "no-such-host.invalid".into(), port: 1 };
        let network = Network::new(settings(&[&name, &address]));
        let error = network.call(Target::Any, &heartbeat("g"), SOON).await.unwrap_err().to_string();
        assert!(error.contains("the name does not resolve") && error.contains("connection refused"), "{error}");
    });
}

#[test]
fn the_second_bootstrap_server_serves_when_the_first_does_not() {
    on_a_thread(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dead = HostPort { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        drop(listener);
        let broker = FakeBroker::alone(|_, _| async {}).await;
        for _ in 0..8 {
            let network = Network::new(settings(&[&dead, &broker.address]));
            network.metadata_for(&[], SOON).await.unwrap();
            assert_eq!(network.cluster().cluster_id(), Some("fake"));
        }
    });
}

#[test]
fn a_broker_that_knows_older_versions_only_is_spoken_to_in_those() {
    on_a_thread(async {
        let broker = FakeBroker::start(|_, mut peer: Peer| async move {
            let asked = peer.next().await.unwrap();
            assert_eq!(asked.version, 4);
            let known = vec![
                ApiVersion { api_key: 18, min_version: 0, max_version: 2 },
                ApiVersion { api_key: 12, min_version: 0, max_version: 1 },
            ];
            let refusal = ApiVersionsResponse {
                error_code: ErrorCode::UNSUPPORTED_VERSION,
                api_keys: known.clone(),
                ..Default::default()
            };
            let bytes = encode_response(BytesMut::new(), ApiKey::ApiVersions, 0, asked.correlation, &refusal);
            peer.put(&bytes.into_bytes()).await;
            let asked = peer.next().await.unwrap();
            assert_eq!(asked.version, 2);
            peer.answer(&asked, &ApiVersionsResponse { api_keys: known, ..Default::default() }).await;
            let asked = peer.next().await.unwrap();
            assert_eq!((asked.api, asked.version), (ApiKey::Heartbeat, 1));
            peer.answer(&asked, &beats(0)).await;
            peer.next().await;
        })
        .await;
        let network = Network::new(broker.settings());
        let reply = network.call(Target::Any, &heartbeat("g"), SOON).await.unwrap();
        assert_eq!(reply.version, 1);
        let error = network.call(Target::Any, &ListGroupsRequest::default(), SOON).await.unwrap_err();
        assert!(matches!(&error, CallError::UnsupportedVersion { api: "ListGroups", theirs: None, .. }), "{error}");
        assert!(!error.retriable());
    });
}

#[test]
fn an_idle_connection_is_closed_and_made_again_when_needed() {
    on_a_thread(async {
        let connections = Rc::new(Cell::new(0));
        let (closed, mut closings) = tokio::sync::mpsc::unbounded_channel();
        let broker = {
            let connections = Rc::clone(&connections);
            FakeBroker::start(move |_, mut peer: Peer| {
                connections.set(connections.get() + 1);
                let closed = closed.clone();
                async move {
                    peer.greet().await;
                    while let Some(asked) = peer.next().await {
                        peer.answer(&asked, &beats(0)).await;
                    }
                    _ = closed.send(());
                }
            })
            .await
        };
        let mut settings = broker.settings();
        settings.connections_max_idle = Some(Duration::from_millis(20));
        let network = Network::new(settings);
        for time in 1..=2 {
            network.call(Target::Any, &heartbeat("g"), SOON).await.unwrap();
            closings.recv().await.unwrap();
            assert_eq!(connections.get(), time);
        }
    });
}

#[test]
fn the_bootstrap_connection_becomes_that_of_its_broker() {
    on_a_thread(async {
        let connections = Rc::new(Cell::new(0));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let broker = {
            let connections = Rc::clone(&connections);
            FakeBroker::on(listener, move |_, mut peer: Peer| {
                connections.set(connections.get() + 1);
                async move {
                    peer.greet().await;
                    while let Some(asked) = peer.next().await {
                        match asked.api {
                            ApiKey::Metadata => peer.answer(&asked, &metadata(&[(1, port)])).await,
                            _ => peer.answer(&asked, &beats(0)).await,
                        }
                    }
                }
            })
        };
        let network = acquainted(&broker).await;
        beat(&network).await.unwrap();
        network.call(Target::Controller, &heartbeat("g"), SOON).await.unwrap();
        assert_eq!(connections.get(), 1);
        network.call(Target::Coordinator(ONE), &heartbeat("g"), SOON).await.unwrap();
        assert_eq!(connections.get(), 2, "a coordinator has a connection of its own");
    });
}

#[test]
fn an_advertised_address_nobody_listens_on_is_explained() {
    on_a_thread(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dead = listener.local_addr().unwrap().port();
        drop(listener);
        let broker = FakeBroker::start(move |_, mut peer: Peer| async move {
            peer.greet().await;
            while let Some(asked) = peer.next().await {
                peer.answer(&asked, &metadata(&[(1, dead)])).await;
            }
        })
        .await;
        let error = beat(&acquainted(&broker).await).await.unwrap_err().to_string();
        assert!(error.contains(&format!("could not connect to 127.0.0.1:{dead}")), "{error}");
        assert!(error.contains("advertised.listeners"), "{error}");
    });
}

#[test]
fn when_no_known_broker_is_left_the_bootstrap_servers_are_asked_again() {
    on_a_thread(async {
        let old = FakeBroker::alone(|_, _| async {}).await;
        let new = FakeBroker::alone(|asked: Asked, mut peer: Peer| async move {
            peer.answer(&asked, &beats(0)).await;
            peer.next().await;
        })
        .await;
        // The bootstrap server sends everybody to the old broker at first, to the new one later.
        let (old_port, new_port) = (old.address.port, new.address.port);
        let sends_to = Rc::new(Cell::new(old_port));
        let seed = {
            let sends_to = Rc::clone(&sends_to);
            FakeBroker::start(move |_, mut peer: Peer| {
                let sends_to = Rc::clone(&sends_to);
                async move {
                    peer.greet().await;
                    if let Some(asked) = peer.next().await {
                        peer.answer(&asked, &metadata(&[(1, sends_to.get())])).await;
                    }
                }
            })
            .await
        };
        let network = acquainted(&seed).await;
        assert!(beat(&network).await.is_err(), "the old broker hangs up");
        old.stop();
        sends_to.set(new_port);
        let mut changes = network.on_metadata_change();
        while network.cluster().broker(ONE).is_some_and(|broker| broker.port != new_port) {
            tokio::time::timeout(SOON, changes.changed()).await.unwrap().unwrap();
        }
        assert_eq!(beat(&network).await, Ok(ErrorCode::NONE));
    });
}

fn topic(name: &str, error: ErrorCode) -> MetadataTopic<'static> {
    let partition = MetadataPartition { leader_id: 1, leader_epoch: 3, ..Default::default() };
    MetadataTopic {
        name: Some(name.to_owned().into()),
        error_code: error,
        partitions: if error.is_error() { Vec::new() } else { vec![partition] },
        ..Default::default()
    }
}

/// A broker asked for metadata only. `code` is given a topic's name and the number of the request, from 1 on.
async fn informant(code: impl Fn(&str, usize) -> ErrorCode + 'static) -> (FakeBroker, Rc<Cell<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (code, times) = (Rc::new(code), Rc::new(Cell::new(0)));
    let counted = Rc::clone(&times);
    let broker = FakeBroker::on(listener, move |_, mut peer: Peer| {
        let (code, times) = (Rc::clone(&code), Rc::clone(&times));
        async move {
            peer.greet().await;
            while let Some(asked) = peer.next().await {
                let request = asked.read::<MetadataRequest<'_>>();
                assert!(!request.allow_auto_topic_creation);
                times.set(times.get() + 1);
                let names = request.topics.iter().flatten().map(|topic| topic.name.as_deref().unwrap());
                let mut answer = metadata(&[(1, port)]);
                answer.topics.extend(names.map(|name| topic(name, code(name, times.get()))));
                peer.answer(&asked, &answer).await;
            }
        }
    });
    (broker, counted)
}

#[test]
fn a_topic_is_waited_for_until_it_is_there() {
    on_a_thread(async {
        let (broker, _) = informant(|name, times| match (name, times) {
            ("late", ..=2) => ErrorCode::LEADER_NOT_AVAILABLE,
            ("late", _) => ErrorCode::NONE,
            _ => ErrorCode::INVALID_TOPIC_EXCEPTION,
        })
        .await;
        let network = Network::new(broker.settings());
        network.topic_ready("late", SOON).await.unwrap();
        assert_eq!(network.cluster().leader("late", PartitionIndex::ZERO).map(|(leader, _)| leader), Some(ONE));
        let error = network.topic_ready("bad name", SOON).await.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::INVALID_TOPIC_EXCEPTION));
        // What is fresh is not asked for again; what was found untrue is.
        let version = network.cluster().version();
        network.metadata_for(&["late"], SOON).await.unwrap();
        assert_eq!(network.cluster().version(), version);
        network.invalidate("late");
        network.metadata_for(&["late"], SOON).await.unwrap();
        assert!(network.cluster().version() > version && network.cluster().is_fresh("late"));
    });
}

#[test]
fn a_topic_that_is_missing_is_asked_for_though_nobody_waits_until_it_is_created() {
    on_a_thread(async {
        let (broker, _) = informant(|_, times| match times {
            ..=4 => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            _ => ErrorCode::NONE,
        })
        .await;
        let network = Network::new(broker.settings());
        let mut changes = network.on_metadata_change();
        network.metadata_for(&["late"], SOON).await.unwrap();
        assert_eq!(network.cluster().partition_count("late"), None);
        while network.cluster().partition_count("late").is_none() {
            tokio::time::timeout(SOON, changes.changed()).await.unwrap().unwrap();
        }
    });
}

#[test]
fn a_topic_that_is_not_among_all_is_known_to_be_missing() {
    on_a_thread(async {
        let (broker, times) = informant(|_, _| ErrorCode::NONE).await;
        let network = Network::new(broker.settings());
        network.metadata_for_all(SOON).await.unwrap();
        let before = times.get();
        network.metadata_for(&["gone"], SOON).await.unwrap();
        let code = network.cluster().topic("gone").and_then(|topic| topic.error);
        assert_eq!((code, times.get()), (Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), before + 1));
        network.forget_others();
        network.metadata_for(&["gone"], SOON).await.unwrap();
        assert_eq!(network.cluster().partition_count("gone"), Some(1), "now it is asked for by its name");
    });
}

#[test]
fn a_coordinator_is_asked_for_until_there_is_one_and_then_remembered() {
    on_a_thread(async {
        let times = Rc::new(Cell::new(0));
        let broker = {
            let times = Rc::clone(&times);
            FakeBroker::alone(move |mut asked: Asked, mut peer: Peer| {
                let times = Rc::clone(&times);
                async move {
                    loop {
                        times.set(times.get() + 1);
                        let request = asked.read::<FindCoordinatorRequest<'_>>();
                        let error_code = match times.get() {
                            1 => ErrorCode::COORDINATOR_NOT_AVAILABLE,
                            _ => ErrorCode::NONE,
                        };
                        let one = Coordinator {
                            key: request.coordinator_keys[0].clone(),
                            node_id: 7,
                            host: "127.0.0.1".into(),
                            port: 1,
                            error_code,
                            ..Default::default()
                        };
                        let answer = FindCoordinatorResponse { coordinators: vec![one], ..Default::default() };
                        peer.answer(&asked, &answer).await;
                        match peer.next().await {
                            Some(next) => asked = next,
                            None => return,
                        }
                    }
                }
            })
            .await
        };
        let network = acquainted(&broker).await;
        for _ in 0..2 {
            assert_eq!(network.coordinator("g", SOON).await.unwrap().value(), 7);
        }
        assert_eq!(times.get(), 2);
        assert!(network.coordinator_failed("g", ErrorCode::NOT_COORDINATOR));
        assert!(!network.coordinator_failed("g", ErrorCode::ILLEGAL_GENERATION));
        network.coordinator("g", SOON).await.unwrap();
        assert_eq!(times.get(), 3);
    });
}

#[test]
fn connections_close_when_the_network_is_dropped() {
    on_a_thread(async {
        let (sender, closed) = oneshot::channel();
        let sender = Rc::new(Cell::new(Some(sender)));
        let broker = FakeBroker::alone(move |_, mut peer: Peer| {
            let sender = Rc::clone(&sender);
            async move {
                while peer.next().await.is_some() {}
                _ = peer.stream.shutdown().await;
                _ = sender.take().unwrap().send(());
            }
        })
        .await;
        let network = acquainted(&broker).await;
        let pending = network.send(ONE, &heartbeat("g"), Vec::new(), SOON);
        tokio::task::yield_now().await;
        drop(network);
        let error = pending.await.unwrap_err();
        assert!(error.to_string().contains("this client was closed"), "{error}");
        closed.await.unwrap();
    });
}
