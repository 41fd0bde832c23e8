//! The smallest conversation with a broker: connect, ask which APIs it serves, read the answer.
//!
//! Shell. Owns a bare socket; for connections that are measured as such, where a client's own machinery would be in the way.
//! Always true: the answer's length is checked before memory is taken for it.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::settings::HostPort;
use crate::protocol::admin::ApiVersionsRequest;
use crate::protocol::{Message as _, Reader, Request, encode_request};

/// How long one step may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// An ApiVersions answer has some hundred bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A connection that speaks nothing but ApiVersions 0, which every broker knows.
pub(crate) struct Wire {
    stream: TcpStream,
    correlation: i32,
}

impl Wire {
    /// Connects. Errors: whatever the system says, or 30 seconds have passed.
    pub(crate) async fn connect(to: &HostPort) -> std::io::Result<Self> {
        let connecting = TcpStream::connect((to.host.as_str(), to.port));
        let stream = tokio::time::timeout(PATIENCE, connecting).await.map_err(|_| late("connect"))??;
        stream.set_nodelay(true)?;
        Ok(Self { stream, correlation: 0 })
    }

    /// Asks and waits for the answer.
    pub(crate) async fn ask(&mut self) -> std::io::Result<()> {
        tokio::time::timeout(PATIENCE, self.converse()).await.map_err(|_| late("answer"))?
    }

    async fn converse(&mut self) -> std::io::Result<()> {
        const VERSION: i16 = 0;
        self.correlation = self.correlation.wrapping_add(1);
        let request = ApiVersionsRequest::default();
        let frame = encode_request(BytesMut::new(), VERSION, self.correlation, "ringlog-bench", &request).into_bytes();
        self.stream.write_all(&frame).await?;
        let length = usize::try_from(self.stream.read_i32().await?).ok().filter(|length| *length <= ANSWER_BYTES_MAX);
        let mut answer = vec![0; length.ok_or_else(|| strange("an answer of impossible length"))?];
        self.stream.read_exact(&mut answer).await?;
        let mut reader = Reader::new(&answer);
        let correlation = reader.fixed().map(i32::from_be_bytes).map_err(|_| strange("an answer without a head"))?;
        if correlation != self.correlation {
            return Err(strange("an answer to something else"));
        }
        type Response<'a> = <ApiVersionsRequest<'a> as Request<'a>>::Response;
        Response::decode_body(reader, VERSION)
            .map(drop)
            .map_err(|_| strange("an answer that is none; is it a Kafka broker?"))
    }
}

fn late(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no {what} within {} s", PATIENCE.as_secs()))
}

fn strange(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned())
}

/// The first address of a bootstrap list.
pub(crate) fn first_address(bootstrap: &str) -> Result<HostPort, String> {
    HostPort::parse(bootstrap.split(',').next().unwrap_or_default())
}
