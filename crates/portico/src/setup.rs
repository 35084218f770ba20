//! Bringing the database to where the project wants it: roles and schemas, then vault, migrations and seeds.

use std::time::Duration;

use portico_database::{BootstrapSettings, Database, DatabaseError, Password};
use portico_project::{Exposure, MigrationError, PlanOptions, PrepareOptions, Progress, Project};
use portico_tokens::development;
use tokio::sync::mpsc;

use crate::control::Reply;
use crate::wiring::keys::Keys;

/// Login roles whose password is the published one in development. The superuser is not one of them: SQL
/// can connect to its own server.
const DEVELOPMENT_LOGINS: [&str; 7] = [
    "postgres",
    "authenticator",
    "pgbouncer",
    "supabase_auth_admin",
    "supabase_storage_admin",
    "supabase_replication_admin",
    "supabase_read_only_user",
];

/// A project and the database that it wants set up.
#[derive(Clone)]
pub struct SetUp {
    project: Project,
    database: Database,
    bootstrap: BootstrapSettings,
}

impl SetUp {
    /// For development: logins have the published password, and SQL can read the signing secret as old migrations expect.
    pub fn development(project: &Project, database: &Database, keys: &Keys, exposure: &Exposure) -> Self {
        let login = |role: &str| (role.to_owned(), Password::new(development::DATABASE_PASSWORD));
        let mut set_up = Self::production(project, database, exposure);
        set_up.bootstrap.jwt_secret = Some(Password::new(keys.jwt_secret.expose()));
        // On a server of others these roles, and their passwords, may be another project's
        if database.endpoint().trusts_any_role() {
            set_up.bootstrap.role_passwords = DEVELOPMENT_LOGINS.into_iter().map(login).collect();
        }
        set_up
    }

    /// For production: nobody can log in but through the server's own socket or URL.
    pub fn production(project: &Project, database: &Database, exposure: &Exposure) -> Self {
        let config = project.config();
        let bootstrap = BootstrapSettings {
            auto_expose_new_tables: exposure.of_new_tables,
            jwt_expiry: Duration::from_secs(config.auth.jwt_expiry.into()),
            ..BootstrapSettings::default()
        };
        Self { project: project.clone(), database: database.clone(), bootstrap }
    }

    /// Brings roles and schemas up to date, then applies what is pending of the project; `seed` matters on the first start only.
    ///
    /// # Errors
    /// When the database is not there or a file of the project fails; nothing of a failing file stays.
    pub async fn run(&self, seed: bool, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<(), MigrationError> {
        self.database.bootstrap(&self.bootstrap).await?;
        let mut session = self.database.migrations().await?;
        let options = PrepareOptions { seed, ..PrepareOptions::default() };
        portico_project::prepare(&mut session, &self.project, &options, progress).await?;
        self.database.maintain_message_partitions().await?;
        Ok(())
    }

    /// Returns what a person should know about the database as it is, one line each.
    pub async fn warnings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut note = |step: Progress| lines.push(step.to_string());
        let outcome: Result<(), MigrationError> = async {
            let session = self.database.migrations().await?;
            portico_project::warn_of_unprotected(&session, &self.project, &mut note).await
        }
        .await;
        if let Err(error) = outcome {
            tracing::debug!(%error, "The database could not be looked at");
        }
        lines
    }

    /// Throws the database away and sets it up anew, while the server runs. Says every step and the outcome to `replies`.
    pub async fn reset(&self, version: Option<String>, last: usize, seed: bool, replies: &mpsc::Sender<Reply>) {
        let outcome = self.try_reset(version, last, seed, replies).await;
        let reply = match outcome {
            Ok(()) => Reply::Done { value: serde_json::Value::Null },
            Err(error) => Reply::Failed { message: format!("failed to reset database: {error}") },
        };
        // Who asked may have gone meanwhile.
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
        let say = |line: String| {
            // Never waits: a reader that is slow or gone must not hold the reset up.
            let _ = replies.try_send(Reply::Progress { line });
        };
        let mut progress = |step: Progress| say(step.to_string());
        portico_project::reset(&self.database, &self.bootstrap, &self.project, &options, &mut progress).await?;
        self.database.maintain_message_partitions().await?;
        let branch = portico_project::current_branch(self.project.root());
        say(format!("Finished portico db reset on branch {branch}."));
        Ok(())
    }
}

/// Everything that a server finds in its database on the first start.
///
/// # Errors
/// When the database refuses it.
pub async fn bootstrap_for_tests(database: &Database) -> Result<(), DatabaseError> {
    database.bootstrap(&BootstrapSettings::default()).await?;
    database.maintain_message_partitions().await
}
