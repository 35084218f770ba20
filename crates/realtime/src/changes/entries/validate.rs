//! Checks an entry against the database, as the role that subscribes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use super::column_test::{
    AfterCheck, ColumnFacts, ColumnTest, Compilation, CompiledFilter, ConditionError, MAX_IN_VALUES, OperandCheck,
    Test, compile, complete,
};
use super::entry::ChangesEntry;
use super::filter::{FilterCondition, FilterOperator};
use crate::changes::reads::role_reads::{CANCELED, ReadFailure, RoleReads};
use crate::changes::reads::shared_rounds::SharedRounds;

/// Selects the published tables of a schema and a name, and those of their columns that the entry
/// names.
const TABLES: &str = "
    select pg_catalog.jsonb_build_object(
             'schema', published.schemaname,
             'table', published.tablename,
             'columns', (
               select coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                        'name', attribute.attname,
                        'type_oid', attribute.atttypid::pg_catalog.int8,
                        'type_sql', pg_catalog.format('%I.%I', type_schema.nspname, type.typname),
                        'type_text', pg_catalog.format_type(attribute.atttypid, null),
                        'type_kind', type.typtype,
                        'category', type.typcategory,
                        'collation', case when collating.oid <> 100
                                          then pg_catalog.format('%I.%I', collation_schema.nspname, collating.collname) end,
                        'is_deterministic', coalesce(collating.collisdeterministic, true),
                        'is_readable', pg_catalog.has_schema_privilege(class.relnamespace, 'usage')
                                       and pg_catalog.has_column_privilege(class.oid, attribute.attnum, 'select'))), '[]')
                 from pg_catalog.pg_attribute as attribute
                      join pg_catalog.pg_type as type on type.oid = attribute.atttypid
                      join pg_catalog.pg_namespace as type_schema on type_schema.oid = type.typnamespace
                      left join pg_catalog.pg_collation as collating on collating.oid = attribute.attcollation
                      left join pg_catalog.pg_namespace as collation_schema on collation_schema.oid = collating.collnamespace
                where attribute.attrelid = class.oid and attribute.attnum > 0 and not attribute.attisdropped
                  and attribute.attname = any ($3::pg_catalog.text[])))::pg_catalog.text
      from pg_catalog.pg_publication_tables as published
           join pg_catalog.pg_namespace as namespace on namespace.nspname = published.schemaname
           join pg_catalog.pg_class as class on class.relnamespace = namespace.oid and class.relname = published.tablename
     where published.pubname = 'supabase_realtime'
       and ($1::pg_catalog.text = '*' or published.schemaname = $1::pg_catalog.text)
       and ($2::pg_catalog.text = '*' or published.tablename = $2::pg_catalog.text)
     order by published.schemaname, published.tablename";

/// An entry that the database has accepted.
#[derive(Debug, Clone)]
pub(crate) struct ValidEntry {
    pub entry: Arc<ChangesEntry>,
    /// The filters by table, for an entry that has conditions.
    pub filters: HashMap<TableName, Arc<CompiledFilter>>,
}

/// The schema and the name of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TableName {
    pub schema: Box<str>,
    pub table: Box<str>,
}

/// The reason why a subscription was not made. The text is that of the `system` message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubscribeError {
    /// The entry does not fit the database.
    Final(String),
    /// The database is not available. Another attempt makes sense.
    Unavailable(Arc<str>),
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Final(text) => f.write_str(text),
            Self::Unavailable(text) => f.write_str(text),
        }
    }
}

/// A published table, and the columns that an entry names.
#[derive(Debug, Deserialize)]
struct PublishedTable {
    schema: Box<str>,
    table: Box<str>,
    columns: Vec<ColumnFacts>,
}

/// The parameters of a read of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TablesKey {
    role: Box<str>,
    schema: Box<str>,
    table: Box<str>,
    /// Sorted.
    columns: Vec<Box<str>>,
}

/// The parameters of a check of an operand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CheckKey {
    role: Box<str>,
    sql: Box<str>,
    operand: Box<str>,
}

type TablesResult = Result<Arc<[PublishedTable]>, ReadFailure>;
type Operands = Vec<Option<Box<str>>>;

/// Checks entries. Equal questions of waiting subscribers are asked once.
#[derive(Debug, Clone)]
pub(crate) struct Validator {
    reads: RoleReads,
    tables: Arc<SharedRounds<TablesKey, TablesResult>>,
    checks: Arc<SharedRounds<CheckKey, Result<Operands, ReadFailure>>>,
}

impl Validator {
    /// Returns a validator that reads with `reads`.
    pub fn new(reads: RoleReads) -> Self {
        Self { reads, tables: Arc::default(), checks: Arc::default() }
    }

