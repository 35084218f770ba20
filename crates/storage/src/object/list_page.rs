//! The second form of listings: pages by cursor.
//!
//! An entry's place in the order is its whole name; that of a folder ends with the delimiter. The
//! cursor has the kind of the last entry, so a page begins strictly behind it, whatever other names
//! begin with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portico_database::wire::{Param, Row};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::binary_value;
use crate::error::{Result, StorageError};
use crate::operation::{Actor, Operation, SqlStep};
use crate::sql;

/// Names that begin with this character cannot be written.
const LAST: &str = "\u{10ffff}";

/// The largest page.
const MAX_PAGE: u64 = 1000;

/// The order of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PageOrder {
    #[default]
    Name,
    CreatedAt,
    UpdatedAt,
}

impl PageOrder {
    /// Returns the order by a column.
    pub fn parse(column: &str) -> Option<Self> {
        match column {
            "name" => Some(Self::Name),
            "created_at" => Some(Self::CreatedAt),
            "updated_at" => Some(Self::UpdatedAt),
            _ => None,
        }
    }

    fn column(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::CreatedAt => "created_at",
            Self::UpdatedAt => "updated_at",
        }
    }
}

/// A request for a page.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageRequest {
    pub bucket: String,
    pub prefix: String,
    pub limit: u64,
    /// The text that ends the names of folders: names with it after the prefix become one entry.
    /// An order of times only knows `/`.
    pub delimiter: Option<String>,
    pub order: PageOrder,
    pub descending: bool,
    pub cursor: Option<PageCursor>,
}

/// The last entry of a page, and the order of the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageCursor {
    pub name: String,
    pub is_folder: bool,
    pub order: PageOrder,
    pub descending: bool,
    /// The time of the entry, where the order is one of times.
    pub time: Option<String>,
}

impl PageCursor {
    /// Encodes the cursor as clients pass it on.
    pub fn encode(&self) -> String {
        let mut lines = format!("l:{}", self.name);
        lines.push_str(if self.descending { "\no:desc" } else { "\no:asc" });
        lines.push_str(&format!("\nc:{}", self.order.column()));
        if let Some(time) = &self.time {
            lines.push_str(&format!("\na:{time}"));
        }
        if self.is_folder {
            lines.push_str("\nk:folder");
        }
        STANDARD.encode(lines)
    }

    /// Decodes a cursor.
    ///
    /// # Errors
    /// [`StorageError::InvalidParameter`]
    pub fn decode(text: &str) -> Result<Self> {
        Self::read(text).ok_or_else(|| StorageError::InvalidParameter("Invalid Parameter continuation token".into()))
    }

    fn read(text: &str) -> Option<Self> {
        let lines = String::from_utf8(STANDARD.decode(text).ok()?).ok()?;
        let mut cursor =
            Self { name: String::new(), is_folder: false, order: PageOrder::Name, descending: false, time: None };
        let mut has_name = false;
        for line in lines.split('\n') {
            match line.split_once(':')? {
                ("l", name) => (cursor.name, has_name) = (name.to_owned(), true),
                ("o", order @ ("asc" | "desc")) => cursor.descending = order == "desc",
                ("c", column) => cursor.order = PageOrder::parse(column)?,
                ("a", time) => {
                    crate::model::parse_timestamp(time)?;
                    cursor.time = Some(time.to_owned());
                }
                ("k", "folder") => cursor.is_folder = true,
                _ => return None,
            }
        }
        let is_whole =
            has_name && !cursor.name.contains('\0') && (cursor.order == PageOrder::Name || cursor.time.is_some());
        is_whole.then_some(cursor)
    }
}

/// One entry of a listing.
#[derive(Debug)]
pub(crate) struct PageEntry {
    /// The whole name; that of a folder ends with `/`.
    pub name: String,
    /// `None` for a folder.
    pub id: Option<String>,
    pub updated_at: Option<String>,
    pub created_at: Option<String>,
    pub last_accessed_at: Option<String>,
    pub metadata: Option<Box<RawValue>>,
    /// The position of a folder in an order of times.
    moment: Option<String>,
}

