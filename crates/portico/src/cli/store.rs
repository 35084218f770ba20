//! The database of a project folder: the embedded PostgreSQL in its data folder, or the server that `portico.toml` names.

use std::path::Path;

use anyhow::Context;
use portico_base::Secret;
use portico_database::Endpoint;
use portico_database::cluster::{Cluster, ClusterSettings};
use portico_project::Project;
use portico_project::portico_toml::Settings;

use super::folder;
use crate::compose::database;

/// The project's PostgreSQL, and the process of it that is ours.
pub(super) struct Store {
    pub(super) endpoint: Endpoint,
    pub(super) cluster: Option<Cluster>,
    /// The URL of the external one, as it is configured.
    pub(super) url: Option<Secret>,
}

impl Store {
    /// Opens the database; starts the embedded one. `tcp_port`: where other programs reach it.
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
            let endpoint = Endpoint::parse(url.expose()).context("[database] url in supabase/portico.toml")?;
            let endpoint = database::with_own_logins(&endpoint, data)?;
            return Ok(Self { endpoint, cluster: None, url: Some(url.clone()) });
        }
        let cluster = Cluster::start(ClusterSettings {
            tcp_port,
            binaries: settings.postgres_bin.clone(),
            parameters: project.config().db.settings.parameters.clone().into_iter().collect(),
            ..ClusterSettings::new(data.join(folder::CLUSTER))
        })
        .await?;
        Ok(Self { endpoint: cluster.endpoint(), cluster: Some(cluster), url: None })
    }

    /// Opens the database of a folder in which no server runs, and that has one.
    ///
    /// # Errors
    /// As [`open`](Self::open), and when the folder has no database yet.
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

    /// Names the PostgreSQL that was found, for a person.
    pub(super) fn description(&self) -> String {
        match &self.cluster {
            Some(cluster) => format!("{} from {}", cluster.major_version(), cluster.programs().display()),
            None => "that of [database] url in supabase/portico.toml".to_owned(),
        }
    }

    /// Stops what was started.
    pub(super) async fn close(self) {
        if let Some(cluster) = self.cluster {
            cluster.stop().await;
        }
    }
}
