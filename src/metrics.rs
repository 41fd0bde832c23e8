//! Counters (stub). Per shard, single writer, relaxed atomics; merged on scrape.
