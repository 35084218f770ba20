//! `portico dev`: everything an app needs, in a project folder, until Ctrl-C.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use portico_auth::AuthSettings;
use portico_base::{AllowedOrigins, Clock};
use portico_database::Database;
use portico_emulators::{Development, Mailbox};
use portico_gateway::{KeyPolicy, ServeLimits};
use portico_project::portico_toml::Settings;
use portico_project::status::StatusValues;
use portico_project::{Exposure, LoadOptions, Progress, Project};
use portico_tokens::development as well_known;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::panel::{self, Row};
use super::signals::EndSignals;
use super::store::Store;
use super::{Global, folder, pool_settings, status};
use crate::control::{self, Control, Reply, Request};
use crate::open_files;
use crate::setup::SetUp;
use crate::wiring::{auth, brand, database, google, keys, mail, page, rest, texts, unsupported};
use crate::{Mount, Server, ServerSettings};

/// How long requests in flight may take once the server is asked to end.
const DRAIN: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Do not run the seed files on the first start
    #[arg(long)]
    no_seed: bool,
}

pub(super) async fn run(global: &Global, options: Options) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut signals = EndSignals::install()?;
    if let Some(process) = control::running(&folder::data_folder(global)?).await {
        bail!(
            "a Portico server runs in this folder already (process {process}): `portico status` shows its addresses, and `portico \
             stop` ends it"
        );
    }
    let (project, api, mailbox_listener) = open_ports(global).await?;
    let settings = Settings::load(&project)?;
    let data = project.root().join(".portico");
    folder::make_development_folder(&data)?;

    let clock = Clock::system();
    let origin = project.config().api.external_url.clone();
    let keys = keys::for_development(&project.config().auth, settings.auth.jwt_valid_methods.as_deref(), &clock)?;
    let store = tokio::select! {
        store = Store::open(&project, &settings, &data, Some(project.config().db.port)) => store?,
        () = signals.recv() => return Ok(()),
    };
    let exposure = Exposure::of(&project)?;
    let outcome = async {
        let database = Database::open(&store.endpoint, pool_settings(&settings))?;
        let set_up = SetUp::development(&project, &database, &keys, &exposure);
        let mut say = |step: Progress| folder::say(&step.to_string());
        tokio::select! {
            outcome = set_up.run(!options.no_seed, &mut say) => outcome?,
            () = signals.recv() => return Ok(None),
        }

        let witness = Development::confirm();
        let mut auth_settings = auth::settings(project.config());
        auth::add(&mut auth_settings, &settings.auth);
        for warning in unsupported::warnings(project.config()) {
            folder::say(&format!("WARN: {warning}"));
        }
        auth_settings.allow_insecure_loopback_providers = true;
        auth_settings.rate_limits.per_address = false;
        auth_settings.rate_limits.passwords = false;
        // The same machine has two names, and people use both.
        auth_settings.redirect_allow_list.push(format!("http://localhost:{}/**", api.1.port()));
        let mailbox = Mailbox::new(witness, portico_emulators::MailboxLimits::default());
        let delivery = match &project.config().auth.email.smtp {
            Some(smtp) => mail::smtp(smtp)?,
            None => {
                auth_settings.rate_limits.emails = None;
                mailbox.transport()
            }
        };
        let text_delivery = match &project.config().auth.sms.provider {
            Some(provider) => texts::gateway(provider, &settings.texts, &auth_settings, true)?,
            None => {
                auth_settings.rate_limits.texts = None;
                texts::inbox(mailbox.clone())
            }
        };
        let pages = own_pages(&origin, &auth_settings, settings.server.public_url.as_deref());
        let mut mounts: Vec<Mount> = Vec::new();
        if google::is_emulated(&auth_settings, settings.emulators.google) {
            let accounts = Some(data.join("google-accounts.json"));
            mounts.push(google::emulate(witness, &mut auth_settings, &origin, accounts, &clock, pages.clone())?);
        }
        let mark = brand::Mark::read(settings.web.brand.mark.as_deref())?;
        let mark_path = mark.as_ref().map(brand::Mark::path);
        mounts.extend(mark.map(brand::Mark::mount));
        let mailbox_url = mailbox_listener.as_ref().map(|(_, address)| format!("http://{address}"));
        let page = page::config(page::Facts {
            publishable_key: keys.api.publishable(),
            mailbox: mailbox_url.as_deref(),
            development: true,
            web: &settings.web,
            mark: mark_path.as_deref(),
            auth: &auth_settings,
        });
        let server = Server::new(
            ServerSettings {
                auth: auth_settings,
                rest: rest::settings(project.config(), &origin, settings.database.pool_size as usize, true),
                keys: keys.clone(),
                key_policy: KeyPolicy::Development,
                mail: delivery,
                texts: Some(text_delivery),
                page,
                trusted_proxies: Vec::new(),
                https: false,
                development: true,
                secret_key_pages: Some(pages),
                mounts,
                clock: clock.clone(),
            },
            &database,
        )?;

        let ending = CancellationToken::new();
        let max_connections = open_files::max_connections(settings.server.max_connections);
        let max_connections_per_address =
            open_files::max_connections_per_address(settings.server.max_connections_per_address, max_connections);
        let limits =
            || ServeLimits { drain: DRAIN, max_connections, max_connections_per_address, ..ServeLimits::default() };
        let mut serving = tokio::task::JoinSet::new();
        let workers = super::workers()?;
        let ended = || ending.clone().cancelled_owned();
        serving.spawn(portico_gateway::serve(api.0, server.gateway(), ended(), limits(), workers.clone()));
        if let Some((listener, _)) = mailbox_listener {
            let router = mailbox_router(&mailbox, &origin, &project.config().auth.site_url);
            serving.spawn(portico_gateway::serve(listener, router, ended(), limits(), workers.clone()));
        }
        let _smtp = listen_for_mail(&project, &mailbox).await?;

        let values = status_values(&project, &keys, &store, mailbox_url.as_deref());
        let (calls, mut incoming) = mpsc::channel(4);
        let control = Control::listen(&data, calls)?;
        if let Some(requests) = database::requests_to_administrator(&database) {
            anstream::println!("\n{requests}");
        }
        print_panel(&values, mailbox_url.is_some(), &store, &exposure, started.elapsed());

        let mut stopping = None;
        loop {
            tokio::select! {
                () = signals.recv() => break,
                Some(call) = incoming.recv() => match call.request {
                    Request::Status { format, names } => {
                        for line in set_up.warnings().await {
                            let _ = call.replies.send(Reply::Progress { line }).await;
                        }
                        let reply = match status::render(&values, &format, &names) {
                            Ok(text) => Reply::Done { value: text.into() },
                            Err(message) => Reply::Failed { message },
                        };
                        let _ = call.replies.send(reply).await;
                    }
                    Request::Stop => {
                        stopping = Some(call.replies);
                        break;
                    }
                    Request::Reset { version, last, seed } => tokio::select! {
                        () = set_up.reset(version, last, seed, &call.replies) => {}
                        () = signals.recv() => break,
                    },
                },
                Some(ended) = serving.join_next() => {
                    ended.context("the server ended")??;
                    bail!("the server ended");
                }
            }
        }
        ending.cancel();
        while serving.join_next().await.is_some() {}
        server.finish().await;
        database.close().await;
        drop(control);
        Ok(stopping)
    }
    .await;
    // Whatever happened, PostgreSQL is stopped as it should be.
    store.close().await;
    if let Some(replies) = outcome? {
        let done = Reply::Done { value: serde_json::Value::Null };
        let _ = replies.send(done).await;
        let _ = tokio::time::timeout(Duration::from_secs(2), replies.closed()).await;
    }
    Ok(())
}

