//! Kafka's wire, nothing else: which APIs are served in which versions, headers, frames.
//!
//! Pure. Owns the table of APIs (at `apis!`), the headers of requests and responses, and frames. The messages are in
//! `produce`, `fetch`, `admin`, `operator`, `placement` and `groups`; what they are made of in `notation`, `values` and
//! `wire`; record batches, of which the messages know only place and length, in `batch`. Always true: a decoded version is one
//! the table lists. Source: Kafka's protocol guide; KIP-35 (version negotiation), KIP-482 (flexible headers), KIP-511
//! (its fallback).
//!
//! The way of a request: `parse_request_header` gives a header and a reader at the body; the handler calls
//! `SomeRequest::decode_body(reader, version)`, builds the response, and `encode_response` makes the frame.
#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation)]

pub mod admin;
pub mod batch;
pub mod error;
pub mod fetch;
pub mod groups;
pub(crate) mod notation;
pub mod operator;
pub mod placement;
pub mod produce;
pub mod values;
pub mod wire;

use std::ops::RangeInclusive;

use bytes::BytesMut;

pub use error::ErrorCode;
pub use notation::Message;
pub use values::{Blob, Records, Str, Wire};
pub use wire::{Encoded, Reader, Segment, WireError, Writer};

use admin::{ApiVersion, ApiVersionsResponse};

/// A request, and the response it asks for.
pub trait Request<'a>: Message<'a> {
    /// Its row in the table.
    const API: ApiKey;
    /// What answers it.
    type Response: Message<'a>;
}

