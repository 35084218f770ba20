//! Identity providers: `[auth.external]`, `[auth.web3]`, `[auth.oauth_server]`,
//! `[auth.third_party]`.

use std::collections::BTreeMap;

use portico_base::Secret;

use crate::error::WarningKind;
use crate::section::Section;

/// `[auth.external.<provider>]`
#[derive(Debug, Clone)]
pub struct ExternalProvider {
    /// True if users can sign in with it.
    pub enabled: bool,
    /// Client ids, separated by commas. `None`: not set, or its variable is unset.
    pub client_id: Option<String>,
    /// Client secret. `None`: not set, or its variable is unset.
    pub secret: Option<Secret>,
    /// Base URL of a self-hosted or tenant-specific provider.
    pub url: Option<String>,
    /// The address to which the provider redirects: normally `<auth.jwt_issuer>/callback`.
    pub redirect_uri: String,
    /// True if [`redirect_uri`](Self::redirect_uri) is written, false if it is derived.
    pub has_redirect_uri: bool,
    /// True if id tokens without a nonce are accepted.
    pub skip_nonce_check: bool,
    /// True if accounts without an email address are accepted.
    pub email_optional: bool,
}

/// Old names and their replacements.
const DEPRECATED: [(&str, &str); 2] = [("linkedin", "linkedin_oidc"), ("slack", "slack_oidc")];

pub(crate) fn providers(mut external: Section<'_, '_, '_>, issuer: &str) -> BTreeMap<String, ExternalProvider> {
    let mut providers = BTreeMap::new();
    for (name, section) in external.sections() {
        let place = external.place(name);
        let is_quiet = section.is_quiet();
        let reading = section.reading();
        let deprecated = DEPRECATED.iter().find(|(old, _)| *old == name);
        let provider = ExternalProvider::read(section, issuer, deprecated.is_none());
        match deprecated {
            None => {
                providers.insert(name.to_owned(), provider);
            }
            Some((old, new)) if provider.enabled && !is_quiet => reading.warn(
                WarningKind::Adjusted,
                place,
                format!("auth.external.{old}"),
                format!("disabling deprecated \"{old}\" provider. Please use [auth.external.{new}] instead"),
            ),
            Some(_) => {}
        }
    }
    providers
}

impl ExternalProvider {
    fn read(mut provider: Section<'_, '_, '_>, issuer: &str, is_checked: bool) -> Self {
        let enabled = provider.flag_or("enabled", false);
        provider.quiet_unless(enabled && is_checked);
        let client_id = provider.text("client_id").filter(|id| !id.is_empty());
        let secret = provider.secret("secret");
        provider.require("client_id", client_id.is_some());
        let name = provider.key("");
        let needs_secret = !matches!(name.as_str(), "auth.external.apple" | "auth.external.google");
        provider.require("secret", secret.is_some() || !needs_secret);
        let redirect_uri = provider.text("redirect_uri").filter(|uri| !uri.is_empty());
        Self {
            enabled,
            client_id,
            secret,
            url: provider.text("url").filter(|url| !url.is_empty()),
            has_redirect_uri: redirect_uri.is_some(),
            redirect_uri: redirect_uri.unwrap_or_else(|| format!("{issuer}/callback")),
            skip_nonce_check: provider.flag_or("skip_nonce_check", false),
            email_optional: provider.flag_or("email_optional", false),
        }
    }
}

/// `[auth.web3]`
#[derive(Debug, Clone)]
pub struct Web3Config {
    /// `[auth.web3.solana] enabled`
    pub solana: bool,
    /// `[auth.web3.ethereum] enabled`
    pub ethereum: bool,
}

impl Web3Config {
    pub(crate) fn read(mut web3: Section<'_, '_, '_>) -> Self {
        Self {
            solana: web3.section("solana").flag_or("enabled", false),
            ethereum: web3.section("ethereum").flag_or("enabled", false),
        }
    }
}

/// `[auth.oauth_server]`
#[derive(Debug, Clone)]
pub struct OauthServerConfig {
    /// True if this server is an OAuth provider for other applications.
    pub enabled: bool,
    /// Path of the consent page on `auth.site_url`.
    pub authorization_url_path: String,
    /// True if clients may register themselves.
    pub allow_dynamic_registration: bool,
}

impl OauthServerConfig {
    pub(crate) fn read(mut server: Section<'_, '_, '_>) -> Self {
        Self {
            enabled: server.flag_or("enabled", false),
            authorization_url_path: server.text_or("authorization_url_path", "/oauth/consent"),
            allow_dynamic_registration: server.flag_or("allow_dynamic_registration", false),
        }
    }
}

/// `[auth.third_party]`: at most one issuer whose tokens are accepted in addition.
#[derive(Debug, Clone, Default)]
pub struct ThirdPartyConfig {
    /// The enabled one.
    pub issuer: Option<ConfiguredIssuer>,
}

