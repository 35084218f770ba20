//! `portico keys`: makes, rotates and revokes the keys that sign access tokens, whether a server
//! runs or not. Running servers follow.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use portico_auth::signing_keys::{
    KeyState, PUBLICATION_TIME, Rotation, SigningKeyError, SigningKeySummary, SigningKeys,
};
use portico_base::Clock;
use portico_database::sqlstate::UNDEFINED_TABLE;
use portico_database::{Database, Endpoint, PoolSettings};
use portico_project::portico_toml::Settings;
use portico_project::{LoadOptions, Project};
use portico_tokens::Algorithm;
use serde::Serialize;
use serde_json::json;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{Duration, OffsetDateTime};

use super::folder;
use super::global::Global;
use super::store::ProjectPostgres;
use crate::compose::keys::MissingSecrets;
use crate::compose::{auth, database, keys, signing_keys};

#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Show the keys and their states
    List(KeysTarget),
    /// Make a standby key: servers publish it and accept its tokens
    Create {
        #[command(flatten)]
        target: KeysTarget,
        /// The algorithm of the key
        #[arg(long, value_enum, ignore_case = true, default_value = "ES256")]
        algorithm: KeyAlgorithm,
    },
    /// Sign with another key from now on; tokens of the former one stay valid
    Rotate {
        #[command(flatten)]
        target: KeysTarget,
        /// The key to sign with [default: the oldest standby key]
        key: Option<String>,
    },
    /// Make all tokens of a key invalid, and delete it
    Revoke {
        #[command(flatten)]
        target: KeysTarget,
        /// The key, as `portico keys list` shows it
        key: String,
        /// Revoke the JWT secret although the anon and service_role API keys become invalid with it
        #[arg(long)]
        with_api_keys: bool,
    },
}

/// The options that choose a server.
#[derive(Debug, Args)]
pub(super) struct KeysTarget {
    /// The keys of `portico serve` instead of the development server's
    #[arg(long)]
    production: bool,
    /// The data folder of `portico serve` [default: PORTICO_DATA, or that of supabase/portico.toml]
    #[arg(long, value_name = "DIR", requires = "production")]
    data: Option<PathBuf>,
    /// The database of `portico serve`, if it is not the embedded one [default: DATABASE_URL, or
    /// that of supabase/portico.toml]
    #[arg(long, value_name = "URL", hide_env_values = true, requires = "production")]
    database_url: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The algorithms of keys that can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum KeyAlgorithm {
    /// ECDSA on P-256: short tokens, verified by every client
    #[value(name = "ES256")]
    Es256,
    /// RSA with 2048 bits, for programs that know no other
    #[value(name = "RS256")]
    Rs256,
    /// Ed25519, which `auth.getClaims()` of the client library does not verify
    #[value(name = "EdDSA")]
    EdDsa,
    /// A secret: only this server can verify its tokens
    #[value(name = "HS256")]
    Hs256,
}

impl From<KeyAlgorithm> for Algorithm {
    fn from(algorithm: KeyAlgorithm) -> Self {
        match algorithm {
            KeyAlgorithm::Es256 => Self::Es256,
            KeyAlgorithm::Rs256 => Self::Rs256,
            KeyAlgorithm::EdDsa => Self::EdDsa,
            KeyAlgorithm::Hs256 => Self::Hs256,
        }
    }
}

pub(super) async fn run(global: &Global, command: KeysCommand) -> anyhow::Result<()> {
    let (KeysCommand::List(target)
    | KeysCommand::Create { target, .. }
    | KeysCommand::Rotate { target, .. }
    | KeysCommand::Revoke { target, .. }) = &command;
    let opened = OpenedSigningKeys::open(global, target).await?;
    let outcome = opened.carry_out(&command, target.json).await;
    opened.close().await;
    outcome
}

/// The signing keys of a server, with the PostgreSQL that was started for the command.
struct OpenedSigningKeys {
    keys: SigningKeys,
    database: Database,
    postgres: ProjectPostgres,
    /// The lifetime of access tokens.
    expiry: Duration,
    clock: Clock,
}

impl OpenedSigningKeys {
    async fn open(global: &Global, target: &KeysTarget) -> anyhow::Result<Self> {
        let stage = if target.production { "production" } else { LoadOptions::default().stage };
        let project = folder::load(LoadOptions { workdir: global.workdir.clone(), stage, ..LoadOptions::default() })?;
        let settings = Settings::load(&project)?;
        let mut url = settings.database.url.as_ref().map(|url| url.expose().to_owned());
        let data = match target.production {
            true => {
                let named = target.database_url.clone().or_else(|| std::env::var("DATABASE_URL").ok());
                url = named.filter(|url| !url.is_empty()).or(url);
                let folder = std::env::var_os("PORTICO_DATA").filter(|folder| !folder.is_empty()).map(PathBuf::from);
                target.data.clone().or(folder).unwrap_or_else(|| settings.database.data.clone())
            }
            false => folder::data_folder(global)?,
        };
        let clock = Clock::system();
        let config = project.config();
        let methods = settings.auth.jwt_valid_methods.as_deref();
        let configured = match target.production {
            true => keys::for_production(&config.auth, methods, &data, MissingSecrets::Refuse, &clock)?,
            false => keys::for_development(&config.auth, methods, &clock)?,
        };
        let mut auth_settings = auth::settings(config);
        auth::add(&mut auth_settings, &settings.auth);

        let postgres = match url {
            Some(url) => {
                let endpoint = Endpoint::parse(&url).context("the database's URL")?;
                ProjectPostgres::external(database::with_known_logins(&endpoint, &data)?.unwrap_or(endpoint))
            }
            None => embedded(&project, &settings, &data, target.production).await?,
        };
        let opened = async {
            let database = Database::open(&postgres.endpoint, PoolSettings::default())?;
            database.detect_pooler().await?;
            let keys = signing_keys::open(&configured, &auth_settings.encryption, &database, clock.clone())?;
            anyhow::Ok((keys, database))
        };
        match opened.await {
            Ok((keys, database)) => {
                Ok(Self { keys, database, postgres, expiry: Duration::seconds(config.auth.jwt_expiry.into()), clock })
            }
            Err(error) => {
                postgres.close().await;
                Err(error)
            }
        }
    }

