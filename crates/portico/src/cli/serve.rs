//! `portico serve`: production, on the embedded PostgreSQL or on one by URL.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use portico_base::Clock;
use portico_database::cluster::{Cluster, ClusterSettings};
use portico_database::{Database, Endpoint};
use portico_gateway::{KeyPolicy, ServeLimits};
use portico_project::portico_toml::Settings;
use portico_project::{Exposure, LoadOptions, Progress};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::panel::{self, Row};
use super::signals::EndSignals;
use super::{Global, folder, pool_settings};
use crate::open_files;
use crate::setup::SetUp;
use crate::wiring::{auth, brand, database, keys, mail, page, rest, safety, texts, unsupported};
use crate::{Server, ServerSettings};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Where secrets and the embedded database are kept [default: portico-data in the project]
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
    /// Check the configuration, say what is wrong with it, and end; nothing is written
    #[arg(long)]
    check: bool,
}

pub(super) async fn run(global: &Global, options: Options) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut signals = EndSignals::install()?;
    // Files of a developer's machine are none of this server's
    let stage = "production";
    let project = folder::load(LoadOptions { workdir: global.workdir.clone(), stage, ..LoadOptions::default() })?;
    let settings = Settings::load(&project)?;
    let data = options.data.unwrap_or_else(|| settings.database.data.clone());

    // Nothing is written before the whole configuration has passed
    let clock = Clock::system();
    let methods = settings.auth.jwt_valid_methods.as_deref();
    let keys_for = |missing| keys::for_production(&project.config().auth, methods, &data, missing, &clock);
    keys_for(keys::Missing::Imagine)?;
    let public_url = safety::public_url(&settings)?;
    let mut auth_settings = auth::settings(project.config());
    auth::add(&mut auth_settings, &settings.auth);
    auth::at_public_url(&mut auth_settings, project.config(), &public_url);
    auth_settings.rate_limits.per_address = true;
    let mut problems = safety::problems(project.config(), &auth_settings);
    problems.extend(safety::unset(project.warnings()));
    if !problems.is_empty() {
        bail!("this configuration is not safe in production:\n  - {}", problems.join("\n  - "));
    }
    unsupported::refuse(project.config())?;
    let text_delivery = match &project.config().auth.sms.provider {
        Some(provider) => Some(texts::gateway(provider, &settings.texts, &auth_settings, false)?),
        None => {
            texts::none(&mut auth_settings);
            None
        }
    };
    let mark = brand::Mark::read(settings.web.brand.mark.as_deref())?;
    auth_settings.validate().context("the settings of [auth] can not work")?;
    let trusted_proxies = safety::networks(&settings.server.trusted_proxies)?;
    let delivery = match &project.config().auth.email.smtp {
        Some(smtp) => mail::smtp(smtp)?,
        None => mail::none(),
    };
    let url = options.database_url.or_else(|| settings.database.url.as_ref().map(|url| url.expose().to_owned()));
    let external = url.map(|url| Endpoint::parse(&url).context("DATABASE_URL")).transpose()?;
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
    let keys = keys_for(keys::Missing::Make)?;

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
        SetUp::production(&project, &database, &exposure).run(false, &mut say).await?;
        let mark_path = mark.as_ref().map(brand::Mark::path);
        let page = page::config(page::Facts {
            publishable_key: keys.api.publishable(),
            mailbox: None,
            development: false,
            web: &settings.web,
            mark: mark_path.as_deref(),
            auth: &auth_settings,
        });
        let server = Server::new(
            ServerSettings {
                auth: auth_settings,
                rest: rest::settings(project.config(), &public_url, settings.database.pool_size as usize, false),
                page,
                keys: keys.clone(),
                key_policy: KeyPolicy::Hosted,
                mail: delivery,
                texts: text_delivery,
                trusted_proxies: trusted_proxies.clone(),
                https: public_url.starts_with("https://"),
                development: false,
                secret_key_pages: None,
                mounts: mark.map(brand::Mark::mount).into_iter().collect(),
                clock,
            },
            &database,
        )?;
        let ending = CancellationToken::new();
        let max_connections = open_files::max_connections(settings.server.max_connections);
        let mut limits = ServeLimits {
            drain: settings.server.drain,
            max_connections,
            max_connections_per_address: open_files::max_connections_per_address(
                settings.server.max_connections_per_address,
                max_connections,
            ),
            ..ServeLimits::default()
        };
        // A proxy's connections are many people's
        limits.unlimited_peers.extend(trusted_proxies.iter().copied());
        let (ended, workers) = (ending.clone().cancelled_owned(), super::workers()?);
        let mut serving =
            tokio::spawn(portico_gateway::serve(listener, server.gateway(), ended, limits, workers.clone()));
        let rows: Vec<Row> = vec![
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
        tracing::info!(%address, "Serving");
        tokio::select! {
            () = signals.recv() => {}
            ended = &mut serving => {
                ended.context("the server ended")??;
                bail!("the server ended");
            }
        }
        tracing::info!("Ending: no new connections, requests in flight are finished");
        ending.cancel();
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
