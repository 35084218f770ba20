//! The rows of second factors.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::model::ids::FactorId;
use crate::model::json::Timestamp;

/// Columns of [`Factor::from_row`], for `concat!` in statements.
macro_rules! factor_columns {
    () => {
        "factors.id, factors.friendly_name, factors.factor_type::text, factors.status::text, \
        factors.phone, factors.created_at, factors.updated_at, factors.last_challenged_at, factors.web_authn_aaguid"
    };
}
pub(crate) use factor_columns;

/// A row of `auth.mfa_factors`: the columns that clients see.
#[derive(Debug, Clone)]
pub struct Factor {
    /// Primary key.
    pub id: FactorId,
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
    /// The model of a security key, if it is disclosed.
    pub web_authn_aaguid: Option<Uuid>,
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
            web_authn_aaguid: row.get(8),
        }
    }

    /// Returns true if the factor was verified.
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
        if let Some(aaguid) = self.web_authn_aaguid.filter(|_| self.is_verified()) {
            map.serialize_entry("web_authn_aaguid", &aaguid)?;
        }
        map.end()
    }
}
