//! The entries of `config.postgres_changes`: what a channel subscribes to.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::filter::{FilterCondition, FilterError, parse_filter};

/// The conditions of all entries of a channel.
const MAX_CONDITIONS: usize = 300;
/// The schema of an entry that names only a table.
const DEFAULT_SCHEMA: &str = "public";

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ChangeAction {
    Insert,
    Update,
    Delete,
}

impl ChangeAction {
    /// Returns the name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// The kinds of changes that an entry subscribes to; `None`: all.
pub(crate) type ActionFilter = Option<ChangeAction>;

/// A name, or `*` for all names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum NamePattern {
    All,
    Exactly(Box<str>),
}

impl NamePattern {
    fn parse(name: &str) -> Self {
        if name == "*" { Self::All } else { Self::Exactly(name.into()) }
    }

    /// Returns true if the pattern matches a name.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exactly(exact) => **exact == *name,
        }
    }

    /// Returns the pattern as the client writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::All => "*",
            Self::Exactly(name) => name,
        }
    }
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ChangesEntry {
    /// The number of the entry in messages: not zero, at most 31 bits. Equal for equal entries,
    /// different for different entries of a channel.
    pub id: u32,
    pub action: ActionFilter,
    pub schema: NamePattern,
    pub table: NamePattern,
    /// All of them have to hold.
    pub conditions: Box<[FilterCondition]>,
    /// The columns that messages contain besides the primary key; `None`: all. Sorted.
    pub select: Option<Box<[Box<str>]>>,
}

impl ChangesEntry {
    /// Returns true if the entry names a table.
    pub fn names(&self, schema: &str, table: &str) -> bool {
        self.schema.matches(schema) && self.table.matches(table)
    }

    /// Returns the entry for one of the tables that it names.
    pub fn for_table(&self, schema: &str, table: &str) -> Self {
        let (schema, table) = (NamePattern::Exactly(schema.into()), NamePattern::Exactly(table.into()));
        Self { schema, table, ..self.clone() }
    }
}

/// The parameters of an entry as messages to clients print them.
impl fmt::Display for ChangesEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = self.action.map_or("*", ChangeAction::name);
        let (schema, table) = (self.schema.as_str(), self.table.as_str());
        write!(f, "[event: {action}, schema: {schema}, table: {table}, filters: [")?;
        for (number, condition) in self.conditions.iter().enumerate() {
            write!(f, "{}{condition}", if number == 0 { "" } else { ", " })?;
        }
        match &self.select {
            Some(columns) => write!(f, "], select: {columns:?}]"),
            None => f.write_str("], select: nil]"),
        }
    }
}

/// The reason why an entry cannot be parsed. The text is that of the `system` message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EntryError {
    Filter(FilterError),
    SelectNotAList,
    SelectOfWildcard,
    /// The entry does not say what to subscribe to.
    NoParameters(Value),
    TooManyConditions,
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filter(error) => write!(f, "Error parsing `filter` params: {error}"),
            Self::SelectNotAList => f.write_str(
                "Error parsing `select` params: expected a list of column name strings, e.g. select: [\"col1\", \"col2\"]",
            ),
            Self::SelectOfWildcard => f.write_str(
                "Column selection is not supported for wildcard subscriptions. Provide an explicit schema and table name.",
            ),
            Self::NoParameters(entry) => write!(
                f,
                "No subscription params provided. Please provide at least a `schema` or `table` to subscribe to: {}",
                PrintedValue(entry)
            ),
            Self::TooManyConditions => {
                write!(f, "Too many filter conditions. Maximum {MAX_CONDITIONS} for one channel")
            }
        }
    }
}

/// A JSON value in the notation of the messages.
struct PrintedValue<'a>(&'a Value);

impl fmt::Display for PrintedValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("nil"),
            Value::Bool(_) | Value::Number(_) => write!(f, "{}", self.0),
            Value::String(text) => write!(f, "{text:?}"),
            Value::Array(items) => {
                f.write_str("[")?;
                for (number, item) in items.iter().enumerate() {
                    write!(f, "{}{}", if number == 0 { "" } else { ", " }, PrintedValue(item))?;
                }
                f.write_str("]")
            }
            Value::Object(object) => {
                f.write_str("%{")?;
                let mut keys: Vec<_> = object.iter().collect();
                keys.sort_by_key(|(key, _)| *key);
                for (number, (key, value)) in keys.into_iter().enumerate() {
                    write!(f, "{}{key:?} => {}", if number == 0 { "" } else { ", " }, PrintedValue(value))?;
                }
                f.write_str("}")
            }
        }
    }
}

