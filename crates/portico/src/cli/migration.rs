//! `portico migration`: creates and applies migrations, and repairs the migration history.

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use portico_base::Clock;
use portico_database::{Database, Endpoint, MigrationSession, PoolSettings};
use portico_project::migrations::{self, history};
use portico_project::portico_toml::Settings;
use portico_project::{LoadOptions, PlanOptions, Progress, Project, warn_of_edited, warn_of_unprotected};

use super::folder;
use super::global::Global;
use super::store::ProjectPostgres;
use crate::compose::database;
use crate::control::{self, ControlRequest};

/// The longest text that `migration new` reads from standard input, in bytes.
const MAX_PIPED: u64 = 16 * 1024 * 1024;

#[derive(Debug, Subcommand)]
pub(super) enum MigrationCommand {
    /// Make an empty migration, or one with the text of standard input
    New {
        /// A description in a word or two
        name: String,
    },
    /// Show which migrations the database has
    List(MigrationTarget),
    /// Apply pending migrations to the running database
    Up {
        #[command(flatten)]
        target: MigrationTarget,
        /// Apply also files older than the newest applied one
        #[arg(long)]
        include_all: bool,
    },
    /// Change the record of what was applied, without running anything
    Repair {
        #[command(flatten)]
        target: MigrationTarget,
        /// The status to record
        #[arg(long, value_enum)]
        status: RepairedStatus,
        /// Versions, as in the files' names
        #[arg(required = true)]
        versions: Vec<String>,
    },
}

/// The options that choose a database.
#[derive(Debug, clap::Args)]
pub(super) struct MigrationTarget {
    /// Another database than the running development server's
    #[arg(long, value_name = "URL", hide_env_values = true)]
    db_url: Option<String>,
    /// The local database: this is the default
    #[arg(long, conflicts_with = "db_url")]
    local: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RepairedStatus {
    Applied,
    Reverted,
}

pub(super) async fn run(global: &Global, command: MigrationCommand) -> anyhow::Result<()> {
    let project = folder::load(LoadOptions { workdir: global.workdir.clone(), ..LoadOptions::default() })?;
    match command {
        MigrationCommand::New { name } => new(&project, &name),
        MigrationCommand::List(target) => list(global, &project, &target).await,
        MigrationCommand::Up { target, include_all } => up(global, &project, &target, include_all).await,
        MigrationCommand::Repair { target, status, versions } => {
            repair(global, &project, &target, status, &versions).await
        }
    }
}

fn new(project: &Project, name: &str) -> anyhow::Result<()> {
    let mut content = String::new();
    if !std::io::stdin().is_terminal() {
        std::io::stdin().take(MAX_PIPED).read_to_string(&mut content).context("standard input is not text")?;
    }
    let path = migrations::create(project, name, Clock::system().now(), &content)?;
    anstream::println!("Created new migration at {}", path.display());
    Ok(())
}

/// The database that a command acts on.
struct ConnectedDatabase {
    session: MigrationSession,
    store: Option<ProjectPostgres>,
}

impl ConnectedDatabase {
    /// Connects to the database of `--db-url`, to that of the server that runs in this folder, or,
    /// if none runs, to the folder's own, which is started for the command. The server of another
    /// folder is never used, whatever its port is.
    async fn open(global: &Global, project: &Project, target: &MigrationTarget) -> anyhow::Result<Self> {
        let (endpoint, store) = match &target.db_url {
            Some(url) => (Endpoint::parse(url).context("the database's URL")?, None),
            None => {
                anstream::eprintln!("Connecting to local database...");
                let data = folder::data_folder(global)?;
                match running(&data).await? {
                    Some(url) => (Endpoint::parse(&url).context("the database's URL")?, None),
                    None => {
                        let store = ProjectPostgres::open_existing(project, &data).await?;
                        (store.endpoint.clone(), Some(store))
                    }
                }
            }
        };
        let connect = async {
            let endpoint = with_known_logins(global, project, endpoint)?;
            anyhow::Ok(Database::open(&endpoint, PoolSettings::default())?.migrations().await?)
        };
        match connect.await {
            Ok(session) => Ok(Self { session, store }),
            Err(error) => {
                stop(store).await;
                Err(error)
            }
        }
    }

