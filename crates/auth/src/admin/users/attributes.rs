//! The attributes of an account that an administrator sets.

use serde::Deserialize;

use crate::Auth;
use crate::admin::ban::Ban;
use crate::error::{AuthError, ContractError};
use crate::model::JsonObject;
use crate::model::ids::{EmailAddress, PhoneNumber};
use crate::model::metadata;

/// The width of the column `role`.
const MAX_ROLE_BYTES: usize = 255;

/// The body of a request that creates or changes an account.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Attributes {
    pub(super) id: String,
    pub(super) aud: String,
    pub(super) role: String,
    pub(super) email: String,
    pub(super) phone: String,
    pub(super) password: Option<String>,
    pub(super) password_hash: String,
    pub(super) email_confirm: bool,
    pub(super) phone_confirm: bool,
    pub(super) user_metadata: Option<JsonObject>,
    pub(super) app_metadata: Option<JsonObject>,
    pub(super) ban_duration: String,
}

impl Attributes {
    /// Returns the email address, if one is given.
    pub(super) fn email(&self) -> Result<Option<EmailAddress>, AuthError> {
        if self.email.is_empty() { Ok(None) } else { EmailAddress::parse(&self.email).map(Some) }
    }

    /// Returns the phone number, if one is given.
    pub(super) fn phone(&self) -> Result<Option<PhoneNumber>, AuthError> {
        if self.phone.is_empty() { Ok(None) } else { PhoneNumber::parse(&self.phone).map(Some) }
    }

    pub(super) fn ban(&self) -> Result<Option<Ban>, AuthError> {
        Ok(Ban::parse(&self.ban_duration)?)
    }

    /// Returns the database role, or `default` if none is given.
    pub(super) fn role<'a>(&'a self, auth: &'a Auth) -> Result<&'a str, AuthError> {
        if self.role.len() > MAX_ROLE_BYTES {
            return Err(ContractError::RoleTooLong.into());
        }
        Ok(if self.role.is_empty() { &auth.settings().jwt.default_role } else { &self.role })
    }

    /// Checks the size of the metadata.
    pub(super) fn check_sizes(&self) -> Result<(), AuthError> {
        [&self.user_metadata, &self.app_metadata].into_iter().flatten().try_for_each(metadata::check_size)
    }
}
