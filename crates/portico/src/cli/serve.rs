//! `portico serve`: production, on the embedded PostgreSQL or on one by URL.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use portico_base::{Clock, Secret};
use portico_database::cluster::{Cluster, ClusterSettings};
use portico_database::{Database, Endpoint};
use portico_gateway::ServeLimits;
use portico_project::portico_toml::Settings;
use portico_project::{Exposure, LoadOptions, Progress, Project};
use portico_storage::GcOptions;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::capacity::{pool_settings, workers};
use super::folder;
use super::global::Global;
use super::panel::{self, PanelRow};
use super::signals::StopSignals;
use crate::compose::keys::ServerKeys;
use crate::compose::production::CheckedConfiguration;
use crate::compose::setup::DatabaseSetup;
use crate::compose::{Server, database, keys, production, storage};
use crate::control::{Control, ControlCall, ControlRequest, Reply};
use crate::open_files;

#[derive(Debug, Args)]
pub(super) struct ServeOptions {
    /// The folder of secrets and the embedded database [default: portico-data in the project]
    #[arg(long, value_name = "DIR", env = "PORTICO_DATA")]
    data: Option<PathBuf>,
    /// The address to listen on [default: that of supabase/portico.toml, else 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", env = "PORTICO_BIND")]
    bind: Option<IpAddr>,
    /// The port to listen on [default: that of supabase/config.toml, else 54321]
    #[arg(long, env = "PORT")]
    port: Option<u16>,
    /// The database of your own PostgreSQL; without it the embedded one is used
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// The same database past a connection pooler that --database-url leads to
    #[arg(long, value_name = "URL", env = "DIRECT_URL", hide_env_values = true)]
    direct_url: Option<String>,
    /// Check the configuration, say what is wrong with it, and end; nothing is written
    #[arg(long)]
    check: bool,
}

pub(super) async fn run(global: &Global, options: ServeOptions) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut signals = StopSignals::install()?;
    // `.env` files of a developer's machine do not apply to this server
    let stage = "production";
    let project = folder::load(LoadOptions { workdir: global.workdir.clone(), stage, ..LoadOptions::default() })?;
    let settings = folder::settings(&project)?;
    let data = options.data.clone().unwrap_or_else(|| settings.database.data.clone());

    // Nothing is written before the whole configuration has passed
    let clock = Clock::system();
    let methods = settings.auth.jwt_valid_methods.as_deref();
    let keys_for = |missing| keys::for_production(&project.config().auth, methods, &data, missing, &clock);
    keys_for(keys::MissingSecrets::Simulate)?;
    let checked = production::check(&project, &settings)?;
    if !settings.auth.users.is_empty() {
        tracing::warn!("[auth.users] in supabase/portico.toml has no effect here: its accounts are for development");
    }
    let external = external_endpoint(&options, &settings)?;
    if options.check {
        anstream::println!("The configuration is fine.");
        return Ok(());
    }

    let listener = listen(&options, &project, &settings).await?;
    folder::make_data_folder(&data)?;
    let keys = keys_for(keys::MissingSecrets::Create)?;
    let (endpoint, cluster) = match external {
        Some(endpoint) => (database::with_own_logins(&endpoint, &data)?, None),
        None => {
            let cluster = tokio::select! {
                cluster = Cluster::start(cluster_settings(&project, &settings, &data)) => cluster?,
                () = signals.recv() => return Ok(()),
            };
            (cluster.endpoint(), Some(cluster))
        }
    };
    let postgresql = match &cluster {
        Some(cluster) => format!("{} from {}", cluster.major_version(), cluster.programs().display()),
        None => "that of DATABASE_URL or [database] url".to_owned(),
    };
    let exposure = Exposure::of(&project)?;
    let production = Production { project, settings, data, keys, exposure, postgresql, started };
    let outcome = async {
        let database = Database::open(&endpoint, pool_settings(&production.settings))?;
        production.set_up(&database).await?;
        production.serve(&database, checked, clock, listener, &mut signals).await
    }
    .await;
    if let Some(cluster) = cluster {
        cluster.stop().await;
    }
    outcome
}

/// Returns the endpoint of the operator's own PostgreSQL, if the options or the settings name one.
fn external_endpoint(options: &ServeOptions, settings: &Settings) -> anyhow::Result<Option<Endpoint>> {
    let choose = |option: &Option<String>, setting: Option<&Secret>| {
        option.clone().or_else(|| setting.map(|url| url.expose().to_owned()))
    };
    let url = choose(&options.database_url, settings.database.url.as_ref());
    let direct = choose(&options.direct_url, settings.database.direct_url.as_ref());
    let direct = direct.as_deref().map(|direct| ("DIRECT_URL", direct));
    url.map(|url| database::external_endpoint(("DATABASE_URL", &url), direct)).transpose()
}

/// Listens on the address of the options, else on that of the settings.
async fn listen(options: &ServeOptions, project: &Project, settings: &Settings) -> anyhow::Result<TcpListener> {
    let ip = options.bind.or(settings.server.bind).unwrap_or(IpAddr::from([127, 0, 0, 1]));
    let address = SocketAddr::from((ip, options.port.unwrap_or(project.config().api.port)));
    TcpListener::bind(address).await.with_context(|| {
        format!("could not listen on {address} ([server] bind in supabase/portico.toml, or --bind and --port)")
    })
}

