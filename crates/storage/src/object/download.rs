//! Reading objects: the row and the content.

use http::{HeaderMap, header};
use portico_database::wire::{Param, Row, RowSeparators};
use serde::Deserialize;

use crate::backend::{BackendError, ByteRange, OpenContent, VersionKey};
use crate::binary_value;
use crate::error::{Result, StorageError};
use crate::http::object_headers::range_of;
use crate::model::ObjectRow;
use crate::name::ObjectPath;
use crate::object::condition::permits_range;
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
    #[serde(default)]
    object: Option<ObjectRow>,
}

impl ObjectAndBucket {
    /// Reads a row of [`sql::FIND_OBJECTS_AS_OWNER`].
    fn read(row: &Row) -> Result<Self> {
        let object = row.bytes(1).map(|_| read_object(row, 1)).transpose()?;
        Ok(Self { public: row.bytes(0) == Some(&[1]), object })
    }
}

/// Reads the columns of an object, of which `first` is the first one.
fn read_object(row: &Row, first: usize) -> Result<ObjectRow> {
    let time = |column| -> Result<Option<String>> {
        Ok(binary_value::timestamp(row, first + column)?.map(|time| time.as_str().to_owned()))
    };
    let json = |column| binary_value::json(row, first + column);
    let id = binary_value::uuid(row, first)?.ok_or(StorageError::Internal)?;
    Ok(ObjectRow {
        id: String::from_utf8_lossy(&id).into_owned(),
        version: row.text(first + 1).map(str::to_owned),
        created_at: time(2)?,
        updated_at: time(3)?,
        metadata: json(4)?.map(|text| parse(text.as_bytes())).transpose()?.unwrap_or_default(),
        user_metadata: json(5)?.map(|text| parse(text.as_bytes())).transpose()?.flatten(),
    })
}

/// Finds the row of an object that can be read.
///
/// # Errors
/// [`StorageError::NoSuchBucket`], [`StorageError::NoSuchKey`], and those of PostgreSQL.
pub(crate) async fn find(operation: &Operation, rule: ReadRule, path: &ObjectPath) -> Result<ReadableObject> {
    if path.bucket.contains('\0') || path.name.contains('\0') {
        return Err(StorageError::NoSuchKey);
    }
    match rule {
        ReadRule::Policies => Ok(ReadableObject { row: find_visible(operation, path).await?, is_public: false }),
        ReadRule::PublicOrPolicies if operation.known_caller().is_some() => public_or_visible(operation, path).await,
        ReadRule::SignedUrl => {
            let found = without_policies(operation, path).await?.ok_or(StorageError::NoSuchKey)?;
            let row = found.object.ok_or(StorageError::NoSuchKey)?;
            Ok(ReadableObject { row, is_public: found.public })
        }
        // A private bucket does not exist for a caller who could not read it
        ReadRule::Public | ReadRule::PublicOrPolicies => {
            let found = without_policies(operation, path).await?.filter(|found| found.public);
            let row = found.ok_or(StorageError::NoSuchBucket)?.object.ok_or(StorageError::NoSuchKey)?;
            Ok(ReadableObject { row, is_public: true })
        }
    }
}

/// Finds an object of a public bucket, or one that the policies allow the caller. Policies do not
/// matter in a public bucket, nor does their failure.
async fn public_or_visible(operation: &Operation, path: &ObjectPath) -> Result<ReadableObject> {
    let private_buckets = &operation.service.private_buckets;
    let bucket = async || {
        let found = without_policies(operation, path).await?;
        private_buckets.record(&path.bucket, found.as_ref().is_some_and(|found| !found.public));
        found.ok_or(StorageError::NoSuchBucket)
    };
    let public = |found: ObjectAndBucket| {
        let row = found.object.ok_or(StorageError::NoSuchKey)?;
        Ok(ReadableObject { row, is_public: true })
    };
    let was_private = private_buckets.contains(&path.bucket);
    if !was_private {
        // The read that requests share is all that a public bucket needs
        let found = bucket().await?;
        if found.public {
            return public(found);
        }
    }
    match visible(operation, path).await {
        Ok(Some(row)) => Ok(ReadableObject { row, is_public: false }),
        refused => {
            // It may have become public since
            if was_private
                && let found = bucket().await?
                && found.public
            {
                return public(found);
            }
            refused.and(Err(StorageError::NoSuchKey))
        }
    }
}

/// Finds an object that the caller can read, by the policies alone.
///
/// # Errors
/// [`StorageError::NoSuchKey`]
pub(crate) async fn find_visible(operation: &Operation, source: &ObjectPath) -> Result<ObjectRow> {
    visible(operation, source).await?.ok_or(StorageError::NoSuchKey)
}

/// Returns the row of an object as the caller sees it.
async fn visible(operation: &Operation, path: &ObjectPath) -> Result<Option<ObjectRow>> {
    let step = SqlStep { text: sql::FIND_OBJECT, values: &values(path) };
    let results = operation.read_rows(Actor::Caller, step).await?;
    results.rows(0).first().map(|row| read_object(row, 0)).transpose()
}

/// Finds an object and its bucket, whatever the policies say.
async fn without_policies(operation: &Operation, path: &ObjectPath) -> Result<Option<ObjectAndBucket>> {
    if let Some(found) = found_as_owner(operation, path).await? {
        return Ok(Some(found));
    }
    let step = SqlStep { text: sql::FIND_OBJECT_AND_BUCKET, values: &values(path) };
    operation.read(Actor::Service, step, RowSeparators::default()).await?.one()
}

/// Finds an object and its bucket with the read that requests share. `None`: there is no such
/// bucket, or the tables are not what they are elsewhere.
async fn found_as_owner(operation: &Operation, path: &ObjectPath) -> Result<Option<ObjectAndBucket>> {
    let found = operation.service.find_object.run([&path.bucket, &path.name]).await;
    found.as_ref().map(ObjectAndBucket::read).transpose()
}

/// Returns the values of the statements that find an object.
fn values(path: &ObjectPath) -> [Param<'_>; 2] {
    [Some(path.bucket.as_bytes()), Some(path.name.as_bytes())]
}

/// The content that a request is responded with.
pub(crate) struct RequestedContent {
    /// The row of the content, if it is not the one that was found.
    pub replaced: Option<ObjectRow>,
    pub content: OpenContent,
    /// The content is a range of the whole one.
    pub is_range: bool,
}

/// Opens the content of an object that was found, or the range of it that headers ask for; `None`:
/// all of it. With `If-Range`, it is a range of that content and no other one.
///
/// # Errors
/// As of [`open`].
pub(crate) async fn open_requested(
    operation: &Operation,
    rule: ReadRule,
    path: &ObjectPath,
    row: &ObjectRow,
    headers: Option<&HeaderMap>,
) -> Result<RequestedContent> {
    let if_range = headers.and_then(|headers| headers.get(header::IF_RANGE));
    // A validator of other bytes is that of no content
    let if_range = if_range.map(|value| value.to_str().unwrap_or_default());
    let range = match headers.filter(|_| permits_range(if_range, row)) {
        Some(headers) => range_of(headers)?,
        None => None,
    };
    let (replaced, content) = open(operation, rule, path, row, range).await?;
    match replaced {
        Some(newer) if range.is_some() && !permits_range(if_range, &newer) => {
            let (newest, content) = open(operation, rule, path, &newer, None).await?;
            Ok(RequestedContent { replaced: newest.or(Some(newer)), content, is_range: false })
        }
        replaced => Ok(RequestedContent { replaced, content, is_range: range.is_some() }),
    }
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
