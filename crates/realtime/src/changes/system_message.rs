//! The `system` messages about subscriptions.

/// `extension` of the `system` messages.
pub(super) const EXTENSION: &str = "postgres_changes";
/// The text when a subscription is complete.
pub(super) const SUBSCRIBED: &str = "Subscribed to PostgreSQL";
