//! E-mail delivery and templates