impl PageEntry {
    fn read(row: &Row) -> Result<Self> {
        let time = |column| -> Result<Option<String>> {
            Ok(binary_value::timestamp(row, column)?.map(|time| time.as_str().to_owned()))
        };
        let id = binary_value::uuid(row, 1)?;
        let metadata = binary_value::json(row, 5)?;
        Ok(Self {
            name: row.text(0).ok_or(StorageError::Internal)?.to_owned(),
            id: id.map(|id| String::from_utf8_lossy(&id).into_owned()),
            updated_at: time(2)?,
            created_at: time(3)?,
            last_accessed_at: time(4)?,
            metadata: metadata.and_then(|json| RawValue::from_string(json.to_owned()).ok()),
            moment: time(6)?,
        })
    }

    /// Returns the entry as clients see it. `has_key`: with the last segment of its name.
    fn to_json(&self, has_key: bool) -> Value {
        let key = self.name.strip_suffix('/').filter(|_| self.id.is_none()).unwrap_or(&self.name);
        let key = key.rsplit('/').next().unwrap_or_default();
        let mut entry = if has_key { json!({ "key": key }) } else { json!({}) };
        entry["name"] = self.name.as_str().into();
        entry["id"] = self.id.as_deref().into();
        entry["updated_at"] = self.updated_at.as_deref().into();
        entry["created_at"] = self.created_at.as_deref().into();
        entry["last_accessed_at"] = self.last_accessed_at.as_deref().into();
        entry["metadata"] =
            self.metadata.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        entry
    }
}

/// A page of a listing.
#[derive(Debug)]
pub(crate) struct ObjectListPage {
    pub entries: Vec<PageEntry>,
    /// The cursor of the next page; `None` if this is the last one.
    pub next: Option<PageCursor>,
}

impl ObjectListPage {
    /// Returns the page as clients see it.
    pub fn to_json(&self, by_folder: bool) -> Value {
        let list = |folders: bool| -> Vec<Value> {
            let of_kind = self.entries.iter().filter(|entry| entry.id.is_none() == folders);
            of_kind.map(|entry| entry.to_json(by_folder)).collect()
        };
        let mut page = json!({ "hasNext": self.next.is_some() });
        if let Some(next) = &self.next {
            page["nextCursor"] = next.encode().into();
            page["nextCursorKey"] = next.name.as_str().into();
        }
        page["folders"] = list(true).into();
        page["objects"] = list(false).into();
        page
    }
}

