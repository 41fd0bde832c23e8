//! InitProducerId (22): ids for idempotent producers.
//!
//! Shell. Owns this shard's leased block of ids. Always: an id is given once in the life of a cluster: blocks come from the
//! metadata log, and what is left of one when the broker stops is never used. Source: KIP-98, KIP-360, KIP-730.

use std::cell::RefCell;
use std::ops::Range;

use crate::controller::{CommandError, Controller};
use crate::protocol::ErrorCode;
use crate::protocol::admin::{InitProducerIdRequest, InitProducerIdResponse};
use crate::server::connection::Context;
use crate::server::errors;

/// Ids this shard may give.
pub(super) struct ProducerIds {
    controller: Controller,
    block: RefCell<Range<i64>>,
}

impl ProducerIds {
    pub(super) fn new(controller: Controller) -> Self {
        Self { controller, block: RefCell::new(0..0) }
    }

    /// An id nobody was ever given.
    async fn next(&self) -> Result<i64, CommandError> {
        loop {
            let next = self.block.borrow_mut().next();
            if let Some(id) = next {
                return Ok(id);
            }
            // Whoever comes meanwhile leases a block too; the last one stays, and ids are not scarce.
            let leased = self.controller.allocate_producer_ids().await?;
            *self.block.borrow_mut() = leased;
        }
    }
}

/// Answers InitProducerId. Without a transactional id a producer always begins anew, whatever id it held (KIP-360).
pub(super) async fn init_producer_id(cx: &Context<'_>, request: InitProducerIdRequest<'_>) -> InitProducerIdResponse {
    let refused = |error_code| InitProducerIdResponse { error_code, producer_epoch: -1, ..Default::default() };
    if (request.producer_id == -1) != (request.producer_epoch == -1) {
        return refused(ErrorCode::INVALID_REQUEST);
    }
    match request.transactional_id.as_deref() {
        None => {}
        Some("") => return refused(ErrorCode::INVALID_REQUEST),
        // Transactions are not served yet; FindCoordinator says the same.
        Some(_) => return refused(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    }
    match cx.server.producer_ids.next().await {
        Ok(producer_id) => InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() },
        Err(error) => {
            tracing::warn!(%error, "no producer ids were leased");
            refused(errors::lease(&error))
        }
    }
}