type Bound = (TcpListener, SocketAddr);

/// Reads the project and takes its ports. Port 0 means any free one; what was found is then the project's configuration.
async fn open_ports(global: &Global) -> anyhow::Result<(Project, Bound, Option<Bound>)> {
    let load = |overrides: Vec<(String, String)>| {
        let environment = std::env::vars().chain(overrides).collect();
        LoadOptions { workdir: global.workdir.clone(), environment, ..LoadOptions::default() }
    };
    let project = Project::load(load(Vec::new()))?;
    let (wanted_api, wanted_mailbox) = (project.config().api.port, project.config().inbucket.port);
    let api = bind(wanted_api, "[api] port").await?;
    let mailbox = match project.config().inbucket.enabled {
        true => Some(bind(wanted_mailbox, "[inbucket] port").await?),
        false => None,
    };
    let mut overrides = Vec::new();
    let mut choose = |name: &str, wanted: u16, address: SocketAddr| {
        if wanted == 0 {
            overrides.push((name.to_owned(), address.port().to_string()));
        }
    };
    choose("SUPABASE_API_PORT", wanted_api, api.1);
    if let Some((_, address)) = &mailbox {
        choose("SUPABASE_INBUCKET_PORT", wanted_mailbox, *address);
    }
    if project.config().db.port == 0 {
        // PostgreSQL takes the port itself a moment later.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?;
        choose("SUPABASE_DB_PORT", 0, free);
    }
    Ok((folder::load(load(overrides))?, api, mailbox))
}