macro_rules! apis {
    ($($key:literal $name:ident $state:ident $versions:expr, $room:ident: $request:ty => $response:ty;)*) => {
        /// The APIs we know. Their numbers are the wire's.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(i16)]
        #[allow(missing_docs)]
        pub enum ApiKey {
            $($name = $key,)*
        }

        impl ApiKey {
            /// Every row of the table, served or not.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// By number.
            pub fn from_number(key: i16) -> Option<Self> {
                match key {
                    $($key => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Kafka's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// Versions that can be decoded and encoded.
            pub fn versions(self) -> RangeInclusive<i16> {
                match self {
                    $(Self::$name => $versions,)*
                }
            }

            /// Whether handlers exist: only then is it advertised and let in.
            pub fn served(self) -> bool {
                match self {
                    $(Self::$name => apis!(@$state),)*
                }
            }

            /// First version with compact lengths and tagged fields, in bodies as in headers.
            #[expect(clippy::extra_unused_lifetimes, reason = "the types of the table name it")]
            pub fn flexible_from<'a>(self) -> i16 {
                match self {
                    $(Self::$name => {
                        use $room::*;
                        <$request as Message>::FLEXIBLE_FROM
                    })*
                }
            }

            /// Decodes a body of this API and forgets it.
            fn check_body<'a>(self, reader: Reader<'a>, version: i16) -> wire::Result<()> {
                match self {
                    $(Self::$name => {
                        use $room::*;
                        <$request>::decode_body(reader, version).map(drop)
                    })*
                }
            }
        }

        $(const _: () = {
            use $room::*;
            impl<'a> Request<'a> for $request {
                const API: ApiKey = ApiKey::$name;
                type Response = $response;
            }
        };)*
    };
    (@served) => { true };
    (@held) => { false };
}

// `served`: advertised and let in. `held`: the messages are here, the handler is not; write `served` when it is.
// Versions are those of Kafka 4.4, up to what we give meaning to: transactions of the second version begin with Produce
// 12, topic ids on the produce and commit path with Produce 13 and OffsetCommit 10.
apis! {
    0  Produce                 served 3..=11, produce: ProduceRequest<'a> => ProduceResponse<'a>;
    1  Fetch                   served 4..=17, fetch: FetchRequest<'a> => FetchResponse<'a>;
    2  ListOffsets             served 1..=10, admin: ListOffsetsRequest<'a> => ListOffsetsResponse<'a>;
    3  Metadata                served 0..=13, admin: MetadataRequest<'a> => MetadataResponse<'a>;
    8  OffsetCommit            served 2..=9,  groups: OffsetCommitRequest<'a> => OffsetCommitResponse<'a>;
    9  OffsetFetch             served 1..=9,  groups: OffsetFetchRequest<'a> => OffsetFetchResponse<'a>;
    10 FindCoordinator         served 0..=5,  groups: FindCoordinatorRequest<'a> => FindCoordinatorResponse<'a>;
    11 JoinGroup               served 0..=9,  groups: JoinGroupRequest<'a> => JoinGroupResponse<'a>;
    12 Heartbeat               served 0..=4,  groups: HeartbeatRequest<'a> => HeartbeatResponse;
    13 LeaveGroup              served 0..=5,  groups: LeaveGroupRequest<'a> => LeaveGroupResponse<'a>;
    14 SyncGroup               served 0..=5,  groups: SyncGroupRequest<'a> => SyncGroupResponse<'a>;
    15 DescribeGroups          served 0..=6,  groups: DescribeGroupsRequest<'a> => DescribeGroupsResponse<'a>;
    16 ListGroups              served 0..=5,  groups: ListGroupsRequest<'a> => ListGroupsResponse<'a>;
    18 ApiVersions             served 0..=4,  admin: ApiVersionsRequest<'a> => ApiVersionsResponse<'a>;
    19 CreateTopics            served 2..=7,  admin: CreateTopicsRequest<'a> => CreateTopicsResponse<'a>;
    20 DeleteTopics            served 1..=6,  admin: DeleteTopicsRequest<'a> => DeleteTopicsResponse<'a>;
    21 DeleteRecords           served 0..=2,  operator: DeleteRecordsRequest<'a> => DeleteRecordsResponse<'a>;
    22 InitProducerId          served 0..=5,  admin: InitProducerIdRequest<'a> => InitProducerIdResponse;
    23 OffsetForLeaderEpoch    served 2..=4,  operator: OffsetForLeaderEpochRequest<'a> => OffsetForLeaderEpochResponse<'a>;
    29 DescribeAcls            served 1..=3,  operator: DescribeAclsRequest<'a> => DescribeAclsResponse<'a>;
    32 DescribeConfigs         served 1..=4,  admin: DescribeConfigsRequest<'a> => DescribeConfigsResponse<'a>;
    33 AlterConfigs            served 0..=2,  operator: AlterConfigsRequest<'a> => AlterConfigsResponse<'a>;
    35 DescribeLogDirs         served 1..=4,  operator: DescribeLogDirsRequest<'a> => DescribeLogDirsResponse<'a>;
    37 CreatePartitions        served 0..=3,  operator: CreatePartitionsRequest<'a> => CreatePartitionsResponse<'a>;
    42 DeleteGroups            served 0..=2,  groups: DeleteGroupsRequest<'a> => DeleteGroupsResponse<'a>;
    43 ElectLeaders            served 0..=2,  placement: ElectLeadersRequest<'a> => ElectLeadersResponse<'a>;
    44 IncrementalAlterConfigs served 0..=1,  operator: IncrementalAlterConfigsRequest<'a> => IncrementalAlterConfigsResponse<'a>;
    45 AlterPartitionReassignments served 0..=1, placement: AlterPartitionReassignmentsRequest<'a> => AlterPartitionReassignmentsResponse<'a>;
    46 ListPartitionReassignments served 0..=0, placement: ListPartitionReassignmentsRequest<'a> => ListPartitionReassignmentsResponse<'a>;
    47 OffsetDelete            served 0..=0,  groups: OffsetDeleteRequest<'a> => OffsetDeleteResponse<'a>;
    60 DescribeCluster         served 0..=2,  admin: DescribeClusterRequest => DescribeClusterResponse<'a>;
    61 DescribeProducers       served 0..=0,  operator: DescribeProducersRequest<'a> => DescribeProducersResponse<'a>;
    74 ListConfigResources     served 0..=1,  admin: ListConfigResourcesRequest => ListConfigResourcesResponse<'a>;
    75 DescribeTopicPartitions served 0..=0,  operator: DescribeTopicPartitionsRequest<'a> => DescribeTopicPartitionsResponse<'a>;
}

impl ApiKey {
    /// The wire's number.
    pub fn number(self) -> i16 {
        self as i16
    }

    /// What ApiVersions says of it. Produce is said to begin at 0: librdkafka before 2.11 takes a broker without it for
    /// one that cannot compress (KAFKA-18659). Such requests are refused all the same, as Kafka does.
    pub fn advertised(self) -> ApiVersion {
        let versions = self.versions();
        let min_version = if self == Self::Produce { 0 } else { *versions.start() };
        ApiVersion { api_key: self.number(), min_version, max_version: *versions.end() }
    }

    fn flexible(self, version: i16) -> bool {
        version >= self.flexible_from()
    }
}

/// The list of an ApiVersions answer: every served API, in rising order.
pub fn advertised_apis() -> Vec<ApiVersion> {
    ApiKey::ALL.iter().filter(|api| api.served()).map(|api| api.advertised()).collect()
}

/// What stands before a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// Which API; served.
    pub api: ApiKey,
    /// Which version of it; one of [`ApiKey::versions`].
    pub version: i16,
    /// Goes back in the response.
    pub correlation_id: i32,
    /// What the client calls itself; empty if nothing.
    pub client_id: &'a str,
}