/// The form of the messages that a channel receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ChangeMessageForm {
    /// Events `postgres_changes` with the ids of the entries.
    Ids,
    /// Events named after the kind of change, for clients of the first generation.
    Legacy,
}

/// The parsed entries of a join.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PreparedEntries {
    echo: Value,
    entries: Result<Arc<[Arc<ChangesEntry>]>, EntryError>,
    form: ChangeMessageForm,
}

impl PreparedEntries {
    /// Parses the entries of a join, which has limited their number. Errors are sent later, as
    /// `system` messages.
    pub fn of_entries(entries: &[Value]) -> Self {
        let ids = ids_of(entries);
        let with_id = |(entry, id): (&Value, &u32)| {
            let mut entry = entry.clone();
            if let Value::Object(object) = &mut entry {
                object.insert("id".into(), (*id).into());
            }
            entry
        };
        let echo = Value::Array(entries.iter().zip(&ids).map(with_id).collect());
        let parsed = entries.iter().zip(ids).map(|(entry, id)| parse_entry(entry, id).map(Arc::new));
        let parsed = parsed.collect::<Result<Arc<[Arc<ChangesEntry>]>, _>>().and_then(|entries| {
            let conditions: usize = entries.iter().map(|entry| entry.conditions.len()).sum();
            if conditions > MAX_CONDITIONS { Err(EntryError::TooManyConditions) } else { Ok(entries) }
        });
        Self { echo, entries: parsed, form: ChangeMessageForm::Ids }
    }

    /// Makes the entry of a join without `config`, which the topic describes:
    /// `schema[:table[:filter]]`. The topic comes without its prefix.
    pub fn of_topic(topic: &str) -> Self {
        let mut pieces = topic.splitn(3, ':');
        let mut entry = Map::new();
        for key in ["schema", "table", "filter"] {
            if let Some(piece) = pieces.next() {
                entry.insert(key.to_owned(), piece.into());
            }
        }
        let prepared = Self::of_entries(&[Value::Object(entry)]);
        Self { echo: Value::Array(Vec::new()), form: ChangeMessageForm::Legacy, ..prepared }
    }

    /// Returns the entries with their ids, for the reply to the join: an array.
    pub fn echo(&self) -> &Value {
        &self.echo
    }

    /// Returns the entries.
    ///
    /// # Errors
    /// The first error: one bad entry fails them all.
    pub fn entries(&self) -> Result<&Arc<[Arc<ChangesEntry>]>, &EntryError> {
        self.entries.as_ref()
    }

    /// Returns the form of the messages.
    pub fn form(&self) -> ChangeMessageForm {
        self.form
    }

    /// Returns true if there is nothing to subscribe to.
    pub fn is_empty(&self) -> bool {
        self.entries.as_ref().is_ok_and(|entries| entries.is_empty())
    }
}

fn parse_entry(entry: &Value, id: u32) -> Result<ChangesEntry, EntryError> {
    let no_parameters = || EntryError::NoParameters(entry.clone());
    let text = |name: &str| match entry.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(no_parameters()),
    };
    let (schema, table, filter) = match (text("schema")?, text("table")?, text("filter")?) {
        (Some(schema), Some(table), filter) => (schema, table, filter),
        (Some(schema), None, None) => (schema, "*", None),
        (None, Some(table), None) => (DEFAULT_SCHEMA, table, None),
        _ => return Err(no_parameters()),
    };
    let (schema, table) = (NamePattern::parse(schema), NamePattern::parse(table));
    let conditions = parse_filter(filter.unwrap_or_default()).map_err(EntryError::Filter)?;
    let select = match entry.get("select") {
        None | Some(Value::Null) => None,
        Some(Value::Array(columns)) => {
            let mut names: Vec<Box<str>> = columns.iter().filter_map(Value::as_str).map(Into::into).collect();
            names.sort_unstable();
            names.dedup();
            (!names.is_empty()).then(|| names.into())
        }
        Some(_) => return Err(EntryError::SelectNotAList),
    };
    if select.is_some() && (schema == NamePattern::All || table == NamePattern::All) {
        return Err(EntryError::SelectOfWildcard);
    }
    Ok(ChangesEntry {
        id,
        action: parse_action(entry.get("event")),
        schema,
        table,
        conditions: conditions.into(),
        select,
    })
}

