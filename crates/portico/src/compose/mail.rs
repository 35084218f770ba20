//! Delivery of emails by the configured mail server, or without one not at all.

use std::sync::Arc;

use portico_mail::{Discard, SmtpSettings, SmtpTransport, Transport};
use portico_project::SmtpConfig;

/// Returns a transport to the configured mail server.
///
/// # Errors
/// When its settings are invalid.
pub fn smtp(config: &SmtpConfig) -> anyhow::Result<Arc<dyn Transport>> {
    Ok(Arc::new(SmtpTransport::new(&SmtpSettings {
        user: Some(config.user.clone()).filter(|user| !user.is_empty()),
        password: Some(config.pass.expose().to_owned()),
        ..SmtpSettings::new(&config.host, config.port)
    })?))
}

/// Returns a transport that discards emails, and logs once that it does.
#[must_use]
pub fn none() -> Arc<dyn Transport> {
    tracing::warn!("no mail server is configured: emails are discarded");
    Arc::new(Discard)
}
