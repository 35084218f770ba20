//! The whole server, apart from where its configuration comes from and where its database is.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use portico_auth::signing_keys::{SigningKeyError, SigningKeys};
use portico_auth::{Auth, AuthSettings, TextTransport};
use portico_base::{AllowedOrigins, Clock};
use portico_database::Database;
use portico_gateway::{Gateway, KeyPolicy};
use portico_mail::Transport;
use portico_realtime::{Realtime, RealtimeSettings};
use portico_rest::{Rest, RestSettings};
use portico_storage::{Storage, StorageSettings};
use portico_tokens::CurrentKeys;
use serde_json::Value;

use super::avatars::AvatarUpkeep;
use super::brand::Mark;
use super::emulators::EmulatedGoogle;
use super::keys::ServerKeys;
use super::service::{Foundation, Upkeep};
use super::{analytics, auth, functions, graphql, realtime, rest, signing_keys, storage, web_app};

/// Everything that decides how a server behaves, apart from its database. Servers that are made
/// from clones of one description share nothing but the transports of emails and text messages.
#[derive(Clone)]
pub struct ServerDescription {
    /// The settings of the account service.
    pub auth: AuthSettings,
    /// The settings of the data API; `None` turns it off.
    pub rest: Option<RestSettings>,
    /// The settings of the storage service; `None` turns it off.
    pub storage: Option<StorageSettings>,
    /// The settings of the realtime service; `None` turns it off.
    pub realtime: Option<RealtimeSettings>,
    /// Keeps the pictures of accounts in a bucket of their own. Needs the storage service.
    pub avatars: bool,
    /// The keys that sign and verify tokens, and the API keys.
    pub keys: ServerKeys,
    /// The requests that need an API key.
    pub key_policy: KeyPolicy,
    /// Delivers emails.
    pub mail: Arc<dyn Transport>,
    /// Delivers text messages; `None` turns sign-in by phone off.
    pub text_transport: Option<Arc<dyn TextTransport>>,
    /// The document that the web app reads when it starts; see [`web_app`].
    pub page: Value,
    /// Proxies whose `X-Forwarded-*` headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// True if clients reach the server by https.
    pub https: bool,
    /// True for a development server, whose page may talk to every port of this machine.
    pub development: bool,
    /// The pages from which secret keys and tokens with a service's rights are accepted; `None`:
    /// every page. Set where the keys are the published ones.
    pub secret_key_pages: Option<AllowedOrigins>,
    /// The emulated Google of a development server.
    pub google: Option<EmulatedGoogle>,
    /// The product's own mark.
    pub mark: Option<Mark>,
    /// The clock.
    pub clock: Clock,
}

/// A server that is ready to be served. Its periodic work ends when it is dropped.
pub struct Server {
    gateway: Gateway,
    auth: Auth,
    storage: Option<Storage>,
    realtime: Option<Realtime>,
    avatars: Option<AvatarUpkeep>,
    keys: CurrentKeys,
    signing_keys: SigningKeys,
    upkeep: Upkeep,
}