    async fn close(self) {
        self.database.close().await;
        self.postgres.close().await;
    }

    async fn carry_out(&self, command: &KeysCommand, json: bool) -> anyhow::Result<()> {
        match command {
            KeysCommand::List(_) => {
                let listed = self.keys.list().await.map_err(explain)?;
                if json { print_json(&listed) } else { print_table(&listed) }
            }
            KeysCommand::Create { algorithm, .. } => self.create((*algorithm).into(), json).await,
            KeysCommand::Rotate { key, .. } => {
                let rotation = self.keys.rotate(key.as_deref()).await.map_err(explain)?;
                self.warn_of_caches(&rotation);
                if json { print_json(&rotation) } else { self.print_rotation(&rotation) }
            }
            KeysCommand::Revoke { key, with_api_keys, .. } => self.revoke(key, *with_api_keys, json).await,
        }
    }

    async fn create(&self, algorithm: Algorithm, json: bool) -> anyhow::Result<()> {
        let id = self.keys.create(algorithm).await.map_err(explain)?;
        if algorithm == Algorithm::EdDsa {
            folder::say("WARN: auth.getClaims() of supabase-js does not know EdDSA, and fails for tokens of this key");
        }
        if json {
            let listed = self.keys.list().await.map_err(explain)?;
            return print_json(&listed.into_iter().find(|key| key.id == id).context("the key was revoked meanwhile")?);
        }
        anstream::println!("Made the standby key {id} ({}).", algorithm.name());
        anstream::println!(
            "Servers accept its tokens. Sign with it by `portico keys rotate`, {} minutes from now if other programs verify \
             tokens with the published keys.",
            PUBLICATION_TIME.whole_minutes()
        );
        Ok(())
    }

    fn warn_of_caches(&self, rotation: &Rotation) {
        if let Some(time) = rotation.published_at {
            let minutes = (time - self.clock.now()).whole_minutes() + 1;
            folder::say(&format!(
                "WARN: the key is new: programs that cache the published keys may reject its tokens for {minutes} more \
                 minutes. This server and the client library accept them at once"
            ));
        }
    }

