//! Checks that `portico serve` makes before it starts, so that an unsafe configuration is not
//! served by accident.

use std::net::IpAddr;

use anyhow::{Context, bail};
use ipnet::IpNet;
use portico_auth::AuthSettings;
use portico_auth::protection::redirect_allow_list::RedirectAllowList;
use portico_project::portico_toml::Settings;
use portico_project::{Config, Warning, WarningKind};
use url::Url;

/// Returns the address under which clients reach the server.
///
/// # Errors
/// When it is missing, or neither https nor on this machine.
pub fn public_url(settings: &Settings) -> anyhow::Result<String> {
    let Some(text) = &settings.server.public_url else {
        bail!(
            "the public address is missing: set it in supabase/portico.toml, for example\n\n  [server]\n  public_url = \"https://accounts.example.com\"\n\nor as PORTICO_SERVER_PUBLIC_URL in the environment"
        );
    };
    let url = Url::parse(text).context("[server] public_url in supabase/portico.toml")?;
    if !is_safe(&url) {
        bail!("[server] public_url must begin with https:// (sign-ins over plain http can be read by others)");
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Returns the networks of trusted proxies. A single address is a network of one.
///
/// # Errors
/// When an entry is neither a network nor an address.
pub fn networks(texts: &[String]) -> anyhow::Result<Vec<IpNet>> {
    let parse = |text: &String| text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    texts.iter().map(|text| parse(text).with_context(|| format!("[server] trusted_proxies: {text:?}"))).collect()
}

/// Returns the settings that are unsafe in production, each in one sentence that says what to
/// change.
#[must_use]
pub fn problems(config: &Config, auth: &AuthSettings) -> Vec<String> {
    let mut problems = Vec::new();
    if !Url::parse(&auth.site_url).is_ok_and(|url| is_safe(&url)) {
        problems
            .push(format!("[auth] site_url is {:?}: set it to the https address of your application", auth.site_url));
    }
    if is_remote(&auth.external_url) && !is_remote(&auth.site_url) {
        problems.push(format!(
            "[auth] site_url is {:?}: links in emails would lead people to their own machine; set it to the address of your application",
            auth.site_url
        ));
    }
    for pattern in &auth.redirect_allow_list {
        if matches_foreign_hosts(pattern) {
            problems.push(format!(
                "[auth] additional_redirect_urls contains {pattern:?}, which sends sessions anywhere: name your own hosts"
            ));
        }
    }
    let has_mail_server = config.auth.email.smtp.is_some();
    if auth.email.enabled && !auth.email.autoconfirm && !has_mail_server {
        problems.push(
            "[auth.email] enable_confirmations needs a mail server: set [auth.email.smtp], or turn [auth.email] enable_signup off"
                .to_owned(),
        );
    }
    if config.auth.passkey.enabled && config.auth.webauthn.is_none() {
        // Passkeys cannot move to another domain, so it is not taken from an address
        problems.push(
            "Missing required config section: auth.webauthn (required when auth.passkey.enabled is true)".to_owned(),
        );
    }
    if auth.relying_party.is_none() && config.auth.mfa.web_authn.enroll_enabled {
        problems.push(
            "[auth.mfa.web_authn] needs a domain: set [auth.webauthn], or [auth] site_url to an address with a name"
                .to_owned(),
        );
    }
    for (name, provider) in &auth.external {
        if provider.enabled && !provider.url.is_empty() && !provider.url.starts_with("https://") {
            problems.push(format!("[auth.external.{name}] url must begin with https://"));
        }
    }
    if let Some(third_party) = &auth.third_party {
        let mut urls = std::iter::once(&third_party.issuer.url)
            .chain(&third_party.issuer.other_names)
            .chain(&third_party.discovery_url);
        if urls.any(|url| !url.starts_with("https://")) {
            problems.push("[auth.third_party]: the address of the issuer must begin with https://".to_owned());
        }
    }
    if !auth.sms.test_otps.is_empty() {
        tracing::warn!("[auth.sms.test_otp] is set: anyone who knows these codes can sign in with these numbers");
    }
    if auth.email.enabled && auth.email.autoconfirm {
        tracing::warn!(
            "[auth.email] enable_confirmations is off: anyone can sign up with an email address of someone else"
        );
    }
    problems
}

/// Returns the settings of `[auth]` whose environment variable is not set, each in one sentence.
/// They count as absent, and a captcha, a hook or a mail server that is absent by accident leaves
/// the service unprotected.
#[must_use]
pub fn unset(warnings: &[Warning]) -> Vec<String> {
    warnings
        .iter()
        .filter(|warning| warning.kind == WarningKind::UnsetVariable && warning.key.starts_with("auth."))
        .map(|warning| format!("{}: {}: set the variable, or remove the setting", warning.key, warning.message))
        .collect()
}

/// Returns true if the address leads to a machine other than the one that opens it.
fn is_remote(url: &str) -> bool {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    !matches!(host.as_deref(), None | Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// Returns true if a pattern of the redirect allow list matches hosts that anyone can register.
fn matches_foreign_hosts(pattern: &str) -> bool {
    let foreign = ["com", "org", "net", "dev", "app", "io", "co.uk"]
        .iter()
        .flat_map(|ending| [format!("https://q7x-stranger.{ending}/"), format!("https://a.q7x-stranger.{ending}/x")]);
    // An invalid list is rejected by the account service, with the reason
    let list = RedirectAllowList::new("https://site.invalid", &[pattern.to_owned()]);
    pattern.trim() == "*"
        || list.is_ok_and(|list| {
            foreign.into_iter().any(|url| list.allows(&url) || list.allows(&url.replacen("https", "http", 1)))
        })
}

/// Returns true if traffic to the address cannot be read on the way: https, or this machine.
fn is_safe(url: &Url) -> bool {
    match url.scheme() {
        "https" => true,
        "http" => matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")),
        // The scheme of a mobile application
        _ => !url.cannot_be_a_base() && url.scheme() != "javascript" && url.scheme() != "data",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_others_cannot_read_is_safe() {
        for (url, safe) in [
            ("https://accounts.portico.test", true),
            ("http://127.0.0.1:54321", true),
            ("http://localhost:3000/app", true),
            ("http://accounts.portico.test", false),
            ("com.portico.app://home", true),
            ("javascript:alert(1)", false),
        ] {
            assert_eq!(is_safe(&Url::parse(url).unwrap()), safe, "{url}");
        }
    }

    #[test]
    fn an_unset_variable_is_reported_where_safety_depends_on_it() {
        let warning =
            |kind, key: &str| Warning { kind, position: None, key: key.to_owned(), message: "NOPE".to_owned() };
        let problems = unset(&[
            warning(WarningKind::UnsetVariable, "auth.captcha.secret"),
            warning(WarningKind::UnsetVariable, "studio.openai_api_key"),
            warning(WarningKind::UnknownKey, "auth.captcha.colour"),
        ]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("auth.captcha.secret"), "{problems:?}");
    }

    #[test]
    fn an_application_on_this_machine_is_of_no_use_to_others() {
        assert!(is_remote("https://accounts.portico.test/auth/v1"));
        assert!(!is_remote("http://127.0.0.1:3000"));
        assert!(!is_remote("com.portico.app:/home"));
    }

    #[test]
    fn a_redirect_pattern_must_name_its_hosts() {
        for (pattern, anywhere) in [
            ("*", true),
            ("**", true),
            ("https://**", true),
            ("http://**", true),
            ("{http,https}://**", true),
            ("http*://**", true),
            ("https://*.*/**", true),
            ("https://*.com/**", true),
            ("https://**.com/**", true),
            ("https://[a-z]*.dev/**", true),
            ("https://?**/**", true),
            ("https://app.example.com/**", false),
            ("https://*.example.com/**", false),
            ("https://*-team.example.app/**", false),
            ("com.portico.app://**", false),
            ("http://localhost:*/**", false),
        ] {
            assert_eq!(matches_foreign_hosts(pattern), anywhere, "{pattern}");
        }
    }
}
