//! The publications of a stream: the project's own, and that of `realtime.messages`.

use crate::database::Database;
use crate::error::DatabaseError;
use crate::sqlstate;

/// The publication whose tables the project chooses.
const CHANGES: &str = "supabase_realtime";
/// The publication of `realtime.messages`, which is ours.
const MESSAGES: &str = "supabase_realtime_messages_publication";

/// Selects whether our publication has exactly its table, whether that table exists, and whether
/// the project's publication leaves out generated columns (which PostgreSQL before 18 always does).
const STATE: &str = "
    select exists (
             select from pg_catalog.pg_publication as publication
              where publication.pubname = $2::text and publication.pubinsert and not publication.puballtables
                and not exists (select from pg_catalog.pg_publication_namespace where pnpubid = publication.oid)
                and (select pg_catalog.array_agg(prrelid) from pg_catalog.pg_publication_rel
                      where prpubid = publication.oid and prqual is null and prattrs is null)
                    = array[pg_catalog.to_regclass('realtime.messages')::pg_catalog.oid]
                and (select pg_catalog.count(*) from pg_catalog.pg_publication_rel
                      where prpubid = publication.oid) = 1),
           pg_catalog.to_regclass('realtime.messages') is not null,
           coalesce((select pg_catalog.to_jsonb(publication) ->> 'pubgencols' = 'n'
                       from pg_catalog.pg_publication as publication where publication.pubname = $1::text), false)";
/// Selects the publications that exist.
const EXISTING: &str = "
    select pubname::text from pg_catalog.pg_publication where pubname in ($1::text, $2::text) order by pubname";
/// Publishes the stored generated columns of a table with its other columns.
const PUBLISH_GENERATED: &str = "alter publication supabase_realtime set (publish_generated_columns = stored)";

/// Returns the names of the two publications, as far as they exist, sorted.
///
/// # Errors
/// PostgreSQL's error, or the connection's.
pub async fn existing_publications(client: &tokio_postgres::Client) -> Result<Vec<String>, tokio_postgres::Error> {
    let rows = client.query(EXISTING, &[&CHANGES, &MESSAGES]).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// The two publications, after [`prepare_publications`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedPublications {
    /// The names of those that exist, sorted.
    pub existing: Vec<String>,
    /// The changes that the login role has no right to make. The publications are left as they are.
    pub refused: Vec<RefusedChange>,
}

/// A change of a publication that PostgreSQL refused for lack of a right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedChange {
    /// The name of the publication.
    pub publication: &'static str,
    /// PostgreSQL's error.
    pub reason: String,
}

/// Makes the publication of `realtime.messages` if it is missing, and makes it anew if it lists
/// anything else. The project's is made to include generated columns. Leaves both as they are where
/// the login role has no right to change them.
///
/// # Errors
/// When the database cannot be reached, or PostgreSQL's error.
pub async fn prepare_publications(database: &Database) -> Result<PreparedPublications, DatabaseError> {
    let client = database.guarded_administrator().await?;
    let row = client.query_one(STATE, &[&CHANGES, &MESSAGES]).await?;
    let (is_right, has_table, lacks_generated): (bool, bool, bool) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let mut refused = Vec::new();
    if has_table && !is_right {
        // Statements that are sent together are one transaction
        let make =
            format!("drop publication if exists {MESSAGES}; create publication {MESSAGES} for table realtime.messages");
        refused.extend(refusal(client.batch_execute(&make).await, MESSAGES)?);
    }
    if lacks_generated {
        refused.extend(refusal(client.batch_execute(PUBLISH_GENERATED).await, CHANGES)?);
    }
    Ok(PreparedPublications { existing: existing_publications(&client).await?, refused })
}

/// Returns the refusal of a change for lack of a right.
fn refusal(
    outcome: Result<(), tokio_postgres::Error>,
    publication: &'static str,
) -> Result<Option<RefusedChange>, DatabaseError> {
    match outcome {
        Err(error) if error.code() == Some(&sqlstate::INSUFFICIENT_PRIVILEGE) => {
            let reason = error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
            Ok(Some(RefusedChange { publication, reason }))
        }
        outcome => Ok(outcome.map(|()| None)?),
    }
}
