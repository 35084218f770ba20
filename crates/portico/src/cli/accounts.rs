//! The account service that a command acts on: that of the running server, or one of the command's
//! own on the project's database.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use portico_auth::{AccountCommand, Auth};
use portico_base::Clock;
use portico_database::{Database, Endpoint, PoolSettings};
use portico_project::portico_toml::Settings;
use portico_project::{Exposure, LoadOptions, Project};
use serde_json::Value;

use super::folder;
use super::global::Global;
use super::store::ProjectPostgres;
use crate::compose::setup::DatabaseSetup;
use crate::compose::{auth, database, keys};
use crate::control::{self, ControlError, ControlRequest};

/// The options that choose a server or a database.
#[derive(Debug, Args)]
pub(super) struct AccountsTarget {
    /// The data folder of the server [default: that of the running one, else the development
    /// server's]
    #[arg(long, global = true, value_name = "DIR", env = "PORTICO_DATA")]
    data: Option<PathBuf>,
    /// The database itself, in place of a server
    #[arg(long, global = true, value_name = "URL", hide_env_values = true)]
    db_url: Option<String>,
}

/// The accounts of a project.
pub(super) enum ProjectAccounts {
    /// Those of the server that runs with this data folder.
    Running(PathBuf),
    /// Those of a database.
    Own(Box<OwnService>),
}

/// An account service of this process.
pub(super) struct OwnService {
    auth: Auth,
    database: Database,
    /// The PostgreSQL that was started for the command.
    store: Option<ProjectPostgres>,
}

impl ProjectAccounts {
    /// Finds the running server, or starts the project's database.
    ///
    /// # Errors
    /// When there is no database yet, or it does not start.
    pub(super) async fn open(global: &Global, target: &AccountsTarget) -> anyhow::Result<Self> {
        let project = |stage: &'static str| {
            let options = LoadOptions { workdir: global.workdir.clone(), ..LoadOptions::default() };
            folder::load(if stage.is_empty() { options } else { LoadOptions { stage, ..options } })
        };
        if let Some(url) = &target.db_url {
            let (project, endpoint) = (project("")?, Endpoint::parse(url).context("the database's URL")?);
            let folders = [folder::data_folder(global)?, Settings::load(&project)?.database.data];
            let known = folders.iter().find_map(|data| database::with_known_logins(&endpoint, data).transpose());
            return Self::on_database(&project, &known.transpose()?.unwrap_or(endpoint), None);
        }
        let development = folder::data_folder(global)?;
        if let Some(data) = &target.data {
            if control::running(data).await.is_some() {
                return Ok(Self::Running(data.clone()));
            }
            let stage = if *data == development { Stage::Development } else { Stage::Production };
            return Self::start(&project(stage.name())?, data, stage).await;
        }
        let here = project("")?;
        let production = Settings::load(&here)?.database.data;
        match (control::running(&development).await, control::running(&production).await) {
            (Some(_), Some(_)) => bail!(
                "two servers run in this folder: choose one with --data {} or --data {}",
                development.display(),
                production.display()
            ),
            (Some(_), None) => Ok(Self::Running(development)),
            (None, Some(_)) => Ok(Self::Running(production)),
            (None, None) if !has_database(&development) && production.exists() => {
                Self::start(&project(Stage::Production.name())?, &production, Stage::Production).await
            }
            (None, None) => Self::start(&here, &development, Stage::Development).await,
        }
    }

    /// Starts the PostgreSQL of a data folder in which no server runs, or connects to the external
    /// one.
    async fn start(project: &Project, data: &Path, stage: Stage) -> anyhow::Result<Self> {
        let store = ProjectPostgres::open_existing(project, data).await?;
        // Other servers, of another version, may use an external one
        if store.cluster.is_some()
            && let Err(error) = bring_up_to_date(project, &store.endpoint, stage).await
        {
            store.close().await;
            return Err(error);
        }
        let endpoint = store.endpoint.clone();
        Self::on_database(project, &endpoint, Some(store))
    }

    fn on_database(project: &Project, endpoint: &Endpoint, store: Option<ProjectPostgres>) -> anyhow::Result<Self> {
        let database = Database::open(endpoint, PoolSettings::default())?;
        let auth = auth::for_commands(project, &Settings::load(project)?, &database)?;
        Ok(Self::Own(Box::new(OwnService { auth, database, store })))
    }

    /// Runs a command, and stops what was started for it.
    ///
    /// # Errors
    /// The reason for which the command was rejected or failed.
    pub(super) async fn run(self, command: AccountCommand) -> anyhow::Result<Value> {
        match self {
            Self::Running(data) => {
                match control::call(&data, &ControlRequest::Accounts { operation: command }, folder::say).await {
                    Err(ControlError::Failed(message)) => Err(anyhow::Error::msg(message)),
                    answer => Ok(answer?),
                }
            }
            Self::Own(own) => {
                let OwnService { auth, database, store } = *own;
                let outcome = auth.administer(command).await;
                drop(auth);
                database.close().await;
                if let Some(store) = store {
                    store.close().await;
                }
                Ok(outcome?)
            }
        }
    }
}

/// The kind of server that a data folder belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Development,
    Production,
}

impl Stage {
    /// Returns the name of the environment files that apply; empty for the default.
    const fn name(self) -> &'static str {
        match self {
            Self::Development => "",
            Self::Production => "production",
        }
    }
}

/// Brings roles and schemas up to those of this version, as the start of the server would: the data
/// folder may be of an earlier one.
async fn bring_up_to_date(project: &Project, endpoint: &Endpoint, stage: Stage) -> anyhow::Result<()> {
    let exposure = Exposure::of(project)?;
    let database = Database::open(endpoint, PoolSettings::default())?;
    let setup = match stage {
        Stage::Development => {
            let settings = Settings::load(project)?;
            let methods = settings.auth.jwt_valid_methods.as_deref();
            let keys = keys::for_development(&project.config().auth, methods, &Clock::system())?;
            DatabaseSetup::development(project, &database, &keys, &exposure)
        }
        Stage::Production => DatabaseSetup::production(project, &database, &exposure),
    };
    let outcome = setup.bootstrap().await;
    database.close().await;
    Ok(outcome?)
}

fn has_database(data: &Path) -> bool {
    data.join(folder::CLUSTER).exists()
}