/// Returns a page.
///
/// # Errors
/// Those of PostgreSQL.
pub(crate) async fn page(operation: &Operation, mut request: PageRequest) -> Result<ObjectListPage> {
    let limit = request.limit.clamp(1, MAX_PAGE);
    if let Some(cursor) = &request.cursor {
        (request.order, request.descending) = (cursor.order, cursor.descending);
    }
    let wanted = (limit + 1).to_string();
    let beyond = beyond(&request.prefix);
    let mut entries = match request.order {
        PageOrder::Name => by_name(operation, &request, beyond.as_deref(), &wanted).await?,
        _ => by_time(operation, &request, beyond.as_deref(), &wanted).await?,
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = entries.len() > limit;
    entries.truncate(limit);
    let next = entries.last().filter(|_| has_more).map(|last| PageCursor {
        name: last.name.clone(),
        is_folder: last.id.is_none(),
        order: request.order,
        descending: request.descending,
        time: last.moment.clone(),
    });
    Ok(ObjectListPage { entries, next })
}

async fn by_name(
    operation: &Operation,
    request: &PageRequest,
    beyond: Option<&str>,
    wanted: &str,
) -> Result<Vec<PageEntry>> {
    let cursor = request.cursor.as_ref();
    let text = if request.descending { sql::WALK_DOWN } else { sql::WALK_UP };
    // Upwards: names from here on. Downwards: names strictly before this one
    let start = match (cursor, request.descending) {
        (None, false) => Some(request.prefix.clone()),
        (None, true) => Some(beyond.unwrap_or(LAST).to_owned()),
        (Some(cursor), true) => Some(cursor.name.clone()),
        (Some(cursor), false) if cursor.is_folder => self::beyond(&cursor.name),
        // The least name that is greater
        (Some(cursor), false) => Some(format!("{}\u{1}", cursor.name)),
    };
    // A cursor of another listing does not lead out of the prefix
    let start = match start {
        Some(start) if !request.descending && start < request.prefix => Some(request.prefix.clone()),
        Some(start) if request.descending && beyond.is_some_and(|beyond| start.as_str() > beyond) => {
            beyond.map(str::to_owned)
        }
        start => start,
    };
    let delimiter = request.delimiter.as_deref();
    let behind_delimiter = delimiter.and_then(self::beyond);
    let length = request.prefix.chars().count().to_string();
    let values = [
        Some(request.bucket.as_bytes()),
        Some(request.prefix.as_bytes()),
        Some(beyond.unwrap_or(LAST).as_bytes()),
        start.as_deref().map(str::as_bytes),
        delimiter.map(str::as_bytes),
        Some(length.as_bytes()),
        Some(wanted.as_bytes()),
        behind_delimiter.as_deref().map(str::as_bytes),
    ];
    run(operation, text, if request.descending { &values[..7] } else { &values }).await
}

async fn by_time(
    operation: &Operation,
    request: &PageRequest,
    beyond: Option<&str>,
    wanted: &str,
) -> Result<Vec<PageEntry>> {
    let text = sql::list_by_time(request.order.column(), request.descending);
    let cursor = request.cursor.as_ref();
    let by_folder = if request.delimiter.is_some() { "true" } else { "false" };
    let length = request.prefix.chars().count().to_string();
    let values = [
        Some(request.bucket.as_bytes()),
        Some(request.prefix.as_bytes()),
        Some(beyond.unwrap_or(LAST).as_bytes()),
        cursor.map(|cursor| cursor.name.as_bytes()),
        cursor.and_then(|cursor| cursor.time.as_deref()).map(str::as_bytes),
        Some(by_folder.as_bytes()),
        Some(length.as_bytes()),
        Some(wanted.as_bytes()),
    ];
    run(operation, &text, &values).await
}

async fn run(operation: &Operation, text: &str, values: &[Param<'_>]) -> Result<Vec<PageEntry>> {
    let results = operation.read_rows(Actor::Caller, SqlStep { text, values }).await?;
    results.rows(0).iter().map(PageEntry::read).collect()
}

/// Returns the least text that is greater than all that begin with the prefix; `None` if there is
/// none.
pub(crate) fn beyond(prefix: &str) -> Option<String> {
    let mut rest = prefix;
    while let Some(last) = rest.chars().next_back() {
        rest = &rest[..rest.len() - last.len_utf8()];
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            return Some(format!("{rest}{next}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cursor_survives_its_encoding() {
        for cursor in [
            PageCursor {
                name: "a/b:c".into(),
                is_folder: false,
                order: PageOrder::Name,
                descending: false,
                time: None,
            },
            PageCursor {
                name: "a/".into(),
                is_folder: true,
                order: PageOrder::CreatedAt,
                descending: true,
                time: Some("2026-08-01T09:00:00.000Z".into()),
            },
        ] {
            assert_eq!(PageCursor::decode(&cursor.encode()), Ok(cursor));
        }
        // A cursor that another server made
        assert_eq!(PageCursor::decode("bDp1MS9tZS5wbmc=").unwrap().name, "u1/me.png");
    }

    #[test]
    fn an_unreadable_cursor_is_rejected() {
        for text in [
            "",
            "%",
            "eA==",
            &STANDARD.encode("o:asc"),
            &STANDARD.encode("l:a\nc:id"),
            &STANDARD.encode("l:a\nc:created_at"),
            &STANDARD.encode("l:\0"),
        ] {
            assert!(PageCursor::decode(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn beyond_is_greater_than_all_that_begin_with_the_prefix(prefix in "\\PC{0,6}", rest in "\\PC{0,6}") {
            if let Some(beyond) = beyond(&prefix) {
                let inside = [prefix.as_str(), &rest].concat();
                prop_assert!(inside.as_bytes() < beyond.as_bytes());
                prop_assert!(!beyond.starts_with(&prefix));
            }
        }
    }
}
