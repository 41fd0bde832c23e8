//! Which batch.size and linger.ms for this load: measured, not guessed.
//!
//! Shell, over pure parts.
