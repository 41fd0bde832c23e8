//! Who coordinates a group: asked once, kept until it is found untrue.
//!
//! Shell. Owns the exchange and its retries. Source: KIP-699 (several keys in one request, from version 4 on).

use std::time::Duration;

use tokio::time::Instant;

use super::{Network, Target};
use crate::client::error::{ClientError, coordinator_is_stale};
use crate::protocol::ErrorCode;
use crate::protocol::groups::FindCoordinatorRequest;
use crate::types::BrokerId;

/// The type of key that names a group.
const GROUP: i8 = 0;

impl Network {
    /// Who coordinates the group; asks until somebody does. Errors: the last reason why nobody did, when it is final or time is up.
    pub(crate) async fn coordinator(&self, group: &str, deadline: Duration) -> Result<BrokerId, ClientError> {
        if let Some(known) = self.0.coordinators.borrow().get(group) {
            return Ok(*known);
        }
        let (end, mut failures) = (Instant::now() + deadline, 0);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let error = match self.find(group, left.min(self.settings().request_timeout)).await {
                Ok(found) => {
                    self.0.coordinators.borrow_mut().insert(group.to_owned(), found);
                    return Ok(found);
                }
                Err(error) => error,
            };
            failures += 1;
            let wait = self.retry_backoff(failures);
            if !error.retriable() {
                return Err(error);
            }
            if Instant::now() + wait >= end {
                let what = format!("finding the coordinator of group {group}").into();
                return Err(ClientError::TimedOut { what, after: deadline, last: Some(Box::new(error)) });
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// It is not that one: the next call asks again.
    pub(crate) fn forget_coordinator(&self, group: &str) {
        self.0.coordinators.borrow_mut().remove(group);
    }

    /// Forgets the coordinator if the code says that it is none. True if so.
    pub(crate) fn coordinator_failed(&self, group: &str, code: ErrorCode) -> bool {
        let stale = coordinator_is_stale(code);
        if stale {
            self.forget_coordinator(group);
        }
        stale
    }

    async fn find(&self, group: &str, deadline: Duration) -> Result<BrokerId, ClientError> {
        let request =
            FindCoordinatorRequest { key: group.into(), key_type: GROUP, coordinator_keys: vec![group.into()] };
        let reply = self.call(Target::Any, &request, deadline).await?;
        let answer = reply.read::<FindCoordinatorRequest<'_>>()?;
        let found = answer.coordinators.iter().find(|one| *one.key == *group);
        let (code, message, id, host, port) = match found {
            Some(one) => (one.error_code, one.error_message.as_deref(), one.node_id, &one.host, one.port),
            None => (answer.error_code, answer.error_message.as_deref(), answer.node_id, &answer.host, answer.port),
        };
        let refused =
            |code, message| ClientError::broker(format_args!("the coordinator of group {group}"), code, message);
        if code.is_error() {
            return Err(refused(code, message));
        }
        let learnt = self.0.cluster.borrow_mut().learn_broker(id, host, port);
        self.0.cluster_changed();
        learnt.ok_or_else(|| refused(ErrorCode::COORDINATOR_NOT_AVAILABLE, None))
    }
}
