//! The PostgreSQL of a project folder: the embedded one in its data folder, or the server that
//! `portico.toml` names.

use std::path::Path;

use portico_base::Secret;
use portico_database::Endpoint;
use portico_database::cluster::{Cluster, ClusterSettings};
use portico_project::Project;
use portico_project::portico_toml::{DatabaseSettings, Settings};

use super::folder;
use crate::compose::database;

/// The PostgreSQL of a project, with its process if it is the embedded one.
pub(super) struct ProjectPostgres {
    pub(super) endpoint: Endpoint,
    pub(super) cluster: Option<Cluster>,
    /// The configured URL of an external PostgreSQL.
    pub(super) url: Option<Secret>,
}

impl ProjectPostgres {
    /// Returns the external PostgreSQL, or starts the embedded one. Other programs reach it at
    /// `tcp_port`.
    ///
    /// # Errors
    /// When PostgreSQL does not start, or the URL is wrong.
    pub(super) async fn open(
        project: &Project,
        settings: &Settings,
        data: &Path,
        tcp_port: Option<u16>,
    ) -> anyhow::Result<Self> {
        let settings = &settings.database;
        if let Some(url) = &settings.url {
            let direct = settings.direct_url.as_ref();
            let endpoint = database::external_endpoint(
                ("[database] url in supabase/portico.toml", url.expose()),
                direct.map(|direct| ("[database] direct_url in supabase/portico.toml", direct.expose())),
            )?;
            let endpoint = database::with_own_logins(&endpoint, data)?;
            return Ok(Self { endpoint, cluster: None, url: Some(url.clone()) });
        }
        Self::start(project, settings, data, tcp_port).await
    }

    /// Returns the embedded PostgreSQL of the server that runs with a data folder, or starts it.
    ///
    /// # Errors
    /// When PostgreSQL does not start.
    pub(super) async fn join_embedded(project: &Project, settings: &Settings, data: &Path) -> anyhow::Result<Self> {
        match Cluster::endpoint_of_running(&data.join(folder::CLUSTER)) {
            Some(endpoint) => Ok(Self::external(endpoint)),
            None => Self::start(project, &settings.database, data, None).await,
        }
    }

    /// Returns a PostgreSQL that another program runs.
    pub(super) fn external(endpoint: Endpoint) -> Self {
        Self { endpoint, cluster: None, url: None }
    }

    async fn start(
        project: &Project,
        settings: &DatabaseSettings,
        data: &Path,
        tcp_port: Option<u16>,
    ) -> anyhow::Result<Self> {
        let cluster = Cluster::start(ClusterSettings {
            tcp_port,
            binaries: settings.postgres_bin.clone(),
            parameters: project.config().db.settings.parameters.clone().into_iter().collect(),
            ..ClusterSettings::new(data.join(folder::CLUSTER))
        })
        .await?;
        Ok(Self { endpoint: cluster.endpoint(), cluster: Some(cluster), url: None })
    }

    /// Like [`open`](Self::open), but for a folder in which no server runs.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and when the folder has no database yet.
    pub(super) async fn open_existing(project: &Project, data: &Path) -> anyhow::Result<Self> {
        let settings = Settings::load(project)?;
        if settings.database.url.is_none() && !data.join(folder::CLUSTER).exists() {
            anyhow::bail!(
                "{} has no database yet: start it with `portico dev`, or name another one with --db-url",
                project.root().display()
            );
        }
        Self::open(project, &settings, data, None).await
    }

    /// Returns a description of the PostgreSQL for the start panel.
    pub(super) fn description(&self) -> String {
        match &self.cluster {
            Some(cluster) => format!("{} from {}", cluster.major_version(), cluster.programs().display()),
            None => "that of [database] url in supabase/portico.toml".to_owned(),
        }
    }

    /// Stops the embedded PostgreSQL.
    pub(super) async fn close(self) {
        if let Some(cluster) = self.cluster {
            cluster.stop().await;
        }
    }
}
