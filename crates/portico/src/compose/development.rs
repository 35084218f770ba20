//! The description of a development server: the published keys, emulators where the configuration
//! names no real service, and no limits that would hinder a developer.

use std::path::Path;

use portico_auth::AuthSettings;
use portico_base::{AllowedOrigins, Clock};
use portico_emulators::{Development, Mailbox, MailboxLimits};
use portico_gateway::KeyPolicy;
use portico_project::Project;
use portico_project::portico_toml::Settings;
use portico_storage::StorageSettings;

use super::auth::{self, text_messages, webauthn};
use super::emulators::{self, EmulatedGoogle};
use super::keys::ServerKeys;
use super::{ServerDescription, brand, mail, realtime, rest, storage, web_app};

/// The inputs of a development server's description.
#[derive(Debug, Clone, Copy)]
pub struct DevelopmentInputs<'a> {
    /// The project with its configuration.
    pub project: &'a Project,
    /// The settings of `portico.toml`.
    pub settings: &'a Settings,
    /// The keys.
    pub keys: &'a ServerKeys,
    /// The clock.
    pub clock: &'a Clock,
    /// The port of the API.
    pub port: u16,
    /// The folder of the server's data.
    pub data: &'a Path,
    /// The address of the mailbox, if it has a port.
    pub mailbox_url: Option<&'a str>,
    /// The limit of connections of the API's port.
    pub max_connections: usize,
}

/// Returns the description of the development server, and the mailbox that it delivers to.
///
/// # Errors
/// When a part of the configuration cannot be used; the text names it.
pub fn describe(inputs: DevelopmentInputs<'_>) -> anyhow::Result<(ServerDescription, Mailbox)> {
    let DevelopmentInputs { project, settings, keys, clock, port, data, mailbox_url, max_connections } = inputs;
    let config = project.config();
    let origin = config.api.external_url.clone();
    let page_origin = web_app::address_in_browser(&origin);
    let witness = Development::confirm();
    let mut auth_settings = auth::settings(config);
    // Containers of the project have names in a private network
    auth_settings.private_hook_addresses = true;
    auth::add(&mut auth_settings, &settings.auth);
    auth::enable_notifications(&mut auth_settings, config, &settings.auth);
    if web_app::is_included() {
        auth::link_to_web_app(&mut auth_settings, &page_origin);
    }
    webauthn::complete_relying_party(&mut auth_settings, config, &settings.web.brand.name, true);
    auth::add_brand(&mut auth_settings, &settings.web.brand);
    auth_settings.allow_insecure_loopback_providers = true;
    auth_settings.rate_limits.per_address = false;
    auth_settings.rate_limits.passwords = false;
    if !config.auth.has_site_url {
        // The default site is the port of another framework's development server, where usually
        // nothing listens
        auth_settings.error_url = Some(format!("{page_origin}/sign-in"));
    }
    // The same machine has two names, and both are in use
    auth_settings.redirect_allow_list.push(format!("http://localhost:{port}/**"));
    let mailbox = Mailbox::new(witness, MailboxLimits::default());
    let mail = match &config.auth.email.smtp {
        Some(smtp) => mail::smtp(smtp)?,
        None => {
            auth_settings.rate_limits.emails = None;
            mailbox.transport()
        }
    };
    let text_transport = match &config.auth.sms.provider {
        Some(provider) => text_messages::gateway(provider, &settings.texts, &auth_settings, true)?,
        None => {
            auth_settings.rate_limits.texts = None;
            text_messages::inbox(mailbox.clone())
        }
    };
    let pages = project_pages(&origin, &auth_settings, settings.server.public_url.as_deref());
    let is_google_emulated = settings.emulators.google && emulators::lacks_google(&auth_settings);
    let google = is_google_emulated.then(|| EmulatedGoogle {
        witness,
        origin: origin.clone(),
        accounts: Some(data.join("google-accounts.json")),
        people: settings
            .auth
            .users
            .iter()
            .map(|user| (user.name.clone().unwrap_or_default(), user.email.clone()))
            .collect(),
        pages: pages.clone(),
    });
    let mark = brand::Mark::read(settings.web.brand.mark.as_deref())?;
    let mut shown_settings = auth_settings.clone();
    if is_google_emulated {
        shown_settings.external.entry("google".to_owned()).or_default().enabled = true;
    }
    let page = web_app::config(web_app::PageFacts {
        publishable_key: keys.api.publishable(),
        mailbox: mailbox_url,
        development: true,
        web: &settings.web,
        mark: mark.as_ref().map(brand::Mark::path).as_deref(),
        auth: &shown_settings,
        avatars: storage::avatars(config),
        realtime: config.realtime.enabled,
    });
    let description = ServerDescription {
        auth: auth_settings,
        rest: rest::settings(config, &origin, settings.database.pool_size as usize, true),
        realtime: realtime::settings(config, &settings.realtime, &keys.jwt_secret, max_connections),
        storage: storage::settings(config, &settings.storage, data).map(|storage| StorageSettings {
            s3: storage::s3_development_settings(config, &settings.storage.s3, pages.clone()),
            ..storage
        }),
        avatars: web_app::is_included(),
        keys: keys.clone(),
        key_policy: KeyPolicy::Development,
        mail,
        text_transport: Some(text_transport),
        page,
        trusted_proxies: Vec::new(),
        https: false,
        development: true,
        secret_key_pages: Some(pages),
        google,
        mark,
        clock: clock.clone(),
    };
    Ok((description, mailbox))
}

/// Returns the pages that belong to the project, besides those of this machine: at the server's
/// address, the site, and the allowed redirect targets.
fn project_pages(origin: &str, auth: &AuthSettings, public_url: Option<&str>) -> AllowedOrigins {
    let sites = auth.redirect_allow_list.iter().chain([&auth.site_url, &auth.external_url]).map(String::as_str);
    AllowedOrigins::new(sites.chain([origin]).chain(public_url))
}
