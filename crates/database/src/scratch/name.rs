//! The names of scratch databases.

use portico_base::random;

/// The prefix of the names of scratch databases.
pub(super) const PREFIX: &str = "scratch_";

/// Returns a name for a scratch database that no other has.
pub fn fresh_name() -> String {
    format!("{PREFIX}{}", hex::encode(random::bytes::<8>()))
}