    /// Stops a PostgreSQL that was started for the command, and returns the outcome.
    async fn close<T>(self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        drop(self.session);
        stop(self.store).await;
        outcome
    }
}

async fn stop(store: Option<ProjectPostgres>) {
    if let Some(store) = store {
        store.close().await;
    }
}

/// Adds the login roles that the server of this folder has created, if there are any.
fn with_known_logins(global: &Global, project: &Project, endpoint: Endpoint) -> anyhow::Result<Endpoint> {
    let folders = [folder::data_folder(global)?, Settings::load(project)?.database.data];
    let known = folders.iter().find_map(|data| database::with_known_logins(&endpoint, data).transpose());
    Ok(known.transpose()?.unwrap_or(endpoint))
}

/// Returns the database URL of the server that runs in this folder. Its port may differ from the
/// configured one, which may be 0.
async fn running(data: &Path) -> anyhow::Result<Option<String>> {
    let request = ControlRequest::Status { format: "json".to_owned(), names: Vec::new() };
    let status = match control::call(data, &request, |_| {}).await {
        Err(control::ControlError::NotRunning(_)) => return Ok(None),
        status => status?,
    };
    let status: serde_json::Value = serde_json::from_str(status.as_str().unwrap_or_default())?;
    let url = status.get("DB_URL").and_then(serde_json::Value::as_str);
    Ok(Some(url.context("the running server did not say where its database is")?.to_owned()))
}

async fn list(global: &Global, project: &Project, target: &MigrationTarget) -> anyhow::Result<()> {
    let files = migrations::list(project)?;
    let mut database = ConnectedDatabase::open(global, project, target).await?;
    let outcome = async {
        let applied = history::applied(&mut database.session).await?;
        warn_of_edited(&mut database.session, &files.migrations, &mut progress).await?;
        anyhow::Ok(applied)
    };
    let applied = outcome.await;
    let rows = history::compare(&files.migrations, &database.close(applied).await?);
    let cell = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let width = |length: usize| length.max(14);
    let local = width(rows.iter().filter_map(|row| row.local.as_ref().map(String::len)).max().unwrap_or(0));
    let remote = width(rows.iter().filter_map(|row| row.remote.as_ref().map(String::len)).max().unwrap_or(0));
    anstream::println!("  {:local$} │ {:remote$} │ Time (UTC)", "Local", "Remote");
    anstream::println!("  {0:─<local$}─┼─{0:─<remote$}─┼─{0:─<19}", "");
    for row in rows {
        let (local_cell, remote_cell) = (cell(row.local.as_deref()), cell(row.remote.as_deref()));
        anstream::println!("  {local_cell:local$} │ {remote_cell:remote$} │ {}", row.time);
    }
    Ok(())
}

async fn up(global: &Global, project: &Project, target: &MigrationTarget, include_all: bool) -> anyhow::Result<()> {
    let files = migrations::list(project)?;
    let mut database = ConnectedDatabase::open(global, project, target).await?;
    let session = &mut database.session;
    let outcome = async {
        let applied = history::applied(session).await?;
        let options = PlanOptions { include_all, ..PlanOptions::default() };
        let pending = migrations::plan(&files.migrations, &applied, &options)?;
        migrations::apply(session, pending, &mut progress).await?;
        warn_of_edited(session, &files.migrations, &mut progress).await?;
        warn_of_unprotected(session, project, &mut progress).await?;
        anyhow::Ok(())
    };
    let outcome = outcome.await;
    database.close(outcome).await?;
    anstream::println!("Local database is up to date.");
    Ok(())
}

fn progress(step: Progress) {
    folder::say(&step.to_string());
}

async fn repair(
    global: &Global,
    project: &Project,
    target: &MigrationTarget,
    status: RepairedStatus,
    versions: &[String],
) -> anyhow::Result<()> {
    let files = migrations::list(project)?;
    let named = |version: &String| {
        let found = files.migrations.iter().find(|file| file.version == *version);
        found.with_context(|| format!("glob supabase/migrations/{version}_*.sql: file does not exist"))
    };
    let mut database = ConnectedDatabase::open(global, project, target).await?;
    let session = &mut database.session;
    let outcome = async {
        anyhow::Ok(match status {
            RepairedStatus::Applied => {
                let named = versions.iter().map(named).collect::<anyhow::Result<Vec<_>>>()?;
                history::mark_applied(session, &named).await?;
                "applied"
            }
            RepairedStatus::Reverted => {
                history::mark_reverted(session, versions).await?;
                "reverted"
            }
        })
    };
    let outcome = outcome.await;
    let word = database.close(outcome).await?;
    anstream::println!("Repaired migration history: [{}] => {word}", versions.join(" "));
    anstream::println!("Finished portico migration repair.");
    Ok(())
}
