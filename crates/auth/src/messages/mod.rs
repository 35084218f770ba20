//! Emails and text messages.

pub(crate) mod mailer;
pub(crate) mod recipients;
pub(crate) mod template_source;
pub(crate) mod text_transport;