fn parse_action(event: Option<&Value>) -> ActionFilter {
    let name = event.and_then(Value::as_str)?;
    [ChangeAction::Insert, ChangeAction::Update, ChangeAction::Delete]
        .into_iter()
        .find(|action| name.eq_ignore_ascii_case(action.name()))
}

/// Returns the ids of the entries of a channel.
fn ids_of(entries: &[Value]) -> Vec<u32> {
    let mut owners: HashMap<u32, String> = HashMap::new();
    let id_of = |entry: &Value| {
        let mut content = String::new();
        write_canonical(entry, &mut content);
        let mut id = content_hash(&content);
        while owners.get(&id).is_some_and(|owner| *owner != content) {
            id = id % MAX_ID + 1;
        }
        owners.insert(id, content);
        id
    };
    entries.iter().map(id_of).collect()
}

/// The largest id.
const MAX_ID: u32 = i32::MAX as u32;

/// Returns a number from 1 to [`MAX_ID`] that depends only on the content (FNV-1a).
fn content_hash(content: &str) -> u32 {
    let hash = content
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let folded = (hash ^ (hash >> 32)) % u64::from(MAX_ID);
    u32::try_from(folded).unwrap_or_default() + 1
}

/// Writes a value so that equal values have equal text: the keys of objects are sorted.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(object) => {
            let mut keys: Vec<_> = object.iter().collect();
            keys.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (key, value) in keys {
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::filter::FilterOperator;
    use super::*;

    fn parse(entry: Value) -> Result<Arc<ChangesEntry>, String> {
        let prepared = PreparedEntries::of_entries(&[entry]);
        prepared.entries.map(|entries| Arc::clone(&entries[0])).map_err(|error| error.to_string())
    }

    #[test]
    fn the_accepted_combinations_name_schema_and_table() {
        for (entry, printed) in [
            (
                json!({ "schema": "a", "table": "b", "filter": "id=eq.1", "event": "insert" }),
                r#"[event: INSERT, schema: a, table: b, filters: [{"id", "eq", "1", false}], select: nil]"#,
            ),
            (json!({ "schema": "a", "table": "b" }), "[event: *, schema: a, table: b, filters: [], select: nil]"),
            (json!({ "schema": "a", "event": "what" }), "[event: *, schema: a, table: *, filters: [], select: nil]"),
            (
                json!({ "table": "b", "event": "Delete" }),
                "[event: DELETE, schema: public, table: b, filters: [], select: nil]",
            ),
            (
                json!({ "schema": "*", "table": "*", "event": "UPDATE" }),
                "[event: UPDATE, schema: *, table: *, filters: [], select: nil]",
            ),
            (
                json!({ "schema": "a", "table": "b", "filter": " ", "select": ["y", 1, "x", "y"] }),
                r#"[event: *, schema: a, table: b, filters: [], select: ["x", "y"]]"#,
            ),
            (
                json!({ "schema": "a", "table": "b", "select": [] }),
                "[event: *, schema: a, table: b, filters: [], select: nil]",
            ),
            (
                json!({ "schema": "a", "table": "b", "select": null }),
                "[event: *, schema: a, table: b, filters: [], select: nil]",
            ),
        ] {
            assert_eq!(parse(entry.clone()).unwrap().to_string(), printed, "{entry}");
        }
        assert_eq!(parse(json!({ "schema": "*" })).unwrap().table, NamePattern::All);
    }

    #[test]
    fn an_entry_that_cannot_be_parsed_has_the_text_of_the_protocol() {
        let none = "No subscription params provided. Please provide at least a `schema` or `table` to subscribe to: ";
        for (entry, text) in [
            (json!({}), format!("{none}%{{}}")),
            (json!({ "event": "*" }), format!("{none}%{{\"event\" => \"*\"}}")),
            (json!({ "schema": "a", "filter": "id=eq.1" }), format!("{none}%{{\"filter\" => \"id=eq.1\", \"schema\" => \"a\"}}")),
            (json!({ "table": "a", "filter": "id=eq.1" }), format!("{none}%{{\"filter\" => \"id=eq.1\", \"table\" => \"a\"}}")),
            (json!({ "schema": 1 }), format!("{none}%{{\"schema\" => 1}}")),
            (json!({ "schema": "a", "table": null }), format!("{none}%{{\"schema\" => \"a\", \"table\" => nil}}")),
            (json!({ "schema": [true, {}] }), format!("{none}%{{\"schema\" => [true, %{{}}]}}")),
            (json!({ "schema": "a", "table": "b", "filter": "wrong" }), "Error parsing `filter` params: [\"wrong\"]".into()),
            (json!({ "schema": "a", "table": "b", "select": "id" }),
             "Error parsing `select` params: expected a list of column name strings, e.g. select: [\"col1\", \"col2\"]".into()),
            (json!({ "schema": "a", "table": "*", "select": ["id"] }),
             "Column selection is not supported for wildcard subscriptions. Provide an explicit schema and table name.".into()),
            (json!({ "schema": "a", "select": ["id"] }),
             "Column selection is not supported for wildcard subscriptions. Provide an explicit schema and table name.".into()),
        ] {
            assert_eq!(parse(entry.clone()).unwrap_err(), text, "{entry}");
        }
    }

    #[test]
    fn the_echo_has_the_entries_as_they_were_sent_with_an_id() {
        let sent = [
            json!({ "event": "*", "schema": "public", "table": "a", "select": ["id", 1], "x": { "y": null } }),
            json!({ "what": 1 }),
        ];
        let prepared = PreparedEntries::of_entries(&sent);
        let echo = prepared.echo.as_array().unwrap();
        for (sent, echoed) in sent.iter().zip(echo) {
            let mut echoed = echoed.clone();
            let id = echoed.as_object_mut().unwrap().remove("id").unwrap().as_u64().unwrap();
            assert!((1..=u64::from(MAX_ID)).contains(&id));
            assert_eq!(&echoed, sent);
        }
        assert!(prepared.entries.is_err(), "one bad entry fails them all");
        assert_eq!(PreparedEntries::of_entries(&[]).echo, json!([]));
        assert!(PreparedEntries::of_entries(&[]).is_empty());
    }

    #[test]
    fn equal_entries_have_equal_ids_and_different_ones_different_ids() {
        let entry = |select: Value| json!({ "schema": "a", "table": "b", "select": select });
        let same = json!({ "table": "b", "select": ["x"], "schema": "a" });
        let ids = ids_of(&[entry(json!(["x"])), entry(json!(["y"])), same, entry(json!(["x", "y"]))]);
        assert_eq!(ids[0], ids[2]);
        assert!(ids[0] != ids[1] && ids[1] != ids[3] && ids[0] != ids[3]);
        assert_eq!(ids_of(&[entry(json!(["x"]))]), [ids[0]], "the same in every channel");
        let many: Vec<_> = (0..1_000).map(|number| json!({ "schema": "a", "filter": number })).collect();
        let distinct: std::collections::HashSet<_> = ids_of(&many).into_iter().collect();
        assert_eq!(distinct.len(), many.len());
    }

    #[test]
    fn the_topic_of_a_legacy_join_is_an_entry() {
        for (topic, printed) in [
            ("public", "[event: *, schema: public, table: *, filters: [], select: nil]"),
            ("*", "[event: *, schema: *, table: *, filters: [], select: nil]"),
            ("public:todos", "[event: *, schema: public, table: todos, filters: [], select: nil]"),
            (
                "public:todos:id=eq.1:2",
                r#"[event: *, schema: public, table: todos, filters: [{"id", "eq", "1:2", false}], select: nil]"#,
            ),
        ] {
            let prepared = PreparedEntries::of_topic(topic);
            assert_eq!((prepared.form, &prepared.echo), (ChangeMessageForm::Legacy, &json!([])));
            assert_eq!(prepared.entries.unwrap()[0].to_string(), printed);
        }
    }

    #[test]
    fn conditions_are_part_of_an_entry() {
        let entry = parse(json!({ "schema": "a", "table": "b", "filter": "x=not.is.null,y=in.(1)" })).unwrap();
        let operators: Vec<_> =
            entry.conditions.iter().map(|condition| (condition.operator, condition.is_negated)).collect();
        assert_eq!(operators, [(FilterOperator::Is, true), (FilterOperator::In, false)]);
    }

    proptest! {
        #[test]
        fn hostile_texts_do_not_panic(schema: String, table: String, filter: String, event: String, select: Vec<String>) {
            let entry = json!({ "schema": schema, "table": table, "filter": filter, "event": event, "select": select });
            let prepared = PreparedEntries::of_entries(&[entry]);
            match prepared.entries {
                Ok(entries) => prop_assert!(!entries[0].to_string().is_empty()),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
            let _ = PreparedEntries::of_topic(&filter);
        }
    }
}
