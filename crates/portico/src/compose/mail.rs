//! Who delivers mail: the configured mail server, the development mailbox, or nobody.

use std::sync::Arc;

use portico_mail::{Discard, SmtpSettings, SmtpTransport, Transport};
use portico_project::SmtpConfig;

/// Delivery by the configured mail server.
///
/// # Errors
/// When its settings can not work.
pub fn smtp(config: &SmtpConfig) -> anyhow::Result<Arc<dyn Transport>> {
    Ok(Arc::new(SmtpTransport::new(&SmtpSettings {
        user: Some(config.user.clone()).filter(|user| !user.is_empty()),
        password: Some(config.pass.expose().to_owned()),
        ..SmtpSettings::new(&config.host, config.port)
    })?))
}

/// Delivery to nobody, said once.
#[must_use]
pub fn none() -> Arc<dyn Transport> {
    tracing::warn!("No mail server is configured: nobody gets a mail");
    Arc::new(Discard)
}
