//! Identity providers: their descriptions, the operator's settings for them, and the profiles they
//! return.

pub mod catalogue;
pub(crate) mod custom;
pub mod description;
pub(crate) mod identification;
pub(crate) mod lookup;
pub mod profile;
pub(crate) mod readers;
pub(crate) mod resolved;
