//! The protection of accounts: rate limits, limits on guesses, captchas, the redirect allow list,
//! uniform timing, column encryption, the check of mail domains, and the audit log.

pub(crate) mod attempts;
pub mod audit;
pub(crate) mod captcha;
pub(crate) mod column_encryption;
pub(crate) mod limits;
pub(crate) mod mail_domain;
pub mod redirect_allow_list;
pub(crate) mod uniform_timing;
