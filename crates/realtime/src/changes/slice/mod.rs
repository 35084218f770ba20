//! The changes that are worked on at once, their keys, and the content of their events.

pub(super) mod committed_change;
pub(super) mod event;
pub(super) mod slice_keys;
pub(super) mod slices;
