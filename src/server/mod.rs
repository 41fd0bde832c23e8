//! Kafka's face: what a shard runs, the connections it serves, and who may connect.
//!
//! Shell. Owns the connections of this shard and, on the shard that listens, the count of all; not partitions (`shard`),
//! not sockets (`rt::net`). Always: every accepted socket is counted until its connection ends; after a drain no connection
//! is left.

use crate::rt::net::{Net, NetConfig};
use crate::shard::{Shard, ShardBoot};

/// Runs one shard to its end: returns after [`crate::shard::calls::ShardCall::Stop`] was answered.
pub async fn run_shard(boot: ShardBoot) {
    let net = match Net::start(NetConfig::default()) {
        Ok(net) => net,
        Err(error) => {
            tracing::error!(shard = boot.index, %error, "the net loop did not start");
            return;
        }
    };
    let (_shard, _seed) = Shard::new(boot, net);
}
