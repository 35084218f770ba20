//! The state of a session at its start.

use std::sync::Arc;

/// The state of a session at its start, which every reset returns to.
#[derive(Debug, Default)]
pub(crate) struct SessionOrigin {
    /// The value of the setting `role`.
    pub role: String,
    /// The session user.
    pub session_user: String,
    /// The statement that assumes the role again. Empty where the login role is the role.
    pub assume_role: String,
    /// The settings of the role that each transaction starts with, behind a pooler.
    pub settings: Arc<[(String, String)]>,
}

impl SessionOrigin {
    /// Returns the origin of a session of the role that logged in.
    pub fn of_login_role(role: &str) -> Self {
        Self { role: "none".into(), session_user: role.to_owned(), ..Self::default() }
    }
}
