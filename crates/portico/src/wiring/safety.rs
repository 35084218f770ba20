//! What `portico serve` refuses, so that nobody runs an open door by accident.

use std::net::IpAddr;

use anyhow::{Context, bail};
use ipnet::IpNet;
use portico_auth::AuthSettings;
use portico_project::Config;
use portico_project::portico_toml::Settings;
use url::Url;

/// The address under which people reach the server.
///
/// # Errors
/// When it is missing, or neither https nor this machine.
pub fn public_url(settings: &Settings) -> anyhow::Result<String> {
    let Some(text) = &settings.server.public_url else {
        bail!(
            "the public address is missing: set it in supabase/portico.toml, for example\n\n  [server]\n  public_url = \"https://accounts.example.com\"\n"
        );
    };
    let url = Url::parse(text).context("[server] public_url in supabase/portico.toml")?;
    if !is_safe(&url) {
        bail!("[server] public_url must begin with https:// (sign-ins over plain http can be read by others)");
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// The networks whose proxies are believed; a single address is a network of one.
///
/// # Errors
/// When one is neither.
pub fn networks(texts: &[String]) -> anyhow::Result<Vec<IpNet>> {
    let parse = |text: &String| text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    texts.iter().map(|text| parse(text).with_context(|| format!("[server] trusted_proxies: {text:?}"))).collect()
}

/// Everything in the configuration that must not be so in production, each in one sentence that says what to do.
#[must_use]
pub fn problems(config: &Config, auth: &AuthSettings) -> Vec<String> {
    let mut problems = Vec::new();
    if !Url::parse(&auth.site_url).is_ok_and(|url| is_safe(&url)) {
        problems
            .push(format!("[auth] site_url is {:?}: set it to the https address of your application", auth.site_url));
    }
    for pattern in &auth.redirect_allow_list {
        if matches!(pattern.as_str(), "*" | "**" | "http://**" | "https://**" | "http*://**") {
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
    for (name, provider) in &auth.external {
        if provider.enabled && !provider.url.is_empty() && !provider.url.starts_with("https://") {
            problems.push(format!("[auth.external.{name}] url must begin with https://"));
        }
    }
    if auth.email.enabled && auth.email.autoconfirm {
        tracing::warn!(
            "[auth.email] enable_confirmations is off: anybody can open an account with anybody's e-mail address"
        );
    }
    problems
}

/// Whether what travels there can not be read on the way: https, or this machine.
fn is_safe(url: &Url) -> bool {
    match url.scheme() {
        "https" => true,
        "http" => matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")),
        // The application's own scheme, on a telephone.
        _ => !url.cannot_be_a_base() && url.scheme() != "javascript" && url.scheme() != "data",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_others_can_not_read_is_safe() {
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
}
