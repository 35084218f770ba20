//! The whole server, apart from where its settings come from and where its database is.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use ipnet::IpNet;
use portico_analytics::Analytics;
use portico_auth::{Auth, AuthSettings, TextTransport};
use portico_base::{AllowedOrigins, Clock};
use portico_database::Database;
use portico_gateway::{Access, BoxedResponse, Cors, Gateway, GatewayHeaders, KeyPolicy, WebApp};
use portico_mail::Transport;
use portico_rest::{Rest, RestSettings};
use serde_json::Value;

use crate::upkeep::Upkeep;
use crate::wiring::keys::Keys;
use crate::wiring::{graphql, missing_services, page};

/// What a server is made of.
pub struct ServerSettings {
    /// The account service.
    pub auth: AuthSettings,
    /// The data API; `None`: there is none.
    pub rest: Option<RestSettings>,
    /// What signs, verifies and opens.
    pub keys: Keys,
    /// Who needs an API key.
    pub key_policy: KeyPolicy,
    /// Who delivers mail.
    pub mail: Arc<dyn Transport>,
    /// Who delivers text messages, if anybody does.
    pub texts: Option<Arc<dyn TextTransport>>,
    /// What the page reads when it starts; see [`page`].
    pub page: Value,
    /// Proxies whose word on the client's address is taken.
    pub trusted_proxies: Vec<IpNet>,
    /// People reach the server by https.
    pub https: bool,
    /// A development server: its page may talk to every port of this machine.
    pub development: bool,
    /// The pages from which secret keys and tokens with a service's rights are taken; `None`: from every page. Set where the keys
    /// are published ones.
    pub secret_key_pages: Option<AllowedOrigins>,
    /// Further routers: development stand-ins.
    pub mounts: Vec<Mount>,
    /// The time.
    pub clock: Clock,
}

/// A router that the gateway serves below a path.
pub struct Mount {
    /// The path, without a slash at its end.
    pub prefix: String,
    /// What answers there.
    pub router: Router,
    /// The rules for its requests.
    pub access: Access,
}

/// A server that is ready to be served. Its background work ends when it is dropped.
pub struct Server {
    gateway: Gateway,
    auth: Auth,
    analytics: Analytics,
    rest: Option<Rest>,
    _upkeep: Upkeep,
}

impl Server {
    /// Puts the rooms together.
    ///
    /// # Errors
    /// When a setting can not work; the text names it.
    pub fn new(settings: ServerSettings, database: &Database) -> anyhow::Result<Self> {
        let ServerSettings {
            auth,
            rest,
            keys,
            key_policy,
            mail,
            texts,
            page,
            trusted_proxies,
            https,
            development,
            secret_key_pages,
            mounts,
            clock,
        } = settings;
        let mut auth = Auth::new(auth, database.clone(), keys.ring.clone(), mail, clock.clone())
            .context("the settings of [auth] can not work")?;
        if let Some(texts) = texts {
            auth = auth.with_texts(texts);
        }
        let analytics = Analytics::new(database.clone(), clock.clone());
        let rest = rest
            .map(|settings| Rest::new(settings, database.clone(), keys.ring.clone(), clock.clone()))
            .transpose()
            .context("the data API")?;
        let mut gateway = Gateway::builder(keys.ring, keys.api, clock)
            .key_policy(key_policy)
            .trusted_proxies(trusted_proxies)
            .https(https)
            .mount("/auth/v1", auth.router(), auth_access())
            .mount("/portico/v1", analytics.router(), Access::open());
        if let Some(rest) = &rest {
            let service = rest.clone();
            let answer = move |request, gateway_headers: GatewayHeaders| -> BoxedResponse {
                let service = service.clone();
                Box::pin(async move { service.answer(request, |headers| gateway_headers.write_to(headers)).await })
            };
            let service = rest.clone();
            let graphql = move |request, gateway_headers: GatewayHeaders| -> BoxedResponse {
                Box::pin(graphql::answer(service.clone(), request, gateway_headers))
            };
            gateway = gateway.mount_service(graphql::PREFIX, graphql, rest_access(rest));
            gateway = gateway.mount_service("/rest/v1", answer, rest_access(rest)).mount(
                "/rest-admin/v1",
                rest.admin_router(),
                Access::open().compressed(),
            );
        }
        for Mount { prefix, router, access } in missing_services::mounts().into_iter().chain(mounts) {
            gateway = gateway.mount(&prefix, router, access);
        }
        if let Some(pages) = secret_key_pages {
            gateway = gateway.secret_keys_from(pages);
        }
        gateway = match page::files() {
            Some(files) => gateway.web_app(page::allow_adapter(
                WebApp::from_files(files)?.with_config(page.clone()).development(development),
                &page,
            )?),
            None => {
                tracing::warn!("This build has no web app inside: run `make build` to build both");
                gateway
            }
        };
        let upkeep = Upkeep::start(auth.clone(), analytics.clone(), database.clone());
        Ok(Self { gateway: gateway.build(), auth, analytics, rest, _upkeep: upkeep })
    }

    /// Everything the server answers.
    pub fn gateway(&self) -> Gateway {
        self.gateway.clone()
    }

    /// Writes what waits to be written: the last thing before the database is closed.
    pub async fn finish(self) {
        if !self.analytics.flush().await {
            tracing::warn!("Some analytics events could not be written");
        }
        if let Some(rest) = self.rest {
            rest.close();
        }
    }

    /// The account service, for upkeep by hand.
    #[must_use]
    pub fn auth(&self) -> &Auth {
        &self.auth
    }
}

/// The largest body of a write, in bytes: it is held in memory once.
const LARGEST_WRITE: usize = 64 * 1024 * 1024;
/// The hosted gateway gives requests of the data API so long; statements have shorter limits of their own.
const LONGEST_READ: Duration = Duration::from_secs(125);

fn rest_access(rest: &Rest) -> Access {
    let rest = rest.clone();
    let cors = Cors::default()
        .methods("GET, POST, PATCH, PUT, DELETE, OPTIONS, HEAD")
        .headers("Authorization, Accept, Accept-Language, Content-Language")
        .max_age(Duration::from_secs(24 * 60 * 60))
        .exposing("Server, Transfer-Encoding, Range-Unit")
        .origins(move |origin| rest.admits_page(origin));
    Access::keyed().body_limit(LARGEST_WRITE).timeout(Some(LONGEST_READ)).cors(cors).compressed()
}

/// Links in mails and redirects of providers arrive without an API key. The service has a limit of its own for bodies. Answers are
/// never compressed: many hold tokens, beside what people wrote of themselves.
fn auth_access() -> Access {
    Access::keyed().body_limit(usize::MAX).except([
        "/verify",
        "/callback",
        "/authorize",
        "/.well-known/jwks.json",
        "/.well-known/openid-configuration",
        "/.well-known/oauth-authorization-server",
        "/sso/saml/acs",
        "/sso/saml/metadata",
        "/health",
    ])
}
