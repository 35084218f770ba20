//! `portico serve`: production, on the embedded PostgreSQL or on one by URL.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use portico_base::Clock;
use portico_database::Database;
use portico_database::cluster::{Cluster, ClusterSettings};
use portico_gateway::ServeLimits;
use portico_project::portico_toml::Settings;
use portico_project::{Exposure, LoadOptions, Progress};
use portico_storage::GcOptions;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::capacity::{pool_settings, workers};
use super::folder;
use super::global::Global;
use super::panel::{self, PanelRow};
use super::signals::StopSignals;
use crate::compose::setup::DatabaseSetup;
use crate::compose::{Server, database, keys, production, storage};
use crate::control::{Control, ControlRequest, Reply};
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
    let settings = Settings::load(&project)?;
    let data = options.data.unwrap_or_else(|| settings.database.data.clone());

    // Nothing is written before the whole configuration has passed
    let clock = Clock::system();
    let methods = settings.auth.jwt_valid_methods.as_deref();
    let keys_for = |missing| keys::for_production(&project.config().auth, methods, &data, missing, &clock);
    keys_for(keys::MissingSecrets::Simulate)?;
    let checked = production::check(&project, &settings)?;
    if !settings.auth.users.is_empty() {
        tracing::warn!("[auth.users] in supabase/portico.toml has no effect here: its accounts are for development");
    }
    let url = options.database_url.or_else(|| settings.database.url.as_ref().map(|url| url.expose().to_owned()));
    let direct =
        options.direct_url.or_else(|| settings.database.direct_url.as_ref().map(|url| url.expose().to_owned()));
    let direct = direct.as_deref().map(|direct| ("DIRECT_URL", direct));
    let external = url.map(|url| database::external_endpoint(("DATABASE_URL", &url), direct)).transpose()?;
    if options.check {
        anstream::println!("The configuration is fine.");
        return Ok(());
    }

    let ip = options.bind.or(settings.server.bind).unwrap_or(IpAddr::from([127, 0, 0, 1]));
    let address = SocketAddr::from((ip, options.port.unwrap_or(project.config().api.port)));
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("could not listen on {address} ([server] bind in supabase/portico.toml, or --bind and --port)")
    })?;
    let address = listener.local_addr()?;
    folder::make_data_folder(&data)?;
    let keys = keys_for(keys::MissingSecrets::Create)?;

    let (endpoint, cluster) = match external {
        Some(endpoint) => (database::with_own_logins(&endpoint, &data)?, None),
        None => {
            let cluster_settings = ClusterSettings {
                binaries: settings.database.postgres_bin.clone(),
                parameters: project.config().db.settings.parameters.clone().into_iter().collect(),
                ..ClusterSettings::new(data.join(folder::CLUSTER))
            };
            let cluster = tokio::select! {
                cluster = Cluster::start(cluster_settings) => cluster?,
                () = signals.recv() => return Ok(()),
            };
            (cluster.endpoint(), Some(cluster))
        }
    };
    let exposure = Exposure::of(&project)?;
    let postgresql = match &cluster {
        Some(cluster) => format!("{} from {}", cluster.major_version(), cluster.programs().display()),
        None => "that of DATABASE_URL or [database] url".to_owned(),
    };
    let outcome = async {
        let database = Database::open(&endpoint, pool_settings(&settings))?;
        let mut say = |step| match step {
            Progress::Warning { message } => tracing::warn!("{message}"),
            step => tracing::info!("{step}"),
        };
        DatabaseSetup::production(&project, &database, &exposure).run(false, &mut say).await?;
        if let Some(advice) = database::pooler_advice(&database) {
            tracing::warn!("{advice}");
        }
        let public_url = checked.public_url.clone();
        let trusted_proxies = checked.trusted_proxies.clone();
        let max_connections = checked.max_connections;
        let server = Server::new(checked.describe(&project, &settings, &data, &keys, clock), &database)?;
        server.load_keys().await?;
        storage::seed_missing(server.storage(), &project, &|line| tracing::info!("{line}")).await?;
        let ending = CancellationToken::new();
        let mut limits = ServeLimits {
            drain: settings.server.drain,
            max_connections,
            max_connections_per_address: open_files::max_connections_per_address(
                settings.server.max_connections_per_address,
                max_connections,
            ),
            ..ServeLimits::default()
        };
        // The connections of a proxy belong to many clients
        limits.unlimited_peers.extend(trusted_proxies);
        let (ended, workers) = (ending.clone().cancelled_owned(), workers()?);
        let mut serving =
            tokio::spawn(portico_gateway::serve(listener, server.gateway(), ended, limits, workers.clone()));
        let rows: Vec<PanelRow> = vec![
            ("Web app", public_url.clone()),
            ("Listens on", format!("http://{address}")),
            ("PostgreSQL", postgresql),
            ("New tables", exposure.to_string()),
            ("Publishable", keys.api.publishable().to_owned()),
            ("Secrets", data.join("secrets.json").display().to_string()),
        ];
        if let Some(requests) = database::requests_to_administrator(&database) {
            anstream::println!("\n{requests}");
        }
        panel::print("Portico is ready", started.elapsed(), &rows, "Press Ctrl-C to stop");
        tracing::info!(address = %address, "serving");
        let (calls, mut incoming) = mpsc::channel(4);
        // The server does without the socket where it cannot be made
        let _control = Control::listen(&data, calls).inspect_err(|error| {
            let error = format!("{error:#}");
            tracing::warn!(error = %error, "no control socket for `portico user`");
        });
        loop {
            tokio::select! {
                () = signals.recv() => break,
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
                            () = storage::seed_again(server.storage(), &project, &call.replies) => continue,
                            () = signals.recv() => break,
                        },
                        _ => Reply::Failed { message: "this command is for the development server".to_owned() },
                    };
                    let _ = call.replies.send(reply).await;
                }
                ended = &mut serving => {
                    ended.context("the server ended")??;
                    bail!("the server ended");
                }
            }
        }
        tracing::info!("stopping: no new connections, requests in flight complete");
        ending.cancel();
        server.close_sockets(settings.server.drain);
        let _ = serving.await;
        server.finish().await;
        database.close().await;
        Ok(())
    }
    .await;
    if let Some(cluster) = cluster {
        cluster.stop().await;
    }
    outcome
}