fn cluster_settings(project: &Project, settings: &Settings, data: &Path) -> ClusterSettings {
    ClusterSettings {
        binaries: settings.database.postgres_bin.clone(),
        parameters: project.config().db.settings.parameters.clone().into_iter().collect(),
        ..ClusterSettings::new(data.join(folder::CLUSTER))
    }
}

/// The parts of a production server besides its database.
struct Production {
    project: Project,
    settings: Settings,
    data: PathBuf,
    keys: ServerKeys,
    exposure: Exposure,
    /// The description of the PostgreSQL in use, for the panel.
    postgresql: String,
    started: Instant,
}

impl Production {
    /// Brings the schemas and the migrations of the database up to date.
    async fn set_up(&self, database: &Database) -> anyhow::Result<()> {
        let mut say = |step| match step {
            Progress::Warning { message } => tracing::warn!("{message}"),
            step => tracing::info!("{step}"),
        };
        DatabaseSetup::production(&self.project, database, &self.exposure).run(false, &mut say).await?;
        if let Some(advice) = database::pooler_advice(database) {
            tracing::warn!("{advice}");
        }
        Ok(())
    }

    /// Serves until a signal arrives and the requests in flight are complete.
    async fn serve(
        &self,
        database: &Database,
        checked: CheckedConfiguration,
        clock: Clock,
        listener: TcpListener,
        signals: &mut StopSignals,
    ) -> anyhow::Result<()> {
        let address = listener.local_addr()?;
        let public_url = checked.public_url.clone();
        let limits = self.limits(&checked);
        let description = checked.describe(&self.project, &self.settings, &self.data, &self.keys, clock);
        let server = Server::new(description, database)?;
        server.load_keys().await?;
        storage::seed_missing(server.storage(), &self.project, &|line| tracing::info!("{line}")).await?;
        let ending = CancellationToken::new();
        let (ended, workers) = (ending.clone().cancelled_owned(), workers()?);
        let mut serving =
            tokio::spawn(portico_gateway::serve(listener, server.gateway(), ended, limits, workers.clone()));
        if let Some(requests) = database::requests_to_administrator(database) {
            anstream::println!("\n{requests}");
        }
        self.print_panel(public_url, address);
        tracing::info!(address = %address, "serving");
        let (calls, mut incoming) = mpsc::channel(4);
        // The server does without the socket where it cannot be made
        let _control = Control::listen(&self.data, calls).inspect_err(|error| {
            let error = format!("{error:#}");
            tracing::warn!(error = %error, "no control socket for `portico user`");
        });
        self.handle_calls(&server, &mut incoming, &mut serving, signals).await?;
        tracing::info!("stopping: no new connections, requests in flight complete");
        ending.cancel();
        server.close_sockets(self.settings.server.drain);
        let _ = serving.await;
        server.finish().await;
        database.close().await;
        Ok(())
    }

    fn limits(&self, checked: &CheckedConfiguration) -> ServeLimits {
        let settings = &self.settings.server;
        let max_connections = checked.max_connections;
        let mut limits = ServeLimits {
            drain: settings.drain,
            max_connections,
            max_connections_per_address: open_files::max_connections_per_address(
                settings.max_connections_per_address,
                max_connections,
            ),
            ..ServeLimits::default()
        };
        // The connections of a proxy belong to many clients
        limits.unlimited_peers.extend(checked.trusted_proxies.iter().copied());
        limits
    }

    fn print_panel(&self, public_url: String, address: SocketAddr) {
        let rows: Vec<PanelRow> = vec![
            ("Web app", public_url),
            ("Listens on", format!("http://{address}")),
            ("PostgreSQL", self.postgresql.clone()),
            ("New tables", self.exposure.to_string()),
            ("Publishable", self.keys.api.publishable().to_owned()),
            ("Secrets", self.data.join("secrets.json").display().to_string()),
        ];
        panel::print("Portico is ready", self.started.elapsed(), &rows, "Press Ctrl-C to stop");
    }

    /// Handles the calls of the control socket until a signal arrives.
    async fn handle_calls(
        &self,
        server: &Server,
        incoming: &mut mpsc::Receiver<ControlCall>,
        serving: &mut JoinHandle<io::Result<()>>,
        signals: &mut StopSignals,
    ) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                () = signals.recv() => return Ok(()),
                Some(call) = incoming.recv() => {
                    let reply = match call.request {
                        ControlRequest::Accounts { operation } => Reply::from_accounts(server.auth(), operation).await,
                        ControlRequest::CollectGarbage { grace, delete_content, delete_rows } => {
                            let grace = Duration::from_secs(grace);
                            let options = GcOptions { grace, delete_content, delete_rows };
                            storage::collect_garbage(server.storage(), options, call.replies);
                            continue;
                        }
                        ControlRequest::SeedBuckets => tokio::select! {
                            () = storage::seed_again(server.storage(), &self.project, &call.replies) => continue,
                            () = signals.recv() => return Ok(()),
                        },
                        _ => Reply::Failed { message: "this command is for the development server".to_owned() },
                    };
                    let _ = call.replies.send(reply).await;
                }
                ended = &mut *serving => {
                    ended.context("the server ended")??;
                    bail!("the server ended");
                }
            }
        }
    }
}
