//! `portico dev`: serves a project folder until Ctrl-C.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use portico_base::Clock;
use portico_database::Database;
use portico_emulators::Mailbox;
use portico_gateway::ServeLimits;
use portico_project::portico_toml::Settings;
use portico_project::status::{S3Values, StatusValues};
use portico_project::{Exposure, LoadOptions, Progress, Project};
use portico_storage::GcOptions;
use portico_tokens::development as well_known;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::capacity::{pool_settings, workers};
use super::global::Global;
use super::panel::{self, PanelRow};
use super::signals::StopSignals;
use super::store::ProjectPostgres;
use super::{folder, status};
use crate::compose::auth::development_accounts;
use crate::compose::auth::webauthn;
use crate::compose::development::{self, DevelopmentInputs};
use crate::compose::keys::ServerKeys;
use crate::compose::setup::DatabaseSetup;
use crate::compose::{Server, database, emulators, keys, storage, unsupported, web_app};
use crate::control::{self, Control, ControlCall, ControlRequest, Reply};
use crate::open_files;

/// The time that requests in flight have to complete once the server is stopped.
const DRAIN: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(super) struct DevOptions {
    /// Do not run the seed files on the first start
    #[arg(long)]
    no_seed: bool,
}

pub(super) async fn run(global: &Global, options: DevOptions) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut signals = StopSignals::install()?;
    if let Some(process) = control::running(&folder::data_folder(global)?).await {
        bail!(
            "a Portico server runs in this folder already (process {process}): `portico status` shows its addresses, and `portico \
             stop` ends it"
        );
    }
    let (project, api, mailbox) = open_ports(global).await?;
    let settings = folder::settings(&project)?;
    let data = project.root().join(".portico");
    folder::make_development_folder(&data)?;

    let clock = Clock::system();
    let keys = keys::for_development(&project.config().auth, settings.auth.jwt_valid_methods.as_deref(), &clock)?;
    let store = tokio::select! {
        store = ProjectPostgres::open(&project, &settings, &data, Some(project.config().db.port)) => store?,
        () = signals.recv() => return Ok(()),
    };
    let exposure = Exposure::of(&project)?;
    let development = DevelopmentServer { project, settings, data, clock, keys, store, exposure, started };
    let outcome = development.run(!options.no_seed, api, mailbox, &mut signals).await;
    // PostgreSQL is stopped cleanly after an error too
    development.store.close().await;
    if let Some(replies) = outcome? {
        let done = Reply::Done { value: serde_json::Value::Null };
        let _ = replies.send(done).await;
        let _ = tokio::time::timeout(Duration::from_secs(2), replies.closed()).await;
    }
    Ok(())
}

/// The parts of a development server besides its ports.
struct DevelopmentServer {
    project: Project,
    settings: Settings,
    data: PathBuf,
    clock: Clock,
    keys: ServerKeys,
    store: ProjectPostgres,
    exposure: Exposure,
    started: Instant,
}

/// The channel of the replies to the command that ends the server.
type StopReplies = mpsc::Sender<Reply>;

/// A running server, for the calls of the control socket.
struct RunningDevelopment<'a> {
    development: &'a DevelopmentServer,
    setup: &'a DatabaseSetup,
    server: &'a Server,
    mailbox_url: Option<&'a str>,
}

impl DevelopmentServer {
    /// Sets the database up and serves. Returns the channel of a command that ended the server, or
    /// `None` after a signal.
    async fn run(
        &self,
        seed: bool,
        api: Bound,
        mailbox_listener: Option<Bound>,
        signals: &mut StopSignals,
    ) -> anyhow::Result<Option<StopReplies>> {
        let database = Database::open(&self.store.endpoint, pool_settings(&self.settings))?;
        let setup = DatabaseSetup::development(&self.project, &database, &self.keys, &self.exposure);
        let mut say = |step: Progress| folder::say(&step.to_string());
        tokio::select! {
            outcome = setup.run(seed, &mut say) => outcome?,
            () = signals.recv() => return Ok(None),
        }
        self.print_warnings(&database);
        let max_connections = open_files::max_connections(self.settings.server.max_connections);
        let mailbox_url = mailbox_listener.as_ref().map(|(_, address)| format!("http://{address}"));
        let (description, mailbox) = development::describe(DevelopmentInputs {
            project: &self.project,
            settings: &self.settings,
            keys: &self.keys,
            clock: &self.clock,
            port: api.1.port(),
            data: &self.data,
            mailbox_url: mailbox_url.as_deref(),
            max_connections,
        })?;
        if let Some(hint) = webauthn::passkey_hint(&description.auth, api.1.port()) {
            folder::say(&hint);
        }
        let server = Server::new(description, &database)?;
        server.load_keys().await?;
        complete(&server, &self.project, &self.settings).await?;

        let ending = CancellationToken::new();
        let mut serving = JoinSet::new();
        let workers = workers()?;
        let ended = || ending.clone().cancelled_owned();
        let limits = || self.limits(max_connections);
        serving.spawn(portico_gateway::serve(api.0, server.gateway(), ended(), limits(), workers.clone()));
        if let Some((listener, _)) = mailbox_listener {
            let config = self.project.config();
            let router = emulators::mailbox_router(&mailbox, &config.api.external_url, &config.auth.site_url);
            serving.spawn(portico_gateway::serve(listener, router, ended(), limits(), workers.clone()));
        }
        let _smtp = listen_for_mail(&self.project, &mailbox).await?;

        let running = RunningDevelopment {
            development: self,
            setup: &setup,
            server: &server,
            mailbox_url: mailbox_url.as_deref(),
        };
        let (calls, mut incoming) = mpsc::channel(4);
        let control = Control::listen(&self.data, calls)?;
        if let Some(requests) = database::requests_to_administrator(&database) {
            anstream::println!("\n{requests}");
        }
        let took = self.started.elapsed();
        print_panel(&running.status_values(), mailbox_url.is_some(), &self.store, &self.exposure, took);
        let stopping = running.handle_calls(&mut incoming, &mut serving, signals).await?;
        ending.cancel();
        server.close_sockets(DRAIN);
        while serving.join_next().await.is_some() {}
        server.finish().await;
        database.close().await;
        drop(control);
        Ok(stopping)
    }