async fn bind(port: u16, setting: &str) -> anyhow::Result<Bound> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|error| {
        if error.kind() == std::io::ErrorKind::AddrInUse {
            anyhow::anyhow!(
                "port {port} is in use by another program (is a Portico server running already?): stop it, or set {setting} in supabase/config.toml"
            )
        } else {
            anyhow::Error::new(error).context(format!("could not listen on port {port} ({setting})"))
        }
    })?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// The pages that the project calls its own, besides those of this machine: at the server's address, the site, and the sites that
/// people may be sent back to.
fn own_pages(origin: &str, auth: &AuthSettings, public_url: Option<&str>) -> AllowedOrigins {
    let sites = auth.redirect_allow_list.iter().chain([&auth.site_url, &auth.external_url]).map(String::as_str);
    AllowedOrigins::new(sites.chain([origin]).chain(public_url))
}

/// The mailbox's own port: its API, and for a person the page of the web app. Besides pages of this machine, those of the
/// server's own address and of the project's site may read it.
fn mailbox_router(mailbox: &Mailbox, origin: &str, site_url: &str) -> axum::Router {
    let page = format!("{origin}/mailbox");
    mailbox
        .router(&[origin, site_url])
        .route("/", axum::routing::get(move || async move { axum::response::Redirect::temporary(&page) }))
}

/// The SMTP port of the mailbox, when the project has one.
async fn listen_for_mail(
    project: &Project,
    mailbox: &Mailbox,
) -> anyhow::Result<Option<portico_emulators::SmtpListener>> {
    let Some(port) = project.config().inbucket.smtp_port else { return Ok(None) };
    let (listener, _) = bind(port, "[inbucket] smtp_port").await?;
    Ok(Some(mailbox.listen_smtp(listener)))
}

fn status_values(project: &Project, keys: &keys::Keys, store: &Store, mailbox: Option<&str>) -> StatusValues {
    let config = project.config();
    StatusValues {
        api_url: Some(config.api.external_url.clone()),
        db_url: Some(match &store.url {
            None => {
                format!("postgresql://postgres:{}@127.0.0.1:{}/postgres", well_known::DATABASE_PASSWORD, config.db.port)
            }
            Some(url) => url.expose().to_owned(),
        }),
        mailpit_url: mailbox.map(str::to_owned),
        publishable_key: Some(keys.api.publishable().to_owned()),
        secret_key: Some(keys.api.secret().to_owned()),
        jwt_secret: Some(keys.jwt_secret.expose().to_owned()),
        anon_key: Some(keys.api.anon_jwt().to_owned()),
        service_role_key: Some(keys.api.service_role_jwt().to_owned()),
        has_rest: config.api.enabled,
        ..StatusValues::default()
    }
}

fn print_panel(status: &StatusValues, has_mailbox: bool, store: &Store, exposure: &Exposure, took: Duration) {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let origin = text(&status.api_url);
    let mut rows: Vec<Row> = vec![("Web app", origin.clone())];
    if has_mailbox {
        rows.push(("Mailbox", format!("{origin}/mailbox")));
    }
    rows.push(("Database", text(&status.db_url)));
    rows.push(("PostgreSQL", store.description()));
    rows.push(("New tables", exposure.to_string()));
    rows.push(("", String::new()));
    rows.push(("API", origin));
    rows.push(("Publishable", text(&status.publishable_key)));
    rows.push(("Secret", text(&status.secret_key)));
    panel::print("Portico is ready", took, &rows, "Press Ctrl-C to stop");
}
