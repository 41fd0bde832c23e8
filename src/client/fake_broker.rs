//! A broker for tests, as well or as ill behaved as the test wants it, on a free port of this host.
//!
//! Shell. Owns the listener, the reading and writing of frames, and batches as a broker stores them; what is answered is the test's. Lives on the test's own
//! thread: nothing waits by sleeping.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::future::Future;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

use super::settings::{AdminSettings, ClientSettings, HostPort, Settings as _};
use crate::protocol::admin::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse, MetadataBroker, MetadataResponse};
use crate::protocol::batch::{Builder, BuilderOptions, Codec, ProducerStamp, stamp};
use crate::protocol::wire::Segment;
use crate::protocol::{ApiKey, Message, Request, advertised_apis, encode_response, parse_request_header};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

/// Runs a test on a thread as an `Io` has it.
pub(crate) fn on_a_thread<Fut: Future<Output = ()>>(test: Fut) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

/// Listens; gone when dropped with the test's thread.
pub(crate) struct FakeBroker {
    pub(crate) address: HostPort,
    accepting: tokio::task::JoinHandle<()>,
}

impl FakeBroker {
    /// Calls `serve` with each connection and its number, from 0.
    pub(crate) async fn start<Fut: Future<Output = ()> + 'static>(
        serve: impl Fn(usize, Peer) -> Fut + 'static,
    ) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), serve)
    }

    /// On a listener that is there already.
    pub(crate) fn on<Fut: Future<Output = ()> + 'static>(
        listener: TcpListener,
        serve: impl Fn(usize, Peer) -> Fut + 'static,
    ) -> Self {
        let address = HostPort { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
        let serve = Rc::new(serve);
        let accepting = spawn_local(async move {
            for number in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let serve = Rc::clone(&serve);
                spawn_local(async move { serve(number, Peer { stream }).await });
            }
        });
        Self { address, accepting }
    }

    /// Answers ApiVersions, Metadata about itself alone as broker 1, and all else by `answer`.
    pub(crate) async fn alone<Fut: Future<Output = ()> + 'static>(
        answer: impl Fn(Asked, Peer) -> Fut + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = Rc::new(answer);
        Self::on(listener, move |_, mut peer| {
            let answer = Rc::clone(&answer);
            async move {
                peer.greet().await;
                while let Some(asked) = peer.next().await {
                    if asked.api != ApiKey::Metadata {
                        return answer(asked, peer).await;
                    }
                    peer.answer(&asked, &metadata(&[(1, port)])).await;
                }
            }
        })
    }

    /// Stops listening; open connections live on.
    pub(crate) fn stop(&self) {
        self.accepting.abort();
    }

    /// Settings of a client that begins here, with short waits.
    pub(crate) fn settings(&self) -> ClientSettings {
        settings(&[&self.address])
    }
}

/// Settings of a client that begins at those addresses, with short waits.
pub(crate) fn settings(servers: &[&HostPort]) -> ClientSettings {
    let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
    let settings = AdminSettings::builder()
        .set("bootstrap.servers", servers.join(","))
        .set("client.id", "tester")
        .set("retry.backoff.ms", 1)
        .set("retry.backoff.max.ms", 5)
        .set("reconnect.backoff.ms", 1)
        .set("reconnect.backoff.max.ms", 5)
        .build();
    settings.unwrap().client
}

/// Brokers by id and port, all on this host, the first of them the controller.
pub(crate) fn metadata(brokers: &[(i32, u16)]) -> MetadataResponse<'static> {
    let broker = |(id, port): &(i32, u16)| MetadataBroker {
        node_id: *id,
        host: "127.0.0.1".into(),
        port: i32::from(*port),
        rack: None,
    };
    MetadataResponse {
        brokers: brokers.iter().map(broker).collect(),
        cluster_id: Some("fake".into()),
        controller_id: brokers.first().map_or(-1, |(id, _)| *id),
        ..Default::default()
    }
}

/// The time of records in [`batch_of`].
pub(crate) const WALL: TimestampMs = 1_700_000_000_000;

