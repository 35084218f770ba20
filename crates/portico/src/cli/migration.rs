//! `portico migration`: new files, what was applied, and mending the record of it.

use std::io::{IsTerminal, Read};

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use portico_database::{Database, Endpoint, MigrationSession, PoolSettings};
use portico_project::migrations::{self, history};
use portico_project::portico_toml::Settings;
use portico_project::{LoadOptions, PlanOptions, Project};
use portico_tokens::{Clock, development};

use super::{Global, folder};
use crate::control::{self, Request};
use crate::wiring::database;

/// The longest text that `migration new` takes from standard input, in bytes.
const MAX_PIPED: u64 = 16 * 1024 * 1024;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make an empty migration, or one with the text of standard input
    New {
        /// What it does, in a word or two
        name: String,
    },
    /// Show which migrations the database has
    List(Target),
    /// Apply pending migrations to the running database
    Up {
        #[command(flatten)]
        target: Target,
        /// Apply also files older than the newest applied one
        #[arg(long)]
        include_all: bool,
    },
    /// Change the record of what was applied, without running anything
    Repair {
        #[command(flatten)]
        target: Target,
        /// What the record shall say
        #[arg(long, value_enum)]
        status: Repaired,
        /// Versions, as in the files' names
        #[arg(required = true)]
        versions: Vec<String>,
    },
}

/// Which database.
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// Another database than the running development server's
    #[arg(long, value_name = "URL", hide_env_values = true)]
    db_url: Option<String>,
    /// The local database: this is the default
    #[arg(long, conflicts_with = "db_url")]
    local: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Repaired {
    Applied,
    Reverted,
}

pub(super) async fn run(global: &Global, command: Command) -> anyhow::Result<()> {
    let project = folder::load(LoadOptions { workdir: global.workdir.clone(), ..LoadOptions::default() })?;
    match command {
        Command::New { name } => new(&project, &name),
        Command::List(target) => list(global, &project, &target).await,
        Command::Up { target, include_all } => up(global, &project, &target, include_all).await,
        Command::Repair { target, status, versions } => repair(global, &project, &target, status, &versions).await,
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

async fn connect(global: &Global, project: &Project, target: &Target) -> anyhow::Result<MigrationSession> {
    let url = match &target.db_url {
        Some(url) => url.clone(),
        // Without a server this says where the database was looked for
        None => running(global).await.unwrap_or_else(|| {
            let (password, port) = (development::DATABASE_PASSWORD, project.config().db.port);
            format!("postgresql://postgres:{password}@127.0.0.1:{port}/postgres")
        }),
    };
    let endpoint = Endpoint::parse(&url).context("the database's URL")?;
    if target.db_url.is_none() {
        anstream::eprintln!("Connecting to local database...");
    }
    // The login roles that the server of this folder has made, if it has made any
    let folders = [folder::data_folder(global)?, Settings::load(project)?.database.data];
    let known = folders.iter().find_map(|data| database::with_known_logins(&endpoint, data).transpose());
    let endpoint = known.transpose()?.unwrap_or(endpoint);
    let database = Database::open(&endpoint, PoolSettings::default())?;
    Ok(database.migrations().await?)
}

/// Where the database of the server is that runs in this folder: its port need not be the configured one, which may be 0 or taken.
async fn running(global: &Global) -> Option<String> {
    let data = folder::data_folder(global).ok()?;
    let request = Request::Status { format: "json".to_owned(), names: Vec::new() };
    let status = control::call(&data, &request, |_| {}).await.ok()?;
    let status: serde_json::Value = serde_json::from_str(status.as_str()?).ok()?;
    Some(status.get("DB_URL")?.as_str()?.to_owned())
}

async fn list(global: &Global, project: &Project, target: &Target) -> anyhow::Result<()> {
    let files = migrations::list(project)?;
    let mut session = connect(global, project, target).await?;
    let rows = history::compare(&files.migrations, &history::applied(&mut session).await?);
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

async fn up(global: &Global, project: &Project, target: &Target, include_all: bool) -> anyhow::Result<()> {
    let files = migrations::list(project)?;
    let mut session = connect(global, project, target).await?;
    let applied = history::applied(&mut session).await?;
    let options = PlanOptions { include_all, ..PlanOptions::default() };
    let pending = migrations::plan(&files.migrations, &applied, &options)?;
    migrations::apply(&mut session, pending, &mut |step| anstream::eprintln!("{step}")).await?;
    anstream::println!("Local database is up to date.");
    Ok(())
}

async fn repair(
    global: &Global,
    project: &Project,
    target: &Target,
    status: Repaired,
    versions: &[String],
) -> anyhow::Result<()> {
    let mut session = connect(global, project, target).await?;
    let word = match status {
        Repaired::Applied => {
            let files = migrations::list(project)?;
            let named = versions.iter().map(|version| {
                let found = files.migrations.iter().find(|file| file.version == *version);
                found.with_context(|| format!("glob supabase/migrations/{version}_*.sql: file does not exist"))
            });
            history::mark_applied(&mut session, &named.collect::<anyhow::Result<Vec<_>>>()?).await?;
            "applied"
        }
        Repaired::Reverted => {
            history::mark_reverted(&mut session, versions).await?;
            "reverted"
        }
    };
    anstream::println!("Repaired migration history: [{}] => {word}", versions.join(" "));
    anstream::println!("Finished portico migration repair.");
    Ok(())
}
