//! Access rules, as far as they can be read.
//!
//! Shell. Owns this call, its values and Kafka's words for their numbers. Source: KIP-140, KIP-290 (prefixes).

use serde::Serialize;

use super::Session;
use crate::client::error::ClientError;
use crate::client::network::Target;
use crate::protocol::operator::DescribeAclsRequest;

/// One access rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct AclBinding {
    /// `TOPIC`, `GROUP`, `CLUSTER`, …
    pub resource_type: &'static str,
    /// Which, or the prefix of which.
    pub resource_name: String,
    /// `LITERAL` or `PREFIXED`.
    pub pattern: &'static str,
    /// As in `User:alice`.
    pub principal: String,
    /// From where; `*` is everywhere.
    pub host: String,
    /// `READ`, `WRITE`, …
    pub operation: &'static str,
    /// `ALLOW` or `DENY`.
    pub permission: &'static str,
}

const RESOURCES: &[&str] =
    &["UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];
const PATTERNS: &[&str] = &["UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"];
const OPERATIONS: &[&str] = &[
    "UNKNOWN",
    "ANY",
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
];
const PERMISSIONS: &[&str] = &["UNKNOWN", "ANY", "DENY", "ALLOW"];

/// "Any", in all four lists.
const ANY: i8 = 1;

fn word(words: &'static [&'static str], number: i8) -> &'static str {
    usize::try_from(number).ok().and_then(|at| words.get(at).copied()).unwrap_or("UNKNOWN")
}

pub(super) async fn describe_acls(session: Session) -> Result<Vec<AclBinding>, ClientError> {
    let what = "describing access rules";
    let request = DescribeAclsRequest {
        resource_type_filter: ANY,
        pattern_type_filter: ANY,
        operation: ANY,
        permission_type: ANY,
        ..Default::default()
    };
    session
        .retrying(what, async || {
            let reply = session.ask(Target::Any, &request).await?;
            let answer = reply.read::<DescribeAclsRequest<'_>>()?;
            if answer.error_code.is_error() {
                return Err(session.refused(what, answer.error_code, answer.error_message.as_deref()));
            }
            let bindings = answer.resources.iter().flat_map(|resource| {
                resource.acls.iter().map(|acl| AclBinding {
                    resource_type: word(RESOURCES, resource.resource_type),
                    resource_name: resource.resource_name.to_string(),
                    pattern: word(PATTERNS, resource.pattern_type),
                    principal: acl.principal.to_string(),
                    host: acl.host.to_string(),
                    operation: word(OPERATIONS, acl.operation),
                    permission: word(PERMISSIONS, acl.permission_type),
                })
            });
            let mut bindings: Vec<_> = bindings.collect();
            bindings.sort();
            Ok(bindings)
        })
        .await
}
