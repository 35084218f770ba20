//! Statements on the database of the server under test, beside the server.

use tokio_postgres::types::ToSql;

use super::TestServer;

impl TestServer {
    /// Returns the rows of a query as the superuser.
    ///
    /// # Panics
    /// When PostgreSQL rejects it.
    pub async fn query(&self, sql: &str) -> Vec<tokio_postgres::Row> {
        self.query_with(sql, &[]).await
    }

    /// Returns the rows of a query with parameters, as the superuser.
    ///
    /// # Panics
    /// When PostgreSQL rejects it.
    pub async fn query_with(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Vec<tokio_postgres::Row> {
        self.admin.query(sql, values).await.unwrap_or_else(|error| panic!("{error:?}: {sql}"))
    }

    /// Returns the single number of a query.
    ///
    /// # Panics
    /// When the query returns something else.
    pub async fn count(&self, sql: &str) -> i64 {
        self.query(sql).await[0].get(0)
    }

    /// Runs statements as the superuser.
    ///
    /// # Panics
    /// When PostgreSQL rejects them.
    pub async fn execute(&self, sql: &str) {
        self.admin.batch_execute(sql).await.unwrap_or_else(|error| panic!("{error:?}: {sql}"));
    }

    /// Runs statements as a migration of a project would.
    ///
    /// # Panics
    /// When PostgreSQL rejects them.
    pub async fn migrate(&self, sql: &str) {
        let mut session = self.running().database.migrations().await.expect("a migration session");
        session.batch(sql).await.unwrap_or_else(|error| panic!("{error:?}: {sql}"));
    }

    /// Returns the actions in the audit log, in the order in which they were written: a test never
    /// deletes rows, so those of one moment are in that order.
    ///
    /// # Panics
    /// When the log cannot be read.
    pub async fn actions(&self) -> Vec<String> {
        let sql = "select payload->>'action' from auth.audit_log_entries order by created_at, ctid";
        self.query(sql).await.iter().map(|row| row.get(0)).collect()
    }
}
