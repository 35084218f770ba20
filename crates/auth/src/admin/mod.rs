//! The administration of accounts, for callers with an administrator's role.

pub(crate) mod administrator;