/// An issuer whose tokens are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredIssuer {
    /// `firebase`, `auth0`, `aws_cognito`, `clerk` or `workos`.
    pub provider: String,
    /// Its issuer URL.
    pub url: String,
    /// Further names of the issuer in its tokens.
    pub other_names: Vec<String>,
    /// The `aud` of its tokens, where the issuer's keys sign those of other customers too.
    pub audience: Option<String>,
}

impl ThirdPartyConfig {
    pub(crate) fn read(mut third_party: Section<'_, '_, '_>) -> Self {
        let found: Vec<ConfiguredIssuer> =
            [firebase, auth0, cognito, clerk, workos].into_iter().filter_map(|read| read(&mut third_party)).collect();
        if found.len() > 1 {
            third_party
                .fail("", "Invalid config: Only one third_party provider allowed to be enabled at a time.".to_owned());
        }
        Self { issuer: found.into_iter().next() }
    }
}

fn open<'r, 'e, 'n>(third_party: &mut Section<'r, 'e, 'n>, name: &'static str) -> (Section<'r, 'e, 'n>, bool) {
    let mut section = third_party.section(name);
    let enabled = section.flag_or("enabled", false);
    section.quiet_unless(enabled);
    (section, enabled)
}

/// Adds a problem if a field that an enabled provider requires is missing.
fn field(section: &mut Section<'_, '_, '_>, name: &'static str) -> Option<String> {
    let value = section.text(name);
    // A reference to an unset variable has its own warning
    let is_missing = match &value {
        Some(value) => value.is_empty(),
        None => !section.is_written(name),
    };
    if is_missing && !section.is_quiet() {
        let message = format!("Invalid config: {} is enabled but without a {name}.", section.key(""));
        section.fail(name, message);
    }
    value.filter(|value| !value.is_empty())
}

fn issuer(enabled: bool, provider: &str, url: Option<String>) -> Option<ConfiguredIssuer> {
    if !enabled {
        return None;
    }
    Some(ConfiguredIssuer { provider: provider.to_owned(), url: url?, other_names: Vec::new(), audience: None })
}

fn firebase(third_party: &mut Section<'_, '_, '_>) -> Option<ConfiguredIssuer> {
    let (mut section, enabled) = open(third_party, "firebase");
    let project = field(&mut section, "project_id");
    let url = project.as_ref().map(|project| format!("https://securetoken.google.com/{project}"));
    let issuer = issuer(enabled, "firebase", url)?;
    Some(ConfiguredIssuer { audience: project, ..issuer })
}

fn auth0(third_party: &mut Section<'_, '_, '_>) -> Option<ConfiguredIssuer> {
    let (mut section, enabled) = open(third_party, "auth0");
    let tenant = field(&mut section, "tenant");
    let region = section.text("tenant_region").filter(|region| !region.is_empty());
    let region = region.map(|region| format!(".{region}")).unwrap_or_default();
    issuer(enabled, "auth0", tenant.map(|tenant| format!("https://{tenant}{region}.auth0.com")))
}

fn cognito(third_party: &mut Section<'_, '_, '_>) -> Option<ConfiguredIssuer> {
    let (mut section, enabled) = open(third_party, "aws_cognito");
    let pool = field(&mut section, "user_pool_id");
    let region = field(&mut section, "user_pool_region");
    let url = pool.zip(region).map(|(pool, region)| format!("https://cognito-idp.{region}.amazonaws.com/{pool}"));
    issuer(enabled, "aws_cognito", url)
}

fn clerk(third_party: &mut Section<'_, '_, '_>) -> Option<ConfiguredIssuer> {
    let (mut section, enabled) = open(third_party, "clerk");
    let domain = field(&mut section, "domain");
    if let Some(domain) = &domain
        && !is_clerk_domain(domain)
        && !section.is_quiet()
    {
        section.fail(
            "domain",
            "Invalid config: auth.third_party.clerk has invalid domain, it usually is like clerk.example.com or \
             example.clerk.accounts.dev. Check https://clerk.com/setup/supabase on how to find the correct value.",
        );
    }
    issuer(enabled, "clerk", domain.map(|domain| format!("https://{domain}")))
}

fn is_clerk_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(allowed)
    };
    let labels: Vec<&str> = domain.split('.').collect();
    labels.iter().all(|label| is_label(label))
        && match labels.as_slice() {
            [_, .., "clerk", "accounts", "dev"] => true,
            ["clerk", rest @ ..] => rest.len() >= 2,
            _ => false,
        }
}

fn workos(third_party: &mut Section<'_, '_, '_>) -> Option<ConfiguredIssuer> {
    let (mut section, enabled) = open(third_party, "workos");
    let url = field(&mut section, "issuer_url");
    // Older environments name the bare origin. The keys are those of the client, so tokens of other
    // clients are not accepted
    let origin =
        url.as_deref().and_then(|url| url.split_once("/user_management/")).map(|(origin, _)| origin.to_owned());
    let issuer = issuer(enabled, "workos", url)?;
    Some(ConfiguredIssuer { other_names: origin.into_iter().collect(), ..issuer })
}
