//! The rows of an account, and the JSON that clients see.

pub(crate) mod contact;
pub mod ids;
pub(crate) mod metadata;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::model::ids::{EmailAddress, IdentityId, PhoneNumber, UserId};

/// Columns of [`User::from_row`], for `concat!` in statements.
macro_rules! user_columns {
    () => {
        "users.id, users.aud, users.role, users.email, users.encrypted_password, \
        users.email_confirmed_at, users.invited_at, users.confirmation_token, users.confirmation_sent_at, \
        users.recovery_token, users.recovery_sent_at, users.email_change_token_new, users.email_change_token_current, \
        users.email_change, users.email_change_sent_at, users.email_change_confirm_status, users.last_sign_in_at, \
        users.raw_app_meta_data, users.raw_user_meta_data, users.phone, users.phone_confirmed_at, users.phone_change, \
        users.phone_change_token, users.phone_change_sent_at, users.confirmed_at, users.reauthentication_token, \
        users.reauthentication_sent_at, users.banned_until, users.is_sso_user, users.deleted_at, users.is_anonymous, \
        users.created_at, users.updated_at"
    };
}
/// Columns of [`Identity::from_row`], for `concat!` in statements.
macro_rules! identity_columns {
    () => {
        "identities.id, identities.provider_id, identities.user_id, identities.identity_data, \
        identities.provider, identities.last_sign_in_at, identities.created_at, identities.updated_at, \
        identities.email"
    };
}
/// Columns of [`Factor::from_row`], for `concat!` in statements.
macro_rules! factor_columns {
    () => {
        "factors.id, factors.friendly_name, factors.factor_type::text, factors.status::text, \
        factors.phone, factors.created_at, factors.updated_at, factors.last_challenged_at"
    };
}
pub(crate) use {factor_columns, identity_columns, user_columns};

/// A JSON object.
pub type JsonObject = Map<String, Value>;

/// A row of `auth.users`, with its identities and factors when they were loaded.
#[derive(Debug, Clone)]
pub struct User {
    /// Primary key.
    pub id: UserId,
    /// Audience; users are unique per audience.
    pub aud: String,
    /// Database role.
    pub role: String,
    /// Lower-case; empty when there is none.
    pub email: String,
    /// Empty when there is none.
    pub encrypted_password: String,
    /// The time at which the address was confirmed.
    pub email_confirmed_at: Option<OffsetDateTime>,
    /// The time of the invitation.
    pub invited_at: Option<OffsetDateTime>,
    /// Hash; empty when there is none.
    pub confirmation_token: String,
    /// The time at which the confirmation was last sent.
    pub confirmation_sent_at: Option<OffsetDateTime>,
    /// Hash; empty when there is none.
    pub recovery_token: String,
    /// The time at which a recovery or sign-in link was last sent.
    pub recovery_sent_at: Option<OffsetDateTime>,
    /// Hash; empty when there is none.
    pub email_change_token_new: String,
    /// Hash; empty when there is none.
    pub email_change_token_current: String,
    /// The address of a pending change; empty when there is none.
    pub email_change: String,
    /// The time at which the change of address was last sent.
    pub email_change_sent_at: Option<OffsetDateTime>,
    /// 0, or 1 after the first of two confirmations.
    pub email_change_confirm_status: i16,
    /// The time of the last sign-in.
    pub last_sign_in_at: Option<OffsetDateTime>,
    /// The metadata that the service and administrators write.
    pub app_metadata: JsonObject,
    /// The metadata that the user writes.
    pub user_metadata: JsonObject,
    /// Digits; empty when there is none.
    pub phone: String,
    /// The time at which the number was confirmed.
    pub phone_confirmed_at: Option<OffsetDateTime>,
    /// The number of a pending change; empty when there is none.
    pub phone_change: String,
    /// Hash; empty when there is none.
    pub phone_change_token: String,
    /// The time at which the change of number was last sent.
    pub phone_change_sent_at: Option<OffsetDateTime>,
    /// The earlier of the two confirmations.
    pub confirmed_at: Option<OffsetDateTime>,
    /// Hash; empty when there is none.
    pub reauthentication_token: String,
    /// The time at which the nonce was last sent.
    pub reauthentication_sent_at: Option<OffsetDateTime>,
    /// The user is banned while this is in the future.
    pub banned_until: Option<OffsetDateTime>,
    /// Belongs to another linking domain than `default`.
    pub is_sso_user: bool,
    /// The time of a soft deletion.
    pub deleted_at: Option<OffsetDateTime>,
    /// The account has no contact and no identity.
    pub is_anonymous: bool,
    /// The time at which the row was inserted.
    pub created_at: Option<OffsetDateTime>,
    /// The time of the last change.
    pub updated_at: Option<OffsetDateTime>,
    /// The identities, oldest first; empty when they were not loaded.
    pub identities: Vec<Identity>,
    /// The second factors; empty when they were not loaded.
    pub factors: Vec<Factor>,
}

