//! A decoded change of a row.

use std::fmt;
use std::sync::Arc;

use super::tuple::Tuple;

/// A change of one row.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The table. The same allocation for all changes since the table was last described.
    pub relation: Arc<PublishedRelation>,
    pub kind: ChangeKind,
}

/// The kind of a change, with the rows it has.
#[derive(Debug, Clone)]
pub(crate) enum ChangeKind {
    /// A new row.
    Insert { new: Tuple },
    /// A changed row. The old one is sent only when the replica identity is the full row, or when
    /// a column of the identity has changed.
    Update { old: Option<OldTuple>, new: Tuple },
    /// A deleted row.
    Delete { old: OldTuple },
}

/// The old values of a row.
#[derive(Debug, Clone)]
pub(crate) enum OldTuple {
    /// The columns of the replica identity. All others are null here, which says nothing about
    /// them.
    Key(Tuple),
    /// The whole row.
    Full(Tuple),
}

impl OldTuple {
    /// Returns the values.
    pub fn tuple(&self) -> &Tuple {
        match self {
            Self::Key(tuple) | Self::Full(tuple) => tuple,
        }
    }
}

/// A table as the stream describes it before its first change, and after each change of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublishedRelation {
    pub oid: u32,
    pub schema: Box<str>,
    pub name: Box<str>,
    pub identity: ReplicaIdentity,
    /// The published columns, in the order of their values.
    pub columns: Box<[RelationColumn]>,
}

/// A published column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RelationColumn {
    pub name: Box<str>,
    pub type_oid: u32,
    /// The column belongs to the replica identity.
    pub is_identity: bool,
}

/// The columns that identify the old row in an update or a deletion (`replica identity`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplicaIdentity {
    /// The primary key.
    Default,
    /// No column.
    Nothing,
    /// The whole row.
    Full,
    /// The columns of a unique index.
    Index,
}

impl ReplicaIdentity {
    /// Returns the identity of a letter of `pg_class.relreplident`.
    pub fn of_letter(letter: u8) -> Option<Self> {
        Some(match letter {
            b'd' => Self::Default,
            b'n' => Self::Nothing,
            b'f' => Self::Full,
            b'i' => Self::Index,
            _ => return None,
        })
    }
}

/// The id of a top-level transaction, without its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TransactionId(pub u32);

/// The time of a commit, in microseconds since 2000-01-01 UTC. Displayed in ISO form with
/// milliseconds, truncated: `2026-08-21T15:58:21.620Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CommitTime(pub i64);

impl CommitTime {
    /// Seconds from 1970 to 2000.
    const EPOCH: i64 = 946_684_800;

    /// Returns the time in milliseconds since 1970, truncated.
    pub fn unix_millis(self) -> i64 {
        self.0.div_euclid(1000) + Self::EPOCH * 1000
    }
}

impl fmt::Display for CommitTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.unix_millis();
        // A year that no clock has is displayed as the last one that has four digits
        let time = time::OffsetDateTime::from_unix_timestamp(millis.div_euclid(1000))
            .unwrap_or(time::PrimitiveDateTime::MAX.assume_utc());
        let (date, millis) = (time.date(), millis.rem_euclid(1000));
        write!(f, "{:04}-{:02}-{:02}", date.year(), u8::from(date.month()), date.day())?;
        write!(f, "T{:02}:{:02}:{:02}.{millis:03}Z", time.hour(), time.minute(), time.second())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_time_has_truncated_milliseconds_and_the_suffix_z() {
        assert_eq!(CommitTime(0).to_string(), "2000-01-01T00:00:00.000Z");
        assert_eq!(CommitTime(840_643_101_620_999).to_string(), "2026-08-21T15:58:21.620Z");
        assert_eq!(CommitTime(-1).to_string(), "1999-12-31T23:59:59.999Z");
        for time in [i64::MIN, i64::MAX] {
            assert!(CommitTime(time).to_string().ends_with('Z'), "{time}");
        }
    }
}
