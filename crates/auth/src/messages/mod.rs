//! Messages to people: mail and text messages.

pub(crate) mod mailer;
pub(crate) mod one_time_mail;
pub(crate) mod sms;
pub(crate) mod template_source;