impl User {
    /// Columns of [`User::from_row`], of a table or alias named `users`.
    pub const COLUMNS: &str = user_columns!();

    /// The number of columns in [`User::COLUMNS`]: further ones of a statement start here.
    pub const COLUMN_COUNT: usize = 33;

    /// Reads a row that starts with [`User::COLUMNS`].
    pub fn from_row(row: &Row) -> Self {
        let text = |at: usize| row.get::<_, Option<&str>>(at).unwrap_or_default().to_owned();
        Self {
            id: row.get(0),
            aud: text(1),
            role: text(2),
            email: text(3),
            encrypted_password: text(4),
            email_confirmed_at: row.get(5),
            invited_at: row.get(6),
            confirmation_token: text(7),
            confirmation_sent_at: row.get(8),
            recovery_token: text(9),
            recovery_sent_at: row.get(10),
            email_change_token_new: text(11),
            email_change_token_current: text(12),
            email_change: text(13),
            email_change_sent_at: row.get(14),
            email_change_confirm_status: row.get::<_, Option<i16>>(15).unwrap_or_default(),
            last_sign_in_at: row.get(16),
            app_metadata: object(row, 17),
            user_metadata: object(row, 18),
            phone: text(19),
            phone_confirmed_at: row.get(20),
            phone_change: text(21),
            phone_change_token: text(22),
            phone_change_sent_at: row.get(23),
            confirmed_at: row.get(24),
            reauthentication_token: text(25),
            reauthentication_sent_at: row.get(26),
            banned_until: row.get(27),
            is_sso_user: row.get(28),
            deleted_at: row.get(29),
            is_anonymous: row.get(30),
            created_at: row.get(31),
            updated_at: row.get(32),
            identities: Vec::new(),
            factors: Vec::new(),
        }
    }

    /// Returns a new user of an audience, of whom nothing else is known.
    pub fn without_facts(aud: &str, now: OffsetDateTime) -> Self {
        Self {
            id: UserId::random(),
            aud: aud.to_owned(),
            role: String::new(),
            email: String::new(),
            encrypted_password: String::new(),
            email_confirmed_at: None,
            invited_at: None,
            confirmation_token: String::new(),
            confirmation_sent_at: None,
            recovery_token: String::new(),
            recovery_sent_at: None,
            email_change_token_new: String::new(),
            email_change_token_current: String::new(),
            email_change: String::new(),
            email_change_sent_at: None,
            email_change_confirm_status: 0,
            last_sign_in_at: None,
            app_metadata: JsonObject::new(),
            user_metadata: JsonObject::new(),
            phone: String::new(),
            phone_confirmed_at: None,
            phone_change: String::new(),
            phone_change_token: String::new(),
            phone_change_sent_at: None,
            confirmed_at: None,
            reauthentication_token: String::new(),
            reauthentication_sent_at: None,
            banned_until: None,
            is_sso_user: false,
            deleted_at: None,
            is_anonymous: false,
            created_at: Some(now),
            updated_at: Some(now),
            identities: Vec::new(),
            factors: Vec::new(),
        }
    }

    /// Returns whether the user is banned now.
    pub fn is_banned(&self, now: OffsetDateTime) -> bool {
        self.banned_until.is_some_and(|until| until > now)
    }

    /// Returns whether the email address was confirmed.
    pub fn is_email_confirmed(&self) -> bool {
        self.email_confirmed_at.is_some()
    }

    /// Returns whether the phone number was confirmed.
    pub fn is_phone_confirmed(&self) -> bool {
        self.phone_confirmed_at.is_some()
    }

    /// Returns the address if its owner has proved it, else nothing: only that may be in a token. An
    /// address that needs no confirmation is confirmed when it is stored.
    pub fn proved_email(&self) -> &str {
        if self.is_email_confirmed() { &self.email } else { "" }
    }

    /// As [`User::proved_email`], for the number.
    pub fn proved_phone(&self) -> &str {
        if self.is_phone_confirmed() { &self.phone } else { "" }
    }