    /// Checks an entry as a role, and prepares its conditions.
    ///
    /// # Errors
    /// [`SubscribeError`]
    pub async fn validate(&self, role: &str, entry: Arc<ChangesEntry>) -> Result<ValidEntry, SubscribeError> {
        let failed = |text: &dyn fmt::Display| {
            SubscribeError::Final(format!(
                "Unable to subscribe to changes with given parameters. An exception happened so please check your connect \
                 parameters: {entry}. Exception: {text}"
            ))
        };
        let rejected = |failure: ReadFailure| match failure {
            failure if failure.is_temporary() => SubscribeError::Unavailable(failure.to_string().into()),
            ReadFailure::Rejected { code, message } => failed(&Exception { code: &code, message: &message }),
            ReadFailure::Unavailable(text) => SubscribeError::Unavailable(text),
        };
        let tables = self.published(role, &entry).await.map_err(rejected)?;
        if tables.is_empty() {
            return Err(SubscribeError::Final(format!(
                "Unable to subscribe to changes with given parameters. Please check Realtime is enabled for the given connect \
                 parameters: {entry}"
            )));
        }
        let mut filters = HashMap::new();
        for table in tables.iter() {
            let readable = |name: &str| table.columns.iter().find(|column| *column.name == *name && column.is_readable);
            let mut tests = Vec::with_capacity(entry.conditions.len());
            for condition in &entry.conditions {
                let column = readable(&condition.column)
                    .ok_or_else(|| failed(&raised(&format!("invalid column for filter {}", condition.column))))?;
                let test = match self.test(role, condition, column).await {
                    Ok(test) => test,
                    Err(TestError::Condition(error)) => return Err(failed(&raised(&error.to_string()))),
                    Err(TestError::Pattern(message)) => {
                        let operator = condition.operator.name();
                        let text = format!("invalid regular expression for {operator} filter: {message}");
                        return Err(failed(&raised(&text)));
                    }
                    // An operand that takes too long would take as long again
                    Err(TestError::Read(ReadFailure::Rejected { code, message })) if *code == *CANCELED => {
                        return Err(failed(&Exception { code: &code, message: &message }));
                    }
                    Err(TestError::Read(failure)) => return Err(rejected(failure)),
                };
                tests.push(ColumnTest { column: column.name.clone(), type_oid: column.type_oid, test });
            }
            let mut selected = entry.select.iter().flatten();
            if let Some(unreadable) = selected.find(|name| readable(name).is_none()) {
                return Err(failed(&raised(&format!("invalid column for select {unreadable}"))));
            }
            if !tests.is_empty() {
                let name = TableName { schema: table.schema.clone(), table: table.table.clone() };
                filters.insert(name, Arc::new(CompiledFilter { tests: tests.into() }));
            }
        }
        Ok(ValidEntry { entry, filters })
    }

    /// Checks all entries of a channel. One bad entry fails them all.
    ///
    /// # Errors
    /// [`SubscribeError`]
    pub async fn validate_all(
        &self,
        role: &str,
        entries: &[Arc<ChangesEntry>],
    ) -> Result<Vec<ValidEntry>, SubscribeError> {
        let mut valid = Vec::with_capacity(entries.len());
        for entry in entries {
            valid.push(self.validate(role, Arc::clone(entry)).await?);
        }
        Ok(valid)
    }

    /// Reads the published tables of an entry.
    async fn published(&self, role: &str, entry: &ChangesEntry) -> Result<Arc<[PublishedTable]>, ReadFailure> {
        let conditions = entry.conditions.iter().map(|condition| condition.column.clone());
        let mut columns: Vec<Box<str>> = conditions.chain(entry.select.iter().flatten().cloned()).collect();
        columns.sort_unstable();
        columns.dedup();
        let (schema, table) = (entry.schema.as_str().into(), entry.table.as_str().into());
        let key = TablesKey { role: role.into(), schema, table, columns };
        let work = {
            let (reads, key) = (self.reads.clone(), key.clone());
            move || {
                let (reads, key) = (reads.clone(), key.clone());
                async move { read_tables(&reads, &key).await }
            }
        };
        self.tables.result(key, work).await.unwrap_or_else(|| Err(interrupted()))
    }

    async fn test(&self, role: &str, condition: &FilterCondition, column: &ColumnFacts) -> Result<Test, TestError> {
        let check = match compile(condition, column)? {
            Compilation::Ready(test) => return Ok(test),
            Compilation::Check(check) => check,
        };
        let operands = match self.check(role, &check, condition).await {
            Ok(operands) => operands,
            Err(failure) if failure.is_unanswered() => return Err(TestError::Read(failure)),
            Err(ReadFailure::Rejected { message, .. }) if matches!(check.then, AfterCheck::Pattern(_)) => {
                return Err(TestError::Pattern(message));
            }
            Err(failure) => return Err(TestError::Read(failure)),
        };
        match check.then {
            AfterCheck::Canonical(local) => Ok(complete(condition, local, operands)?),
            AfterCheck::Pattern(test) => Ok(Test::Database(test)),
            AfterCheck::Database(test) => {
                let count = operands.first().and_then(|operand| operand.as_deref()?.parse::<usize>().ok());
                if condition.operator == FilterOperator::In && count.is_some_and(|count| count > MAX_IN_VALUES) {
                    return Err(ConditionError::TooManyValues.into());
                }
                Ok(Test::Database(test))
            }
        }
    }