    fn print_warnings(&self, database: &Database) {
        if let Some(advice) = database::pooler_advice(database) {
            folder::say(&format!("WARN: {advice}"));
        }
        for warning in unsupported::warnings(self.project.config()) {
            folder::say(&format!("WARN: {warning}"));
        }
    }

    fn limits(&self, max_connections: usize) -> ServeLimits {
        let configured = self.settings.server.max_connections_per_address;
        let max_connections_per_address = open_files::max_connections_per_address(configured, max_connections);
        ServeLimits { drain: DRAIN, max_connections, max_connections_per_address, ..ServeLimits::default() }
    }
}

impl RunningDevelopment<'_> {
    fn status_values(&self) -> StatusValues {
        let DevelopmentServer { project, settings, keys, store, .. } = self.development;
        status_values(project, settings, self.server, keys, store, self.mailbox_url)
    }

    /// Handles the calls of the control socket. Returns at a signal, or with the replies of the
    /// command that ends the server.
    async fn handle_calls(
        &self,
        incoming: &mut mpsc::Receiver<ControlCall>,
        serving: &mut JoinSet<io::Result<()>>,
        signals: &mut StopSignals,
    ) -> anyhow::Result<Option<StopReplies>> {
        let Self { development: DevelopmentServer { project, settings, .. }, setup, server, .. } = self;
        loop {
            tokio::select! {
                () = signals.recv() => return Ok(None),
                Some(call) = incoming.recv() => match call.request {
                    ControlRequest::Status { format, names } => {
                        let reply = self.status(&format, &names, &call.replies).await;
                        let _ = call.replies.send(reply).await;
                    }
                    ControlRequest::Accounts { operation } => {
                        let reply = Reply::from_accounts(server.auth(), operation).await;
                        let _ = call.replies.send(reply).await;
                    }
                    ControlRequest::CollectGarbage { grace, delete_content, delete_rows } => {
                        let grace = Duration::from_secs(grace);
                        let options = GcOptions { grace, delete_content, delete_rows };
                        storage::collect_garbage(server.storage(), options, call.replies);
                    }
                    ControlRequest::SeedBuckets => tokio::select! {
                        () = storage::seed_again(server.storage(), project, &call.replies) => {}
                        () = signals.recv() => return Ok(None),
                    },
                    ControlRequest::Stop => return Ok(Some(call.replies)),
                    ControlRequest::Reset { version, last, seed } => tokio::select! {
                        () = setup.reset(version, last, seed, restore(server, project, settings), &call.replies) => {}
                        () = signals.recv() => return Ok(None),
                    },
                },
                Some(ended) = serving.join_next() => {
                    ended.context("the server ended")??;
                    bail!("the server ended");
                }
            }
        }
    }

    /// Returns the values of `portico status`, after a warning about tables without protection.
    async fn status(&self, format: &str, names: &[String], replies: &mpsc::Sender<Reply>) -> Reply {
        let unprotected = self.setup.unprotected().await;
        if let Some(tables) = &unprotected {
            let line = Progress::Warning { message: tables.to_string() }.to_string();
            let _ = replies.send(Reply::Progress { line }).await;
        }
        let tables = unprotected.map(|found| found.tables().to_vec()).unwrap_or_default();
        let shown = StatusValues { unprotected: tables, ..self.status_values() };
        match status::render(&shown, format, names) {
            Ok(text) => Reply::Done { value: text.into() },
            Err(message) => Reply::Failed { message },
        }
    }
}