/// Why a request is not looked at. All end the connection, as the header itself can no longer be trusted; but see
/// [`HeaderError::ApiVersionsTooNew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The header is damaged.
    #[error("bad request header: {0}")]
    Wire(#[from] WireError),
    /// No such API, or not served.
    #[error("API key {0} is not served")]
    UnknownApi(i16),
    /// Not a version of the table.
    #[error("version {version} of {} is not served", api.name())]
    UnknownVersion {
        /// The API.
        api: ApiKey,
        /// The version asked for.
        version: i16,
    },
    /// ApiVersions in a version we do not know: answered by [`api_versions_downgrade`], and the connection lives on.
    #[error("version {version} of ApiVersions is not served")]
    ApiVersionsTooNew {
        /// The version asked for.
        version: i16,
        /// Goes back in the response.
        correlation_id: i32,
    },
}

/// Reads the header of a frame (without its length prefix); the reader then stands at the body.
pub fn parse_request_header(frame: &[u8]) -> Result<(RequestHeader<'_>, Reader<'_>), HeaderError> {
    let mut reader = Reader::new(frame);
    let key = i16::from_be_bytes(reader.fixed()?);
    let version = i16::from_be_bytes(reader.fixed()?);
    let correlation_id = i32::from_be_bytes(reader.fixed()?);
    let api = ApiKey::from_number(key).filter(|api| api.served()).ok_or(HeaderError::UnknownApi(key))?;
    if !api.versions().contains(&version) {
        return Err(match api {
            ApiKey::ApiVersions => HeaderError::ApiVersionsTooNew { version, correlation_id },
            _ => HeaderError::UnknownVersion { api, version },
        });
    }
    let client_id = reader.client_id()?;
    if api.flexible(version) {
        reader.tagged_fields(|_, _| Ok(false))?;
    }
    Ok((RequestHeader { api, version, correlation_id, client_id }, reader))
}

/// Encodes a whole response frame, length prefix first, onto the empty `buffer`.
pub fn encode_response<'a>(
    buffer: BytesMut,
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    response: &impl Message<'a>,
) -> Encoded {
    debug_assert!(buffer.is_empty(), "a frame begins its buffer");
    let mut writer = Writer::new(buffer);
    writer.put(&[0; 4]);
    writer.put(&correlation_id.to_be_bytes());
    // A client that reads the answer to ApiVersions does not know yet which versions it may expect.
    if api.flexible(version) && api != ApiKey::ApiVersions {
        writer.tagged_fields(wire::Tags::default());
    }
    response.encode_body(&mut writer, version);
    writer.finish_frame()
}

/// The other side of [`encode_response`]: from a frame without its length prefix, the correlation id and a reader at
/// the body.
pub fn parse_response_header(frame: &[u8], api: ApiKey, version: i16) -> wire::Result<(i32, Reader<'_>)> {
    let mut reader = Reader::new(frame);
    let correlation_id = i32::from_be_bytes(reader.fixed()?);
    if api.flexible(version) && api != ApiKey::ApiVersions {
        reader.tagged_fields(|_, _| Ok(false))?;
    }
    Ok((correlation_id, reader))
}

/// Encodes a whole request frame, length prefix first, onto the empty `buffer`.
pub fn encode_request<'a, R: Request<'a>>(
    buffer: BytesMut,
    version: i16,
    correlation_id: i32,
    client_id: &str,
    request: &R,
) -> Encoded {
    debug_assert!(buffer.is_empty(), "a frame begins its buffer");
    let mut writer = Writer::new(buffer);
    writer.put(&[0; 4]);
    writer.put(&R::API.number().to_be_bytes());
    writer.put(&version.to_be_bytes());
    writer.put(&correlation_id.to_be_bytes());
    writer.client_id(client_id);
    if R::API.flexible(version) {
        writer.tagged_fields(wire::Tags::default());
    }
    request.encode_body(&mut writer, version);
    writer.finish_frame()
}

/// The frame that answers [`HeaderError::ApiVersionsTooNew`]: version 0, code 35, and only the versions of ApiVersions
/// itself, so that the client can ask again (KIP-511).
pub fn api_versions_downgrade(buffer: BytesMut, correlation_id: i32) -> Encoded {
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION,
        api_keys: vec![ApiKey::ApiVersions.advertised()],
        ..Default::default()
    };
    encode_response(buffer, ApiKey::ApiVersions, 0, correlation_id, &response)
}

/// Why [`decode_any_request`] refused a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// In its header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// In its body.
    #[error("bad body of {} {version}: {source}", api.name())]
    Body {
        /// The API.
        api: ApiKey,
        /// Its version.
        version: i16,
        /// What is wrong.
        source: WireError,
    },
}

/// Decodes header and body of any served request and gives back the header: what the fuzzers call.
pub fn decode_any_request(frame: &[u8]) -> Result<RequestHeader<'_>, RequestError> {
    let (header, reader) = parse_request_header(frame)?;
    let RequestHeader { api, version, .. } = header;
    api.check_body(reader, version).map_err(|source| RequestError::Body { api, version, source })?;
    Ok(header)
}