    /// Returns whether there is a password to sign in with.
    pub fn has_password(&self) -> bool {
        !self.encrypted_password.is_empty()
    }

    /// Returns the stored address, if there is one.
    pub fn email_address(&self) -> Option<EmailAddress> {
        (!self.email.is_empty()).then(|| EmailAddress::from_stored(&self.email))
    }

    /// Returns the stored number, if there is one.
    pub fn phone_number(&self) -> Option<PhoneNumber> {
        PhoneNumber::parse(&self.phone).ok()
    }

    /// Returns whether a second factor was verified.
    pub fn has_verified_factor(&self) -> bool {
        self.factors.iter().any(Factor::is_verified)
    }
}

fn object(row: &Row, at: usize) -> JsonObject {
    match row.get::<_, Option<Value>>(at) {
        Some(Value::Object(map)) => map,
        _ => JsonObject::new(),
    }
}

/// A moment as clients read it: RFC 3339 in UTC, trailing zeros of the fraction trimmed.
pub struct Timestamp(pub OffsetDateTime);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.to_offset(time::UtcOffset::UTC).format(&Rfc3339).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

impl Serialize for User {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("aud", &self.aud)?;
        map.serialize_entry("role", &self.role)?;
        map.serialize_entry("email", &self.email)?;
        time_entry::<S>(&mut map, "email_confirmed_at", self.email_confirmed_at)?;
        time_entry::<S>(&mut map, "invited_at", self.invited_at)?;
        map.serialize_entry("phone", &self.phone)?;
        time_entry::<S>(&mut map, "phone_confirmed_at", self.phone_confirmed_at)?;
        time_entry::<S>(&mut map, "confirmation_sent_at", self.confirmation_sent_at)?;
        time_entry::<S>(&mut map, "confirmed_at", self.confirmed_at)?;
        time_entry::<S>(&mut map, "recovery_sent_at", self.recovery_sent_at)?;
        if !self.email_change.is_empty() {
            map.serialize_entry("new_email", &self.email_change)?;
        }
        time_entry::<S>(&mut map, "email_change_sent_at", self.email_change_sent_at)?;
        if !self.phone_change.is_empty() {
            map.serialize_entry("new_phone", &self.phone_change)?;
        }
        time_entry::<S>(&mut map, "phone_change_sent_at", self.phone_change_sent_at)?;
        time_entry::<S>(&mut map, "reauthentication_sent_at", self.reauthentication_sent_at)?;
        time_entry::<S>(&mut map, "last_sign_in_at", self.last_sign_in_at)?;
        map.serialize_entry("app_metadata", &self.app_metadata)?;
        map.serialize_entry("user_metadata", &self.user_metadata)?;
        if !self.factors.is_empty() {
            map.serialize_entry("factors", &self.factors)?;
        }
        map.serialize_entry("identities", &self.identities)?;
        // Clients expect them also where an imported row lacks them
        let epoch = OffsetDateTime::UNIX_EPOCH;
        map.serialize_entry("created_at", &Timestamp(self.created_at.unwrap_or(epoch)))?;
        map.serialize_entry("updated_at", &Timestamp(self.updated_at.or(self.created_at).unwrap_or(epoch)))?;
        time_entry::<S>(&mut map, "banned_until", self.banned_until)?;
        time_entry::<S>(&mut map, "deleted_at", self.deleted_at)?;
        map.serialize_entry("is_anonymous", &self.is_anonymous)?;
        map.end()
    }
}

fn time_entry<S: Serializer>(
    map: &mut S::SerializeMap,
    key: &'static str,
    at: Option<OffsetDateTime>,
) -> Result<(), S::Error> {
    match at {
        Some(at) => map.serialize_entry(key, &Timestamp(at)),
        None => Ok(()),
    }
}

/// A row of `auth.identities`: a linked way to sign in.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Primary key; clients see it as `identity_id`.
    pub id: IdentityId,
    /// The provider's subject; for email and phone the user's id. Clients see it as `id`.
    pub provider_id: String,
    /// The user.
    pub user_id: UserId,
    /// Claims.
    pub identity_data: JsonObject,
    /// `email`, `phone`, `google`, ...
    pub provider: String,
    /// The time at which it was made.
    pub last_sign_in_at: Option<OffsetDateTime>,
    /// The time at which it was made.
    pub created_at: Option<OffsetDateTime>,
    /// The time of the last change.
    pub updated_at: Option<OffsetDateTime>,
    /// Lower-case address of the claims; empty when there is none.
    pub email: String,
}

