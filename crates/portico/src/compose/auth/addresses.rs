//! The addresses of the account service and of the pages that it leads to.

use portico_auth::settings::AuthSettings;
use portico_project::Config;

/// Replaces the addresses that the configuration does not set itself by those at `public_url`,
/// under which clients reach the server.
pub fn at_public_url(settings: &mut AuthSettings, config: &Config, public_url: &str) {
    let auth = &config.auth;
    // Without an application of its own, the web app at the public address is the site
    if !auth.has_site_url {
        settings.site_url = public_url.to_owned();
    }
    if !auth.has_external_url {
        settings.external_url = format!("{public_url}/auth/v1");
    }
    if !auth.has_jwt_issuer {
        settings.jwt.issuer.clone_from(&settings.external_url);
    }
    let callback = format!("{}/callback", settings.jwt.issuer);
    for (name, provider) in &auth.external {
        if let Some(known) = settings.external.get_mut(name)
            && !provider.has_redirect_uri
        {
            known.redirect_uri.clone_from(&callback);
        }
    }
    let own = format!("{}/**", config.api.external_url);
    settings.redirect_allow_list.retain(|pattern| *pattern != own);
    settings.redirect_allow_list.push(format!("{public_url}/**"));
}

/// Adds the pages of the web app at `origin` that emails link to, unless the settings name
/// others.
pub fn link_to_web_app(settings: &mut AuthSettings, origin: &str) {
    let email = &mut settings.email;
    email.security_page.get_or_insert_with(|| format!("{origin}/app/security"));
    email.recovery_page.get_or_insert_with(|| format!("{origin}/forgot-password"));
    email.sign_in_page.get_or_insert_with(|| format!("{origin}/sign-in"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emails_link_to_the_web_app_unless_the_settings_name_other_pages() {
        let mut settings = AuthSettings::default();
        settings.email.recovery_page = Some("https://app.example/reset".into());
        link_to_web_app(&mut settings, "https://accounts.example");
        assert_eq!(settings.email.security_page.as_deref(), Some("https://accounts.example/app/security"));
        assert_eq!(settings.email.recovery_page.as_deref(), Some("https://app.example/reset"));
        assert_eq!(settings.email.sign_in_page.as_deref(), Some("https://accounts.example/sign-in"));
    }
}
