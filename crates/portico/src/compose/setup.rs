//! Brings the database to the state that the project describes: roles and schemas, then vault,
//! migrations and seeds.

use std::time::Duration;

use portico_database::{BootstrapSettings, Database, DatabaseError, Password, sqlstate};
use portico_project::{Exposure, MigrationError, PlanOptions, PrepareOptions, Progress, Project, Unprotected};
use portico_tokens::development;
use tokio::sync::mpsc;

use super::keys::ServerKeys;
use crate::control::Reply;

/// The login roles that have the published password in development. The superuser is not one of
/// them: SQL can connect to its own server.
const DEVELOPMENT_LOGINS: [&str; 7] = [
    "postgres",
    "authenticator",
    "pgbouncer",
    "supabase_auth_admin",
    "supabase_storage_admin",
    "supabase_replication_admin",
    "supabase_read_only_user",
];

/// The set-up of a database as a project describes it.
#[derive(Clone)]
pub struct DatabaseSetup {
    project: Project,
    database: Database,
    bootstrap: BootstrapSettings,
}

impl DatabaseSetup {
    /// Returns a set-up for development: login roles have the published password, and SQL can read
    /// the signing secret, as older migrations expect.
    pub fn development(project: &Project, database: &Database, keys: &ServerKeys, exposure: &Exposure) -> Self {
        let login = |role: &str| (role.to_owned(), Password::new(development::DATABASE_PASSWORD));
        let mut setup = Self::production(project, database, exposure);
        setup.bootstrap.jwt_secret = Some(Password::new(keys.jwt_secret.expose()));
        // On a shared server these roles and their passwords may belong to another project
        if database.endpoint().trusts_any_role() {
            setup.bootstrap.role_passwords = DEVELOPMENT_LOGINS.into_iter().map(login).collect();
        }
        setup
    }

    /// Returns a set-up for production: no role gets a password, so logins work through the
    /// server's own socket or URL only.
    pub fn production(project: &Project, database: &Database, exposure: &Exposure) -> Self {
        let config = project.config();
        let bootstrap = BootstrapSettings {
            auto_expose_new_tables: exposure.of_new_tables,
            jwt_expiry: Duration::from_secs(config.auth.jwt_expiry.into()),
            ..BootstrapSettings::default()
        };
        Self { project: project.clone(), database: database.clone(), bootstrap }
    }

    /// Brings roles and schemas up to date, and nothing else.
    ///
    /// # Errors
    /// When the database does not respond, or a statement fails.
    pub async fn bootstrap(&self) -> Result<(), DatabaseError> {
        self.database.bootstrap(&self.bootstrap).await
    }

    /// Brings roles and schemas up to date, then applies the pending parts of the project. `seed`
    /// has an effect on the first start only.
    ///
    /// # Errors
    /// When the database does not respond or a file of the project fails; a failing file leaves
    /// nothing behind.
    pub async fn run(&self, seed: bool, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<(), MigrationError> {
        self.database.bootstrap(&self.bootstrap).await?;
        let mut session = self.database.migrations().await?;
        let options = PrepareOptions { seed, ..PrepareOptions::default() };
        portico_project::prepare(&mut session, &self.project, &options, progress).await?;
        match self.database.maintain_message_partitions().await {
            // A backup must not prevent the start: there are partitions for days
            Err(error) if error.sqlstate() == Some(&sqlstate::LOCK_NOT_AVAILABLE) => {
                tracing::warn!(error = %error, "the partitions of messages could not be made yet");
                Ok(())
            }
            outcome => Ok(outcome?),
        }
    }

    /// Returns the tables that the data API exposes without row-level security; `None` also if the
    /// database cannot be inspected.
    pub async fn unprotected(&self) -> Option<Unprotected> {
        let outcome = async {
            let session = self.database.migrations().await?;
            let found = portico_project::unprotected(session.client(), &self.project.config().api.schemas).await?;
            Ok::<_, DatabaseError>(found)
        };
        let outcome = outcome.await;
        outcome
            .inspect_err(|error| tracing::debug!(error = %error, "the database could not be inspected"))
            .ok()
            .flatten()
    }

    /// Drops the database and sets it up again while the server runs, and completes it with
    /// `finish`. Sends each step and the outcome to `replies`.
    pub async fn reset(
        &self,
        version: Option<String>,
        last: usize,
        seed: bool,
        finish: impl Future<Output = anyhow::Result<()>>,
        replies: &mpsc::Sender<Reply>,
    ) {
        let outcome = match self.try_reset(version, last, seed, replies).await {
            Ok(()) => finish.await.map_err(|error| format!("{error:#}")),
            Err(error) => Err(error.to_string()),
        };
        let reply = match outcome {
            Ok(()) => Reply::Done { value: serde_json::Value::Null },
            Err(error) => Reply::Failed { message: format!("failed to reset database: {error}") },
        };
        // The command may have ended meanwhile
        let _ = replies.send(reply).await;
    }

    async fn try_reset(
        &self,
        version: Option<String>,
        last: usize,
        seed: bool,
        replies: &mpsc::Sender<Reply>,
    ) -> Result<(), MigrationError> {
        let plan = PlanOptions { up_to: version, leave_out_last: last, ..PlanOptions::default() };
        let options = PrepareOptions { plan, seed };
        let report = |line: String| {
            // Does not wait: a command that reads slowly or has ended must not delay the reset
            let _ = replies.try_send(Reply::Progress { line });
        };
        let mut progress = |step: Progress| report(step.to_string());
        portico_project::reset(&self.database, &self.bootstrap, &self.project, &options, &mut progress).await?;
        self.database.maintain_message_partitions().await?;
        let branch = portico_project::current_branch(self.project.root());
        report(format!("Finished portico db reset on branch {branch}."));
        Ok(())
    }
}

/// Sets a test's database up as a server finds it after its first start.
///
/// # Errors
/// When a statement fails.
pub async fn bootstrap_for_tests(database: &Database) -> Result<(), DatabaseError> {
    database.bootstrap(&BootstrapSettings::default()).await?;
    database.maintain_message_partitions().await
}