impl Identity {
    /// Columns of [`Identity::from_row`], of a table or alias named `identities`.
    pub const COLUMNS: &str = identity_columns!();

    /// Reads a row of [`Identity::COLUMNS`].
    pub fn from_row(row: &Row) -> Self {
        Self {
            id: row.get(0),
            provider_id: row.get(1),
            user_id: row.get(2),
            identity_data: object(row, 3),
            provider: row.get(4),
            last_sign_in_at: row.get(5),
            created_at: row.get(6),
            updated_at: row.get(7),
            email: row.get::<_, Option<String>>(8).unwrap_or_default(),
        }
    }

    /// Returns whether the provider vouches for the address.
    pub fn is_email_verified(&self) -> bool {
        match self.identity_data.get("email_verified") {
            Some(Value::Bool(verified)) => *verified,
            Some(Value::String(verified)) => verified == "true",
            _ => false,
        }
    }
}

impl Serialize for Identity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("identity_id", &self.id)?;
        map.serialize_entry("id", &self.provider_id)?;
        map.serialize_entry("user_id", &self.user_id)?;
        if !self.identity_data.is_empty() {
            map.serialize_entry("identity_data", &self.identity_data)?;
        }
        map.serialize_entry("provider", &self.provider)?;
        time_entry::<S>(&mut map, "last_sign_in_at", self.last_sign_in_at)?;
        time_entry::<S>(&mut map, "created_at", self.created_at)?;
        time_entry::<S>(&mut map, "updated_at", self.updated_at)?;
        if !self.email.is_empty() {
            map.serialize_entry("email", &self.email)?;
        }
        map.end()
    }
}

/// A row of `auth.mfa_factors`: the columns that clients see.
#[derive(Debug, Clone)]
pub struct Factor {
    /// Primary key.
    pub id: Uuid,
    /// The name that the person gave; may be empty.
    pub friendly_name: String,
    /// `totp`, `phone`, `webauthn`
    pub factor_type: String,
    /// `verified` or `unverified`
    pub status: String,
    /// Number of a phone factor; may be empty.
    pub phone: String,
    /// The time at which it was made.
    pub created_at: OffsetDateTime,
    /// The time of the last change.
    pub updated_at: OffsetDateTime,
    /// The time of the last challenge.
    pub last_challenged_at: Option<OffsetDateTime>,
}

impl Factor {
    /// Columns of [`Factor::from_row`], of a table or alias named `factors`.
    pub const COLUMNS: &str = factor_columns!();

    /// Reads a row of [`Factor::COLUMNS`].
    pub fn from_row(row: &Row) -> Self {
        Self {
            id: row.get(0),
            friendly_name: row.get::<_, Option<String>>(1).unwrap_or_default(),
            factor_type: row.get(2),
            status: row.get(3),
            phone: row.get::<_, Option<String>>(4).unwrap_or_default(),
            created_at: row.get(5),
            updated_at: row.get(6),
            last_challenged_at: row.get(7),
        }
    }

    /// Returns whether the factor was verified.
    pub fn is_verified(&self) -> bool {
        self.status == "verified"
    }
}

impl Serialize for Factor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("created_at", &Timestamp(self.created_at))?;
        map.serialize_entry("updated_at", &Timestamp(self.updated_at))?;
        map.serialize_entry("status", &self.status)?;
        if !self.friendly_name.is_empty() {
            map.serialize_entry("friendly_name", &self.friendly_name)?;
        }
        map.serialize_entry("factor_type", &self.factor_type)?;
        map.serialize_entry("phone", &self.phone)?;
        map.serialize_entry("last_challenged_at", &self.last_challenged_at.map(Timestamp))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn timestamps_are_utc_with_a_trimmed_fraction() {
        for (at, expected) in [
            (datetime!(2024-07-01 10:20:30.123456 UTC), "\"2024-07-01T10:20:30.123456Z\""),
            (datetime!(2024-07-01 10:20:30.100000 UTC), "\"2024-07-01T10:20:30.1Z\""),
            (datetime!(2024-07-01 10:20:30 UTC), "\"2024-07-01T10:20:30Z\""),
            (datetime!(2024-07-01 12:20:30 +2), "\"2024-07-01T10:20:30Z\""),
        ] {
            assert_eq!(serde_json::to_string(&Timestamp(at)).unwrap(), expected);
        }
    }

    #[test]
    fn column_counts_match() {
        assert_eq!(User::COLUMNS.split(',').count(), User::COLUMN_COUNT);
    }
}
