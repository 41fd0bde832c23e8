//! Groups and offsets (CONTRACT STUB; the owner shapes the rest).
