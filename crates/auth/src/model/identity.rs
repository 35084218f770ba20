//! The rows of identities.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;
use time::OffsetDateTime;
use tokio_postgres::Row;

use crate::model::ids::{IdentityId, UserId};
use crate::model::json::{JsonObject, object, time_entry};

/// Columns of [`Identity::from_row`], for `concat!` in statements.
macro_rules! identity_columns {
    () => {
        "identities.id, identities.provider_id, identities.user_id, identities.identity_data, \
        identities.provider, identities.last_sign_in_at, identities.created_at, identities.updated_at, \
        identities.email"
    };
}
pub(crate) use identity_columns;

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

    /// Returns true if the provider vouches for the address.
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
