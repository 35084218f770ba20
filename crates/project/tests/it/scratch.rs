//! A database for each test, with the roles and schemas that a project finds.

use portico_database::scratch::{self, clone_database, drop_database, fresh_name, shared_cluster};
use portico_database::{BootstrapSettings, Database, Endpoint, MigrationSession, PoolSettings};
use portico_project::{MigrationError, PrepareOptions, PreparedDatabase, Progress, prepare};
use tokio::sync::OnceCell;

use crate::folder::Folder;

pub struct Scratch {
    pub database: Database,
    admin: Endpoint,
    name: String,
}

/// Created once in this process: another build may bootstrap differently.
static TEMPLATE: OnceCell<String> = OnceCell::const_new();

impl Scratch {
    pub async fn new() -> Self {
        let admin = shared_cluster().await.unwrap().endpoint();
        let template = TEMPLATE
            .get_or_init(|| async {
                let name = fresh_name();
                scratch::template(&admin, &name, |endpoint| async move {
                    let database = Database::open(&endpoint, PoolSettings::default())?;
                    database.bootstrap(&BootstrapSettings::default()).await?;
                    database.close().await;
                    Ok(())
                })
                .await
                .unwrap();
                name
            })
            .await;
        let name = fresh_name();
        let endpoint = clone_database(&admin, template, &name).await.unwrap();
        Self { database: Database::open(&endpoint, PoolSettings::default()).unwrap(), admin, name }
    }

    pub async fn session(&self) -> MigrationSession {
        self.database.migrations().await.unwrap()
    }

    /// Prepares the database for a folder as a start does. Returns the progress lines too.
    pub async fn prepare(&self, folder: &Folder) -> (Result<PreparedDatabase, MigrationError>, Vec<String>) {
        self.prepare_with(folder, &PrepareOptions::default()).await
    }

    pub async fn prepare_with(
        &self,
        folder: &Folder,
        options: &PrepareOptions,
    ) -> (Result<PreparedDatabase, MigrationError>, Vec<String>) {
        let mut lines = Vec::new();
        let mut session = self.session().await;
        let mut note = |progress: Progress| lines.push(progress.to_string());
        let outcome = prepare(&mut session, &folder.load(), options, &mut note).await;
        (outcome, lines)
    }

    /// Prepares and expects success.
    pub async fn start(&self, folder: &Folder) -> PreparedDatabase {
        let (outcome, lines) = self.prepare(folder).await;
        outcome.unwrap_or_else(|error| panic!("{error}\n{lines:?}"))
    }

    /// Returns the first column of a query's rows, as text.
    pub async fn texts(&self, sql: &str) -> Vec<String> {
        let session = self.session().await;
        let rows = session.client().query(sql, &[]).await.unwrap();
        rows.into_iter().map(|row| row.get(0)).collect()
    }

    pub async fn has(&self, relation: &str) -> bool {
        self.texts(&format!("select coalesce(to_regclass('{relation}')::text, '')")).await != [""]
    }

    pub async fn drop(self) {
        self.database.close().await;
        drop_database(&self.admin, &self.name).await.unwrap();
    }
}
