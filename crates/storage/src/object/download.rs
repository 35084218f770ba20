//! Reading objects: the row and the content.

use portico_database::wire::{Row, RowSeparators};
use serde::Deserialize;

use crate::backend::{BackendError, ByteRange, OpenContent, VersionKey};
use crate::binary_value;
use crate::error::{Result, StorageError};
use crate::model::ObjectRow;
use crate::name::ObjectPath;
use crate::operation::{Actor, Operation, SqlStep, parse};
use crate::sql;

/// The rule that decides whether an object can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadRule {
    /// The bucket must be public.
    Public,
    /// Objects of public buckets can be read by everyone, others as the policies allow the caller.
    PublicOrPolicies,
    /// The policies decide, for public buckets too.
    Policies,
    /// A signed URL has decided before.
    SignedUrl,
}

/// An object that can be read.
#[derive(Debug)]
pub(crate) struct ReadableObject {
    pub row: ObjectRow,
    /// Its bucket is public.
    pub is_public: bool,
}

#[derive(Debug, Deserialize)]
struct ObjectAndBucket {
    public: bool,
    object: Option<ObjectRow>,
}

impl ObjectAndBucket {
    /// Reads a row of [`sql::FIND_OBJECTS_AS_OWNER`].
    fn read(row: &Row) -> Result<Self> {
        let time = |column| -> Result<Option<String>> {
            Ok(binary_value::timestamp(row, column)?.map(|time| time.as_str().to_owned()))
        };
        let json = |column| binary_value::json(row, column);
        let id = binary_value::uuid(row, 1)?.ok_or(StorageError::Internal)?;
        let object = ObjectRow {
            id: String::from_utf8_lossy(&id).into_owned(),
            version: row.text(2).map(str::to_owned),
            created_at: time(3)?,
            updated_at: time(4)?,
            metadata: json(5)?.map(|text| parse(text.as_bytes())).transpose()?.unwrap_or_default(),
            user_metadata: json(6)?.map(|text| parse(text.as_bytes())).transpose()?.flatten(),
        };
        Ok(Self { public: row.bytes(0) == Some(&[1]), object: Some(object) })
    }
}

/// Finds the row of an object that can be read.
///
/// # Errors
/// [`StorageError::NoSuchBucket`], [`StorageError::NoSuchKey`], and those of PostgreSQL.
pub(crate) async fn find(operation: &Operation, rule: ReadRule, path: &ObjectPath) -> Result<ReadableObject> {
    let values = [Some(path.bucket.as_bytes()), Some(path.name.as_bytes())];
    if path.bucket.contains('\0') || path.name.contains('\0') {
        return Err(StorageError::NoSuchKey);
    }
    let (found, is_visible) = match rule {
        ReadRule::Policies => {
            let row = find_visible(operation, path).await?;
            return Ok(ReadableObject { row, is_public: false });
        }
        ReadRule::PublicOrPolicies if operation.known_caller().is_some() => {
            let both = SqlStep { text: sql::FIND_OBJECT_AND_BUCKET, values: &values };
            let visible = SqlStep { text: sql::SEE_OBJECT, values: &values };
            match operation.read_after(both, visible, RowSeparators::default()).await {
                Ok(rows) => {
                    let found = rows.before().first().map(|row| parse(row.bytes(0).unwrap_or_default()));
                    (found.transpose()?, rows.joined.rows > 0)
                }
                // Policies do not matter in a public bucket, nor does their failure
                Err(error) => match without_policies(operation, path).await? {
                    Some(found) if found.public => (Some(found), false),
                    _ => return Err(error),
                },
            }
        }
        ReadRule::SignedUrl => {
            let found = without_policies(operation, path).await?.ok_or(StorageError::NoSuchKey)?;
            (Some(found), true)
        }
        // A private bucket does not exist for a caller who could not read it
        ReadRule::Public | ReadRule::PublicOrPolicies => {
            (without_policies(operation, path).await?.filter(|found| found.public), false)
        }
    };
    let ObjectAndBucket { public, object } = found.ok_or(StorageError::NoSuchBucket)?;
    let row = object.filter(|_| public || is_visible).ok_or(StorageError::NoSuchKey)?;
    Ok(ReadableObject { row, is_public: public })
}

/// Finds an object that the caller can read, by the policies alone.
///
/// # Errors
/// [`StorageError::NoSuchKey`]
pub(crate) async fn find_visible(operation: &Operation, source: &ObjectPath) -> Result<ObjectRow> {
    let values = [Some(source.bucket.as_bytes()), Some(source.name.as_bytes())];
    let step = SqlStep { text: sql::FIND_OBJECT, values: &values };
    let found = operation.read(Actor::Caller, step, RowSeparators::default()).await?;
    found.one()?.ok_or(StorageError::NoSuchKey)
}

/// Finds an object and its bucket, whatever the policies say.
async fn without_policies(operation: &Operation, path: &ObjectPath) -> Result<Option<ObjectAndBucket>> {
    if let Some(found) = operation.service.find_object.run([&path.bucket, &path.name]).await {
        return ObjectAndBucket::read(&found).map(Some);
    }
    // The bucket may be there without the object, or the tables are not what they are elsewhere
    let values = [Some(path.bucket.as_bytes()), Some(path.name.as_bytes())];
    let step = SqlStep { text: sql::FIND_OBJECT_AND_BUCKET, values: &values };
    operation.read(Actor::Service, step, RowSeparators::default()).await?.one()
}

/// Opens the content of an object that was found. Where the object is replaced at that moment, the
/// new version is opened, and its row is returned too.
///
/// # Errors
/// [`StorageError::ContentLost`], [`StorageError::InvalidRange`].
pub(crate) async fn open(
    operation: &Operation,
    rule: ReadRule,
    path: &ObjectPath,
    row: &ObjectRow,
    range: Option<ByteRange>,
) -> Result<(Option<ObjectRow>, OpenContent)> {
    let backend = &operation.service.backend;
    let key = |row: &ObjectRow| VersionKey::new(&path.bucket, &path.name, row.version.as_deref());
    match backend.get(&key(row), range).await {
        Ok(content) => Ok((None, content)),
        Err(BackendError::NotFound) => {
            let replaced = find(operation, rule, path).await?.row;
            let content = backend.get(&key(&replaced), range).await?;
            Ok((Some(replaced), content))
        }
        Err(error) => Err(error.into()),
    }
}
