//! The slots of a database that is about to be dropped.

use tokio_postgres::Client;

/// Ends the processes that send a database's changes, and waits up to ten seconds until they are
/// gone. `with (force)` does not.
const END: &str = "
    select pg_catalog.pg_terminate_backend(active_pid, 10000)
      from pg_catalog.pg_replication_slots
     where database = $1::text and active_pid is not null";

/// Ends the streams of a database, which could not be dropped otherwise. A stream of another
/// program may return at once.
///
/// # Errors
/// PostgreSQL's error, when the role may not end one of them, or the connection's.
pub(crate) async fn end_streams(client: &Client, database: &str) -> Result<(), tokio_postgres::Error> {
    client.query(END, &[&database]).await.map(drop)
}
