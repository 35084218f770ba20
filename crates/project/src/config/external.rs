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
        let position = external.position(name);
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
                position,
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
        let (mut count, mut issuer) = (0, None);
        for (provider, read) in ISSUERS {
            let mut section = third_party.section(provider);
            let enabled = section.flag_or("enabled", false);
            section.quiet_unless(enabled);
            let found = read(&mut section);
            if enabled {
                count += 1;
                issuer = issuer.or(found.map(|found| ConfiguredIssuer { provider: provider.to_owned(), ..found }));
            }
        }
        // Incomplete ones count as well, so that all problems are reported at once
        if count > 1 {
            third_party
                .fail("", "Invalid config: Only one third_party provider allowed to be enabled at a time.".to_owned());
        }
        Self { issuer }
    }
}

/// Reads the section of a provider. `None`: a field is missing.
type ReadIssuer = fn(&mut Section<'_, '_, '_>) -> Option<ConfiguredIssuer>;

const ISSUERS: [(&str, ReadIssuer); 5] =
    [("firebase", firebase), ("auth0", auth0), ("aws_cognito", cognito), ("clerk", clerk), ("workos", workos)];

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

fn firebase(section: &mut Section<'_, '_, '_>) -> Option<ConfiguredIssuer> {
    let project = field(section, "project_id")?;
    let url = format!("https://securetoken.google.com/{project}");
    Some(ConfiguredIssuer { url, audience: Some(project), ..ConfiguredIssuer::default() })
}

fn auth0(section: &mut Section<'_, '_, '_>) -> Option<ConfiguredIssuer> {
    let tenant = field(section, "tenant");
    let region = section.text("tenant_region").filter(|region| !region.is_empty());
    let region = region.map(|region| format!(".{region}")).unwrap_or_default();
    let url = format!("https://{}{region}.auth0.com", tenant?);
    Some(ConfiguredIssuer { url, ..ConfiguredIssuer::default() })
}

fn cognito(section: &mut Section<'_, '_, '_>) -> Option<ConfiguredIssuer> {
    let pool = field(section, "user_pool_id");
    let region = field(section, "user_pool_region");
    let (pool, region) = pool.zip(region)?;
    let url = format!("https://cognito-idp.{region}.amazonaws.com/{pool}");
    Some(ConfiguredIssuer { url, ..ConfiguredIssuer::default() })
}

fn clerk(section: &mut Section<'_, '_, '_>) -> Option<ConfiguredIssuer> {
    let domain = field(section, "domain")?;
    if !is_clerk_domain(&domain) && !section.is_quiet() {
        section.fail(
            "domain",
            "Invalid config: auth.third_party.clerk has invalid domain, it usually is like clerk.example.com or \
             example.clerk.accounts.dev. Check https://clerk.com/setup/supabase on how to find the correct value.",
        );
    }
    Some(ConfiguredIssuer { url: format!("https://{domain}"), ..ConfiguredIssuer::default() })
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

fn workos(section: &mut Section<'_, '_, '_>) -> Option<ConfiguredIssuer> {
    let url = field(section, "issuer_url")?;
    // Older environments name the bare origin. The keys are those of the client, so tokens of other
    // clients are not accepted
    let origin = url.split_once("/user_management/").map(|(origin, _)| origin.to_owned());
    Some(ConfiguredIssuer { url, other_names: origin.into_iter().collect(), ..ConfiguredIssuer::default() })
}