/// What a batch is beside its records.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kind {
    /// Its transactional producer.
    pub(crate) producer: Option<i64>,
    /// A marker: whether it commits.
    pub(crate) control: Option<bool>,
}

/// A batch as a broker has stored it.
pub(crate) fn batch_of(base: i64, values: &[&str], codec: Codec, kind: Kind) -> Vec<u8> {
    let producer = kind.producer.map(|id| ProducerStamp {
        id: ProducerId::new(id).unwrap(),
        epoch: ProducerEpoch::ZERO,
        base_sequence: kind.control.is_none().then_some(Sequence::ZERO),
    });
    let transactional = producer.is_some();
    let mut builder =
        Builder::new(BuilderOptions { codec, level: None, producer, transactional, control: kind.control.is_some() });
    for value in values {
        match kind.control {
            Some(commit) => builder.push(WALL, Some(&[0, 0, 0, u8::from(commit)]), Some(&[0; 6]), &[]),
            None => builder.push(WALL, None, Some(value.as_bytes()), &[("h", Some(b"x"))]),
        }
    }
    let mut bytes = builder.finish().to_vec();
    stamp(&mut bytes, Offset::new(base).unwrap(), LeaderEpoch::new(3).unwrap());
    bytes
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation: i32,
    /// Without its length.
    pub(crate) frame: Bytes,
}

impl Asked {
    pub(crate) fn read<'a, R: Request<'a>>(&'a self) -> R {
        let (_, reader) = parse_request_header(&self.frame).unwrap();
        R::decode_body(reader, self.version).unwrap()
    }
}

/// The broker's end of a connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
}

impl Peer {
    /// The next request; `None` when the client has closed.
    pub(crate) async fn next(&mut self) -> Option<Asked> {
        let length = self.stream.read_i32().await.ok()?;
        let mut frame = BytesMut::zeroed(usize::try_from(length).unwrap());
        self.stream.read_exact(&mut frame).await.ok()?;
        let frame = frame.freeze();
        let (header, _) = parse_request_header(&frame).unwrap();
        let (api, version, correlation) = (header.api, header.version, header.correlation_id);
        assert_eq!(header.client_id, "tester");
        Some(Asked { api, version, correlation, frame })
    }

    pub(crate) async fn answer<'a>(&mut self, asked: &Asked, message: &impl Message<'a>) {
        self.answer_as(asked, asked.correlation, message).await;
    }

    /// With another correlation id.
    pub(crate) async fn answer_as<'a>(&mut self, asked: &Asked, correlation: i32, message: &impl Message<'a>) {
        let bytes = encode_response(BytesMut::new(), asked.api, asked.version, correlation, message).into_bytes();
        // The client may be gone: that is for the test to find.
        _ = self.stream.write_all(&bytes).await;
    }

    /// With records in the places where the message announces them.
    pub(crate) async fn answer_with<'a>(&mut self, asked: &Asked, message: &impl Message<'a>, records: &[Bytes]) {
        let encoded = encode_response(BytesMut::new(), asked.api, asked.version, asked.correlation, message);
        for segment in encoded.into_segments() {
            match segment {
                Segment::Bytes(bytes) => self.put(&bytes).await,
                Segment::Records { index, .. } => self.put(&records[index]).await,
            }
        }
    }

    /// Says that everything this crate knows is served.
    pub(crate) async fn greet(&mut self) {
        self.greet_with(advertised_apis()).await;
    }

    pub(crate) async fn greet_with(&mut self, api_keys: Vec<ApiVersion>) {
        let asked = self.next().await.unwrap();
        assert_eq!(asked.api, ApiKey::ApiVersions);
        assert_eq!(&*asked.read::<ApiVersionsRequest<'_>>().client_software_name, "ringlog-rust");
        self.answer(&asked, &ApiVersionsResponse { api_keys, ..Default::default() }).await;
    }

    /// Bytes as they are.
    pub(crate) async fn put(&mut self, bytes: &[u8]) {
        _ = self.stream.write_all(bytes).await;
    }
}
