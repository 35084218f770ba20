//! The description of a production server, which exists only for a configuration that has passed
//! every check.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use ipnet::IpNet;
use portico_auth::{AuthSettings, TextTransport};
use portico_base::Clock;
use portico_gateway::KeyPolicy;
use portico_mail::Transport;
use portico_project::Project;
use portico_project::portico_toml::Settings;
use portico_storage::StorageSettings;
use portico_tokens::development as well_known;

use super::auth::{self, text_messages, webauthn};
use super::brand::Mark;
use super::keys::ServerKeys;
use super::{ServerDescription, mail, realtime, rest, safety, storage, unsupported, web_app};
use crate::open_files;

/// The parts of a configuration that has passed the checks of [`check`].
pub struct CheckedConfiguration {
    /// The address under which clients reach the server.
    pub public_url: String,
    /// The proxies whose `X-Forwarded-*` headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The limit of client connections.
    pub max_connections: usize,
    auth: AuthSettings,
    mail: Arc<dyn Transport>,
    text_transport: Option<Arc<dyn TextTransport>>,
    mark: Option<Mark>,
}

/// Checks the configuration of a production server. Writes nothing.
///
/// # Errors
/// When the configuration is incomplete, invalid or unsafe; the text says what to change.
pub fn check(project: &Project, settings: &Settings) -> anyhow::Result<CheckedConfiguration> {
    let config = project.config();
    let public_url = safety::public_url(settings)?;
    let mut auth = auth::settings(config);
    auth::add(&mut auth, &settings.auth);
    auth::enable_notifications(&mut auth, config, &settings.auth);
    auth::add_brand(&mut auth, &settings.web.brand);
    auth::at_public_url(&mut auth, config, &public_url);
    if web_app::is_included() {
        auth::link_to_web_app(&mut auth, &public_url);
    }
    webauthn::complete_relying_party(&mut auth, config, &settings.web.brand.name, false);
    auth.rate_limits.per_address = true;
    let mut problems = safety::problems(config, &auth);
    problems.extend(safety::unset(project.warnings()));
    problems.extend(safety::unset(&settings.warnings));
    if settings.storage.s3.access_keys.contains_key(well_known::S3_ACCESS_KEY_ID) {
        problems
            .push("[storage.s3] access_keys contains the published key of development: make another one".to_owned());
    }
    if !problems.is_empty() {
        bail!("this configuration is not safe in production:\n  - {}", problems.join("\n  - "));
    }
    unsupported::reject(config)?;
    let text_transport = match &config.auth.sms.provider {
        Some(provider) => Some(text_messages::gateway(provider, &settings.texts, &auth, false)?),
        None => {
            text_messages::none(&mut auth);
            None
        }
    };
    let mark = Mark::read(settings.web.brand.mark.as_deref())?;
    auth.validate().context("the settings of [auth] cannot work")?;
    let trusted_proxies = safety::networks(&settings.server.trusted_proxies)?;
    let mail = match &config.auth.email.smtp {
        Some(smtp) => mail::smtp(smtp)?,
        None => mail::none(),
    };
    let max_connections = open_files::max_connections(settings.server.max_connections);
    Ok(CheckedConfiguration { public_url, trusted_proxies, max_connections, auth, mail, text_transport, mark })
}

impl CheckedConfiguration {
    /// Returns the description of the production server, whose data folder is `data`.
    #[must_use]
    pub fn describe(
        self,
        project: &Project,
        settings: &Settings,
        data: &Path,
        keys: &ServerKeys,
        clock: Clock,
    ) -> ServerDescription {
        let Self { public_url, trusted_proxies, max_connections, auth, mail, text_transport, mark } = self;
        let page = web_app::config(web_app::PageFacts {
            publishable_key: keys.api.publishable(),
            mailbox: None,
            development: false,
            web: &settings.web,
            mark: mark.as_ref().map(Mark::path).as_deref(),
            auth: &auth,
            avatars: storage::avatars(project.config()),
            realtime: project.config().realtime.enabled,
        });
        ServerDescription {
            auth,
            rest: rest::settings(project.config(), &public_url, settings.database.pool_size as usize, false),
            realtime: realtime::settings(project.config(), &settings.realtime, &keys.jwt_secret, max_connections),
            storage: storage::settings(project.config(), &settings.storage, data).map(|storage| StorageSettings {
                https: public_url.starts_with("https://"),
                s3: storage::s3_settings(project.config(), &settings.storage.s3),
                ..storage
            }),
            avatars: web_app::is_included(),
            keys: keys.clone(),
            key_policy: KeyPolicy::Hosted,
            mail,
            text_transport,
            page,
            trusted_proxies,
            https: public_url.starts_with("https://"),
            development: false,
            secret_key_pages: None,
            google: None,
            mark,
            clock,
        }
    }
}