impl Server {
    /// Composes the services on `database`. Starts their tasks, so it needs a Tokio runtime.
    ///
    /// # Errors
    /// When a setting is invalid; the text names it.
    pub fn new(description: ServerDescription, database: &Database) -> anyhow::Result<Self> {
        let ServerDescription {
            auth: mut auth_settings,
            rest,
            storage: storage_settings,
            realtime: realtime_settings,
            avatars: keeps_avatars,
            keys,
            key_policy,
            mail,
            text_transport,
            page,
            trusted_proxies,
            https,
            development,
            secret_key_pages,
            google,
            mark,
            clock,
        } = description;
        let current = CurrentKeys::new(Arc::clone(&keys.ring), Arc::clone(&keys.api));
        let foundation = Foundation { database: database.clone(), keys: current.clone(), clock: clock.clone() };
        let signing_keys = || signing_keys::open(&keys, &auth_settings.encryption, database, clock.clone());
        let (followers, followed) = signing_keys::follow(signing_keys()?, &auth_settings, &current);
        let signing_keys = signing_keys()?;
        let mut services = vec![followed];
        if let Some(google) = google {
            services.push(google.service(&mut auth_settings, &clock)?);
        }
        let auth = auth::open(auth_settings, mail, text_transport, &foundation)?;
        services.push(auth::service(&auth));
        services.push(analytics::service(&foundation));
        let rest = rest.map(|settings| rest::open(settings, &foundation)).transpose()?;
        if let Some(rest) = &rest {
            services.extend([rest::service(rest), graphql::service(rest)]);
        }
        let reads = rest.as_ref().map(Rest::reads);
        let storage =
            storage_settings.map(|settings| storage::open(settings, reads.clone(), &foundation)).transpose()?;
        services.push(storage::service(storage.as_ref()));
        let avatars = storage.as_ref().filter(|_| keeps_avatars);
        let avatars = avatars.map(|storage| AvatarUpkeep::new(storage, &auth, database));
        services.extend(avatars.as_ref().map(AvatarUpkeep::service));
        let realtime = realtime_settings
            .map(|settings| realtime::open(settings, reads, followers.clone(), &foundation))
            .transpose()?;
        services.extend([functions::service(), realtime::service(realtime.as_ref(), &foundation)]);
        services.extend(mark.map(Mark::service));

        let mut gateway = Gateway::builder(current.clone(), clock)
            .refresh_keys(followers)
            .key_policy(key_policy)
            .trusted_proxies(trusted_proxies)
            .https(https);
        if let Some(pages) = secret_key_pages {
            gateway = gateway.secret_keys_from(pages);
        }
        if let Some(app) = web_app::compose(page, development)? {
            gateway = gateway.web_app(app);
        }
        let mut upkeep = Upkeep::default();
        for service in services {
            let (mounted, work) = service.mount_on(gateway);
            gateway = mounted;
            upkeep.start(work);
        }
        Ok(Self { gateway: gateway.build(), auth, storage, realtime, avatars, keys: current, signing_keys, upkeep })
    }

    /// Puts the signing keys of the database in force. Call it before the first request, so that no
    /// token is signed with a key that another one has replaced. Later changes are followed.
    ///
    /// # Errors
    /// When the database does not respond, or the key in use cannot be read.
    pub async fn load_keys(&self) -> Result<(), SigningKeyError> {
        self.signing_keys.load_into(&self.keys).await
    }

    /// Makes the bucket of the accounts' pictures again. Call it when the database was set up again
    /// while the server runs; a failure is logged, and repeated by the periodic work.
    pub async fn restore_avatars(&self) {
        let Some(avatars) = &self.avatars else { return };
        if let Err(error) = avatars.prepare().await {
            tracing::warn!(error = %error, "the bucket of avatars could not be made");
        }
    }

    /// Returns the keys in force.
    #[must_use]
    pub fn keys(&self) -> &CurrentKeys {
        &self.keys
    }

    /// Returns what responds to the server's requests, for [`portico_gateway::serve`].
    #[must_use]
    pub fn gateway(&self) -> Gateway {
        self.gateway.clone()
    }

    /// Closes the sockets of the realtime service, so that their clients connect again elsewhere.
    /// The closes are spread over at most half of `drain`, so that the clients do not return in one
    /// instant and have the other half to acknowledge. Call it when the server takes no more
    /// requests.
    pub fn close_sockets(&self, drain: Duration) {
        if let Some(realtime) = &self.realtime {
            realtime.close(drain / 2);
        }
    }

    /// Writes what the services hold in memory. Call it after the last request and before the
    /// database is closed.
    pub async fn finish(self) {
        self.upkeep.close().await;
    }

    /// Returns the storage service, if it is turned on.
    #[must_use]
    pub fn storage(&self) -> Option<&Storage> {
        self.storage.as_ref()
    }

    /// Returns the realtime service, if it is turned on.
    #[must_use]
    pub fn realtime(&self) -> Option<&Realtime> {
        self.realtime.as_ref()
    }

    /// Returns the account service, for commands, and for tests that run its clean-up themselves.
    #[must_use]
    pub fn auth(&self) -> &Auth {
        &self.auth
    }
}
