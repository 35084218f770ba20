//! The rows of passkeys.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use tokio_postgres::Row;

use crate::model::ids::PasskeyId;
use crate::model::json::{Timestamp, time_entry};

/// Columns of [`Passkey::from_row`], of a table or alias named `passkeys`.
macro_rules! passkey_columns {
    () => {
        "passkeys.id, passkeys.credential_id, passkeys.public_key, passkeys.sign_count, \
        passkeys.backup_eligible, passkeys.friendly_name, passkeys.created_at, passkeys.last_used_at"
    };
}
pub(crate) use passkey_columns;

/// A row of `auth.webauthn_credentials`. It serializes as clients see it in lists.
#[derive(Debug, Clone)]
pub(crate) struct Passkey {
    /// Primary key.
    pub id: PasskeyId,
    /// The id that the authenticator gave the credential.
    pub credential_id: Vec<u8>,
    /// The public key in COSE form.
    pub public_key: Vec<u8>,
    /// The highest counter of signatures that the authenticator reported; 0 where it has none.
    pub sign_count: i64,
    /// The credential may be copied to other devices.
    pub is_backup_eligible: bool,
    /// The name for the owner; may be empty.
    pub friendly_name: String,
    /// The time of the registration.
    pub created_at: OffsetDateTime,
    /// The time of the last sign-in.
    pub last_used_at: Option<OffsetDateTime>,
}

impl Passkey {
    /// Reads a row of [`passkey_columns`].
    pub fn from_row(row: &Row) -> Self {
        Self {
            id: row.get(0),
            credential_id: row.get(1),
            public_key: row.get(2),
            sign_count: row.get(3),
            is_backup_eligible: row.get(4),
            friendly_name: row.get(5),
            created_at: row.get(6),
            last_used_at: row.get(7),
        }
    }
}

impl Serialize for Passkey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        if !self.friendly_name.is_empty() {
            map.serialize_entry("friendly_name", &self.friendly_name)?;
        }
        map.serialize_entry("created_at", &Timestamp(self.created_at))?;
        time_entry::<S>(&mut map, "last_used_at", self.last_used_at)?;
        map.end()
    }
}
