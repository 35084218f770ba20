//! The site that passkeys and security keys are for: `[auth.webauthn]`, or the site's own address.

use portico_auth::settings::{AuthSettings, RelyingPartySettings};
use portico_project::{AuthConfig, Config};

/// Returns the relying party that `[auth.webauthn]` describes, if something uses it.
pub(super) fn relying_party(auth: &AuthConfig) -> Option<RelyingPartySettings> {
    auth.webauthn.as_ref().filter(|_| is_used(auth)).map(|own| RelyingPartySettings {
        id: own.rp_id.clone(),
        display_name: own.rp_display_name.clone(),
        origins: own.rp_origins.clone(),
        any_port_of_localhost: false,
    })
}

/// Returns true if passkeys or security keys are enabled.
fn is_used(auth: &AuthConfig) -> bool {
    let keys = &auth.mfa.web_authn;
    auth.passkey.enabled || keys.enroll_enabled || keys.verify_enabled
}

/// Fills in the relying party of passkeys and security keys where `[auth.webauthn]` is absent: the
/// site, under the product's name. In development that is usually `localhost`, at any port.
pub(in crate::compose) fn complete_relying_party(
    settings: &mut AuthSettings,
    config: &Config,
    name: &str,
    development: bool,
) {
    if !is_used(&config.auth) {
        return;
    }
    if settings.relying_party.is_none() {
        let of_site = RelyingPartySettings::of_site(&settings.site_url, &[&settings.external_url]);
        settings.relying_party = of_site.map(|party| RelyingPartySettings {
            any_port_of_localhost: development && party.id == "localhost",
            ..party
        });
    }
    if let Some(party) = &mut settings.relying_party
        && party.display_name.is_empty()
    {
        name.clone_into(&mut party.display_name);
    }
}

/// Returns what a developer must know to use passkeys at `port` of this machine: browsers bind them
/// to a name, and the usual address of the server has none.
#[must_use]
pub fn passkey_hint(settings: &AuthSettings, port: u16) -> Option<String> {
    if !settings.passkeys.enabled {
        return None;
    }
    match &settings.relying_party {
        Some(party) if party.id == "localhost" => Some(format!(
            "NOTE: passkeys work on pages of http://localhost, such as http://localhost:{port}, not of 127.0.0.1"
        )),
        Some(_) => None,
        None => Some(format!(
            "WARN: passkeys cannot be used: [auth] site_url is {:?}, which has no domain name; set [auth.webauthn]",
            settings.site_url
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::auth::settings;

    #[test]
    fn passkeys_need_no_more_than_their_switch_in_development() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = |text: &str| {
            let supabase = folder.path().join("supabase");
            std::fs::create_dir_all(&supabase).expect("it can be made");
            std::fs::write(supabase.join("config.toml"), text).expect("it can be written");
            let options = portico_project::LoadOptions {
                workdir: Some(folder.path().to_owned()),
                ..portico_project::LoadOptions::default()
            };
            portico_project::Project::load(options).expect("it is valid").config().clone()
        };
        let party = |text: &str, development: bool| {
            let config = config(text);
            let mut own = settings(&config);
            complete_relying_party(&mut own, &config, "Shop", development);
            own.validate().expect("they are valid");
            (own.relying_party.clone(), passkey_hint(&own, 54321))
        };
        assert_eq!(party("[auth]\n", true), (None, None));
        let (own, hint) = party("[auth.passkey]\nenabled = true\n", true);
        let own = own.expect("there is one");
        assert_eq!((&*own.id, &*own.display_name, own.any_port_of_localhost), ("localhost", "Shop", true));
        assert_eq!(own.origins, ["http://localhost:3000", "http://localhost:54321"]);
        assert!(hint.expect("there is one").contains("http://localhost:54321"));
        let text = "[auth]\nsite_url = \"https://app.example\"\n[auth.passkey]\nenabled = true\n";
        let own = party(text, true).0.expect("there is one");
        assert_eq!((&*own.id, own.any_port_of_localhost), ("app.example", false));
        let text = "[auth]\nsite_url = \"http://192.0.2.1:3000\"\n[auth.passkey]\nenabled = true\n";
        let (own, hint) = party(text, true);
        assert!(own.is_none() && hint.expect("there is one").contains("192.0.2.1"));
        let text = "[auth.passkey]\nenabled = true\n[auth.webauthn]\nrp_id = \"app.example\"\n\
                    rp_display_name = \"Acme\"\nrp_origins = [\"https://app.example\"]\n";
        let own = party(text, false).0.expect("there is one");
        assert_eq!((&*own.id, &*own.display_name, own.any_port_of_localhost), ("app.example", "Acme", false));
    }
}
