//! From an address to a connection that knows which versions its broker speaks.
//!
//! Shell. Owns resolving, connecting to each address in turn, and the ApiVersions exchange with its fallback. Always: a
//! connection that comes out of it speaks Kafka; what does not is named for what it is. Source: KIP-35, KIP-511, KIP-302
//! (all addresses of a name).

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;

use super::frames::judge;
use super::{Driver, Versions, malformed};
use crate::client::error::CallError;
use crate::client::settings::{ClientSettings, HostPort};
use crate::protocol::admin::{ApiVersionsRequest, ApiVersionsResponse};
use crate::protocol::{ApiKey, ErrorCode, Message as _, encode_request, parse_response_header};

/// The largest honest ApiVersions answer is a few kilobytes.
const VERSIONS_BYTES_MAX: u32 = 1 << 20;

/// Whom to connect to, and how.
pub(crate) struct Dial<'s> {
    pub(crate) settings: &'s ClientSettings,
    /// `broker 1`, `bootstrap server`.
    pub(crate) who: &'s str,
    pub(crate) address: &'s HostPort,
    /// For each address of the name.
    pub(crate) timeout: Duration,
}

pub(super) struct Dialled {
    pub(super) stream: TcpStream,
    pub(super) broker: Rc<str>,
    pub(super) versions: Versions,
}

/// Connects to the first address of the name that lets us in, and asks what it speaks. Errors: why the last of them did not.
pub(crate) async fn dial(dial: &Dial<'_>) -> Result<Driver, CallError> {
    let to = dial.address.to_string();
    let resolved = match lookup_host((dial.address.host.as_str(), dial.address.port)).await {
        Ok(resolved) => resolved.collect::<Vec<_>>(),
        Err(error) => {
            let why = format!("the name does not resolve: {error}");
            return Err(CallError::Connect {
                to: to.into(),
                why: why.into(),
                advice: ": is it spelt right, and does this host know it?".into(),
            });
        }
    };
    let mut failed = CallError::connect(&to, &io::Error::other("the name has no address"));
    for address in resolved {
        let stream = match timeout(dial.timeout, connect(address, dial.settings)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                failed = CallError::connect(&to, &error);
                continue;
            }
            Err(_) => {
                failed = CallError::connect(&to, &io::ErrorKind::TimedOut.into());
                continue;
            }
        };
        match shake_hands(stream, dial, &to).await {
            Ok(dialled) => return Ok(Driver::new(dialled, dial)),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn connect(address: SocketAddr, settings: &ClientSettings) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(bytes) = settings.send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = settings.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    let stream = socket.connect(address).await?;
    // Where nobody listens on one of this host's own ephemeral ports, TCP may connect the socket to itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn shake_hands(mut stream: TcpStream, dial: &Dial<'_>, to: &str) -> Result<Dialled, CallError> {
    let broker: Rc<str> = format!("{} at {to}", dial.who).into();
    let patience = dial.settings.request_timeout.min(dial.settings.connection_setup_timeout_max);
    let asked = timeout(patience, ask_versions(&mut stream, dial.settings, &broker)).await;
    let unfit = |why: &str, advice: &str| CallError::Connect { to: to.into(), why: why.into(), advice: advice.into() };
    match asked {
        Ok(Ok(versions)) => Ok(Dialled { stream, broker, versions }),
        Ok(Err(Refusal::Call(error))) => Err(error),
        Ok(Err(Refusal::Io(error))) => {
            let closed = matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            );
            Err(match closed {
                true => unfit(
                    "it closed the connection instead of saying which versions it speaks",
                    ": is it a Kafka broker, and is this its plain-text listener?",
                ),
                false => CallError::connect(to, &error),
            })
        }
        Err(_) => Err(unfit(
            &format!("it let us in and then said nothing for {patience:?}"),
            ": is it a Kafka broker, and is this its plain-text listener?",
        )),
    }
}

enum Refusal {
    Io(io::Error),
    Call(CallError),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Asks in our highest version; a broker that does not know it answers in version 0, with the versions it knows.
async fn ask_versions(stream: &mut TcpStream, settings: &ClientSettings, broker: &str) -> Result<Versions, Refusal> {
    let api = ApiKey::ApiVersions;
    let refuse = |why: String| Refusal::Call(malformed(broker, api, why));
    let mut version = *api.versions().end();
    for correlation in 0..2 {
        let request = ApiVersionsRequest {
            client_software_name: "ringlog-rust".into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
        };
        let frame = encode_request(BytesMut::new(), version, correlation, &settings.client_id, &request);
        stream.write_all(&frame.into_bytes()).await?;
        let mut prefix = [0; 4];
        stream.read_exact(&mut prefix).await?;
        let length = judge(prefix, VERSIONS_BYTES_MAX).map_err(|error| refuse(error.to_string()))?;
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).await?;

        let too_new = answer.get(4..6) == Some(&ErrorCode::UNSUPPORTED_VERSION.0.to_be_bytes());
        let read_as = if too_new { 0 } else { version };
        let (came, reader) = parse_response_header(&answer, api, read_as).map_err(|error| refuse(error.to_string()))?;
        if came != correlation {
            return Err(refuse("it answers another request than it was asked".to_owned()));
        }
        let told = ApiVersionsResponse::decode_body(reader, read_as).map_err(|error| refuse(error.to_string()))?;
        let versions = Versions::new(told.api_keys.iter().map(|one| (one.api_key, one.min_version, one.max_version)));
        if too_new && version > 0 {
            // Brokers before KIP-511 answer without a list: version 0 they all know.
            version = versions.pick(api).filter(|known| *known < version).unwrap_or(0);
        } else if told.error_code.is_error() {
            return Err(refuse(format!("it refused to say which versions it speaks: {}", told.error_code)));
        } else {
            return Ok(versions);
        }
    }
    Err(refuse("it knows no version of ApiVersions that this client knows".to_owned()))
}
