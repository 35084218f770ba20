//! The rows of users.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use tokio_postgres::Row;

use crate::model::factor::Factor;
use crate::model::identity::Identity;
use crate::model::ids::{EmailAddress, PhoneNumber, UserId};
use crate::model::json::{JsonObject, Timestamp, object, time_entry};

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
pub(crate) use user_columns;

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

    /// Returns true if the user is banned now.
    pub fn is_banned(&self, now: OffsetDateTime) -> bool {
        self.banned_until.is_some_and(|until| until > now)
    }

    /// Returns true if the email address was confirmed.
    pub fn is_email_confirmed(&self) -> bool {
        self.email_confirmed_at.is_some()
    }

    /// Returns true if the phone number was confirmed.
    pub fn is_phone_confirmed(&self) -> bool {
        self.phone_confirmed_at.is_some()
    }

    /// Returns the address if its owner has proved it, else nothing: only that may be in a token.
    /// An address that needs no confirmation is confirmed when it is stored.
    pub fn proved_email(&self) -> &str {
        if self.is_email_confirmed() { &self.email } else { "" }
    }

    /// Like [`User::proved_email`], but for the number.
    pub fn proved_phone(&self) -> &str {
        if self.is_phone_confirmed() { &self.phone } else { "" }
    }

    /// Returns true if there is a password to sign in with.
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

    /// Returns true if a second factor was verified.
    pub fn has_verified_factor(&self) -> bool {
        self.factors.iter().any(Factor::is_verified)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_count_matches_the_columns() {
        assert_eq!(User::COLUMNS.split(',').count(), User::COLUMN_COUNT);
    }
}