/// Adds what a project describes besides its migrations and seeds, as far as it does not exist yet:
/// accounts and buckets.
async fn complete(server: &Server, project: &Project, settings: &Settings) -> anyhow::Result<()> {
    add_development_accounts(server, settings).await?;
    storage::seed_missing(server.storage(), project, &|line| folder::say(&line)).await
}

/// Does the same as [`complete`], after the database was set up again, with the buckets that the
/// project has now.
async fn restore(server: &Server, project: &Project, settings: &Settings) -> anyhow::Result<()> {
    if let Some(storage) = server.storage()
        && let Err(error) = storage.discard_earlier_content().await
    {
        tracing::warn!(error = %error, "the content of earlier objects could not be deleted");
    }
    server.restore_avatars().await;
    complete(server, &project.reload()?, settings).await
}

/// Adds the accounts of `[auth.users]` that do not exist yet.
async fn add_development_accounts(server: &Server, settings: &Settings) -> anyhow::Result<()> {
    for account in development_accounts(&settings.auth) {
        let email = account.email.clone().unwrap_or_default();
        let added = server.auth().add_development_account(account).await;
        if added.with_context(|| format!("[auth.users.\"{email}\"] in supabase/portico.toml"))? {
            folder::say(&format!("Added the account {email}"));
        }
    }
    Ok(())
}

type Bound = (TcpListener, SocketAddr);

/// Reads the project and binds its ports. Port 0 means any free port, which then becomes part of
/// the project's configuration.
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
        // PostgreSQL binds the port itself a moment later
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?;
        choose("SUPABASE_DB_PORT", 0, free);
    }
    Ok((folder::load(load(overrides))?, api, mailbox))
}

async fn bind(port: u16, setting: &str) -> anyhow::Result<Bound> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|error| {
        if error.kind() == io::ErrorKind::AddrInUse {
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

/// Listens on the SMTP port of the mailbox, if the project has one.
async fn listen_for_mail(
    project: &Project,
    mailbox: &Mailbox,
) -> anyhow::Result<Option<portico_emulators::SmtpListener>> {
    let Some(port) = project.config().inbucket.smtp_port else { return Ok(None) };
    let (listener, _) = bind(port, "[inbucket] smtp_port").await?;
    Ok(Some(mailbox.listen_smtp(listener)))
}

fn status_values(
    project: &Project,
    settings: &Settings,
    server: &Server,
    keys: &ServerKeys,
    store: &ProjectPostgres,
    mailbox: Option<&str>,
) -> StatusValues {
    let config = project.config();
    let api = &server.keys().now().api;
    let has_s3 = config.storage.enabled && config.storage.s3_protocol;
    StatusValues {
        api_url: Some(config.api.external_url.clone()),
        db_url: Some(match &store.url {
            None => {
                format!("postgresql://postgres:{}@127.0.0.1:{}/postgres", well_known::DATABASE_PASSWORD, config.db.port)
            }
            Some(url) => url.expose().to_owned(),
        }),
        mailpit_url: mailbox.map(str::to_owned),
        publishable_key: Some(api.publishable().to_owned()),
        secret_key: Some(api.secret().to_owned()),
        jwt_secret: Some(keys.jwt_secret.expose().to_owned()),
        anon_key: Some(api.anon_jwt().to_owned()),
        service_role_key: Some(api.service_role_jwt().to_owned()),
        has_rest: config.api.enabled,
        has_storage_s3: has_s3,
        s3: has_s3.then(|| S3Values {
            access_key_id: well_known::S3_ACCESS_KEY_ID.to_owned(),
            secret_access_key: well_known::S3_SECRET_ACCESS_KEY.to_owned(),
            region: settings.storage.s3.region.clone().unwrap_or_else(|| well_known::S3_REGION.to_owned()),
        }),
        ..StatusValues::default()
    }
}

fn print_panel(status: &StatusValues, has_mailbox: bool, store: &ProjectPostgres, exposure: &Exposure, took: Duration) {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let origin = text(&status.api_url);
    let pages = web_app::address_in_browser(&origin);
    let mut rows: Vec<PanelRow> = vec![("Web app", pages.clone())];
    if has_mailbox {
        rows.push(("Mailbox", format!("{pages}/mailbox")));
    }
    rows.push(("Database", text(&status.db_url)));
    rows.push(("PostgreSQL", store.description()));
    rows.push(("New tables", exposure.to_string()));
    rows.push(("", String::new()));
    rows.push(("API", origin.clone()));
    rows.push(("Publishable", text(&status.publishable_key)));
    rows.push(("Secret", text(&status.secret_key)));
    if let Some(s3) = &status.s3 {
        rows.push(("", String::new()));
        rows.push(("S3", format!("{origin}/storage/v1/s3")));
        rows.push(("Access key", s3.access_key_id.clone()));
        rows.push(("Secret key", s3.secret_access_key.clone()));
        rows.push(("Region", s3.region.clone()));
    }
    panel::print("Portico is ready", took, &rows, "Press Ctrl-C to stop");
}