    async fn check(
        &self,
        role: &str,
        check: &OperandCheck,
        condition: &FilterCondition,
    ) -> Result<Operands, ReadFailure> {
        let key = CheckKey { role: role.into(), sql: check.sql.as_str().into(), operand: condition.value.clone() };
        let work = {
            let (reads, key) = (self.reads.clone(), key.clone());
            move || {
                let (reads, key) = (reads.clone(), key.clone());
                async move {
                    let rows = reads.read_as_role(&key.role, &key.sql, &[Some(key.operand.as_bytes())]).await?;
                    let rows: Vec<Operands> = serde_json::from_slice(&rows).map_err(|error| malformed(&error))?;
                    Ok(rows.into_iter().next().unwrap_or_default())
                }
            }
        };
        self.checks.result(key, work).await.unwrap_or_else(|| Err(interrupted()))
    }
}

async fn read_tables(reads: &RoleReads, key: &TablesKey) -> Result<Arc<[PublishedTable]>, ReadFailure> {
    let columns = text_array(key.columns.iter().map(|column| Some(&**column)));
    let values = [Some(key.schema.as_bytes()), Some(key.table.as_bytes()), Some(columns.as_bytes())];
    let rows = reads.read_as_role(&key.role, TABLES, &values).await?;
    let tables: Vec<PublishedTable> = serde_json::from_slice(&rows).map_err(|error| malformed(&error))?;
    Ok(tables.into())
}

/// Returns an array of texts as a literal of PostgreSQL.
pub(crate) fn text_array<'a>(items: impl Iterator<Item = Option<&'a str>>) -> String {
    let mut literal = String::from("{");
    for (number, item) in items.enumerate() {
        if number > 0 {
            literal.push(',');
        }
        let Some(item) = item else {
            literal.push_str("NULL");
            continue;
        };
        literal.push('"');
        for character in item.chars() {
            if matches!(character, '"' | '\\') {
                literal.push('\\');
            }
            literal.push(character);
        }
        literal.push('"');
    }
    literal.push('}');
    literal
}

fn interrupted() -> ReadFailure {
    ReadFailure::Unavailable("the check was interrupted".into())
}

/// Reports rows of an unexpected form.
pub(crate) fn malformed(error: &serde_json::Error) -> ReadFailure {
    tracing::error!(error = %error, "rows of the realtime service have an unexpected form");
    ReadFailure::Unavailable("the rows have an unexpected form".into())
}

/// The reason why a condition cannot be prepared.
enum TestError {
    Condition(ConditionError),
    /// PostgreSQL's message about a regular expression.
    Pattern(Box<str>),
    Read(ReadFailure),
}

impl From<ConditionError> for TestError {
    fn from(error: ConditionError) -> Self {
        Self::Condition(error)
    }
}

/// An error of PostgreSQL as messages to clients print it.
struct Exception<'a> {
    code: &'a str,
    message: &'a str,
}

impl fmt::Display for Exception<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR {}", self.code)?;
        if let Some(name) = condition_name(self.code) {
            write!(f, " ({name})")?;
        }
        write!(f, " {}", self.message)
    }
}

fn raised(message: &str) -> Exception<'_> {
    Exception { code: "P0001", message }
}

/// Returns PostgreSQL's name of an error code that a cast may have.
fn condition_name(code: &str) -> Option<&'static str> {
    Some(match code {
        "P0001" => "raise_exception",
        "22P02" => "invalid_text_representation",
        "22P05" => "untranslatable_character",
        "22000" => "data_exception",
        "22001" => "string_data_right_truncation",
        "22003" => "numeric_value_out_of_range",
        "22007" => "invalid_datetime_format",
        "22008" => "datetime_field_overflow",
        "22009" => "invalid_time_zone_displacement_value",
        "22021" => "character_not_in_repertoire",
        "22023" => "invalid_parameter_value",
        "22026" => "string_data_length_mismatch",
        "2202E" => "array_subscript_error",
        "22030" => "duplicate_json_object_key_value",
        "22032" => "invalid_json_text",
        "23514" => "check_violation",
        "23502" => "not_null_violation",
        "2200N" => "invalid_xml_content",
        "42501" => "insufficient_privilege",
        "42601" => "syntax_error",
        "42704" => "undefined_object",
        "42804" => "datatype_mismatch",
        "42846" => "cannot_coerce",
        "42883" => "undefined_function",
        "42P18" => "indeterminate_datatype",
        "42P01" => "undefined_table",
        "42P22" => "indeterminate_collation",
        "54000" => "program_limit_exceeded",
        "57014" => "query_canceled",
        "0A000" => "feature_not_supported",
        _ => return None,
    })
}
