//! Which batch.size and linger.ms for this load: measured, not guessed.
//!
//! Shell, over pure parts. Owns the way from a load and a goal to settings that can be pasted. Does not own measuring: a
//! [`trial::Trial`] does, which is `bench` in earnest and a simulated broker in tests. Always: a trial once measured is in the
//! journal before the next begins; nothing is recommended that was not measured beside Kafka's defaults in the same minutes.
//!
//! ```text
//! load    what the user states, like a topic shows    space    knobs, levels, profiles, Latin hypercube
//! slo     what must hold     goal   what is wanted    search   which trial next (surrogate, drift, pareto)
//! trial   one measurement     journal   all of them   run      the loop · measuring   trials by bench · grid   every cell
//! model   what explains cost and latency              advice   sentences · properties  to paste · report · html
//! ```

pub mod advice;
pub mod drift;
pub mod effects;
pub mod goal;
pub mod grid;
pub mod html;
pub mod journal;
pub mod least_squares;
pub mod like;
pub mod load;
pub mod measuring;
pub mod model;
pub mod pareto;
pub mod properties;
pub mod report;
pub mod run;
pub mod search;
pub mod slo;
pub mod space;
pub mod surrogate;
pub mod trial;