    fn print_rotation(&self, rotation: &Rotation) -> anyhow::Result<()> {
        anstream::println!("Access tokens are signed with {} from now on.", rotation.in_use);
        anstream::println!(
            "Tokens of {} stay valid. The last of them expires in {} minutes; `portico keys revoke {}` ends them.",
            rotation.previously_used,
            self.expiry.whole_minutes(),
            rotation.previously_used
        );
        Ok(())
    }

    async fn revoke(&self, id: &str, with_api_keys: bool, json: bool) -> anyhow::Result<()> {
        let before = self.keys.list().await.map_err(explain)?;
        self.keys.revoke(id, with_api_keys).await.map_err(explain)?;
        // A configured key was retired when the present one came into use
        let retired = before.iter().find(|key| key.id == id).and_then(|key| key.retired_at);
        let replaced = before.iter().find(|key| key.state == KeyState::InUse).and_then(|key| key.in_use_since);
        let was_used = before.iter().any(|key| key.id == id && key.state == KeyState::PreviouslyUsed);
        if let Some(retired) = retired.or(replaced).filter(|_| was_used)
            && retired + self.expiry > self.clock.now()
        {
            folder::say(
                "WARN: the key has signed access tokens that had not expired: their requests are rejected until the \
                 client refreshes its session",
            );
        }
        if json {
            return print_json(&json!({ "revoked": id }));
        }
        anstream::println!("Revoked {id}: its tokens are rejected.");
        Ok(())
    }
}

/// Returns the embedded PostgreSQL: that of the server that runs with the data folder, else one
/// that is started for the command.
///
/// # Errors
/// When the folder has no database yet, or PostgreSQL does not start.
async fn embedded(
    project: &Project,
    settings: &Settings,
    data: &Path,
    production: bool,
) -> anyhow::Result<ProjectPostgres> {
    if !data.join(folder::CLUSTER).exists() {
        let (command, hint) = match production {
            true => ("portico serve", ""),
            false => ("portico dev", ", or add --production for the keys of `portico serve`"),
        };
        bail!("{} has no database yet: start it with `{command}`{hint}", project.root().display());
    }
    ProjectPostgres::join_embedded(project, settings, data).await
}

/// Adds the remedy for a database that this version has not set up yet.
fn explain(error: SigningKeyError) -> anyhow::Error {
    let is_old = match &error {
        SigningKeyError::Database(error) => error.sqlstate() == Some(&UNDEFINED_TABLE),
        _ => false,
    };
    let error = anyhow::Error::new(error);
    if is_old {
        error.context("the database was set up by an older version: start this version of the server once")
    } else {
        error
    }
}

fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    anstream::println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

fn print_table(keys: &[SigningKeySummary]) -> anyhow::Result<()> {
    const TIME: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    let id = keys.iter().map(|key| key.id.len()).max().unwrap_or(0).max(10);
    anstream::println!("  {:id$} │ Algorithm │ {:15} │ Since (UTC)", "Key", "State");
    anstream::println!("  {0:─<id$}─┼───────────┼─{0:─<15}─┼─{0:─<19}", "");
    for key in keys {
        let since = match key.state {
            KeyState::Standby => key.created_at,
            KeyState::InUse => key.in_use_since,
            KeyState::PreviouslyUsed => key.retired_at,
            KeyState::Revoked => key.revoked_at,
            KeyState::VerifyOnly => None,
        };
        let since = since.map_or(Ok(String::new()), |time: OffsetDateTime| time.format(TIME))?;
        let since = if key.configured && since.is_empty() { "configured" } else { &since };
        anstream::println!("  {:id$} │ {:9} │ {:15} │ {since}", key.id, key.algorithm, state_name(key.state));
    }
    Ok(())
}

fn state_name(state: KeyState) -> &'static str {
    match state {
        KeyState::Standby => "standby",
        KeyState::InUse => "in use",
        KeyState::PreviouslyUsed => "previously used",
        KeyState::Revoked => "revoked",
        KeyState::VerifyOnly => "verify only",
    }
}
