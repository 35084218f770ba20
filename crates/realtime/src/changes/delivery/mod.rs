//! The delivery of committed changes to the channels, in their order.

pub(super) mod cohort_turns;
pub(super) mod deliver;
pub(super) mod outgoing;
mod preparation;
pub(super) mod reader_cohorts;
pub(super) mod rendering;
pub(super) mod shared_topics;
pub(super) mod slice_messages;
