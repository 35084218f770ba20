//! The web app inside the program, and the document that it reads when it starts.

use portico_auth::AuthSettings;
use portico_auth::settings::FactorSwitches;
use portico_gateway::WebApp;
use portico_project::portico_toml::{AnalyticsAdapter, WebSettings};
use serde_json::{Value, json};

/// The built web app, by path. Empty if it was not built before the program.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/web_files.rs"));

/// Returns the files of the web app, if this build has them.
fn files() -> Option<&'static [(&'static str, &'static [u8])]> {
    (!FILES.is_empty()).then_some(FILES)
}

/// Returns true if this build has the web app.
#[must_use]
pub fn is_included() -> bool {
    files().is_some()
}

/// The facts about the server that the web app depends on.
#[derive(Debug, Clone, Copy)]
pub struct PageFacts<'a> {
    /// The API key of requests without a session.
    pub publishable_key: &'a str,
    /// The address of the mailbox of captured messages, in development.
    pub mailbox: Option<&'a str>,
    /// True for a development server.
    pub development: bool,
    /// `[web]` of the configuration.
    pub web: &'a WebSettings,
    /// The path of the product's own mark.
    pub mark: Option<&'a str>,
    /// The settings of the account service.
    pub auth: &'a AuthSettings,
}

/// Returns the document at `/portico/config.json`. It is public.
#[must_use]
pub fn config(facts: PageFacts<'_>) -> Value {
    let PageFacts { publishable_key, mailbox, development, web, mark, auth } = facts;
    let analytics = match &web.analytics {
        AnalyticsAdapter::Builtin => json!({ "adapter": "builtin", "key": null, "host": null }),
        AnalyticsAdapter::Posthog { key, host } => json!({ "adapter": "posthog", "key": key, "host": host }),
        AnalyticsAdapter::Ga4 { measurement_id } => json!({ "adapter": "ga4", "key": measurement_id, "host": null }),
        AnalyticsAdapter::None => json!({ "adapter": "none", "key": null, "host": null }),
    };
    // The links that have to be opened to change the address: one of the mails to the old and the
    // new address, both, or the one to the new address
    let email_change = match (auth.email.secure_change, auth.email.autoconfirm) {
        (false, _) => "new",
        (true, true) => "either",
        (true, false) => "both",
    };
    let offered = &auth.factors;
    let code_length = json!({
        "email": auth.email.otp_length,
        "phone": auth.sms.otp_length,
        "factor": offered.phone.otp_length,
    });
    // A factor that could be added and not used would lock its owner out
    let is_offered = |switches: FactorSwitches| switches.enroll && switches.verify;
    let factors = json!({
        "totp": is_offered(offered.totp),
        "phone": is_offered(offered.phone.switches),
        "securityKey": is_offered(offered.webauthn),
    });
    json!({
        // The API is on the page's own origin, under the name by which it was opened
        "url": null,
        "anonKey": publishable_key,
        "development": development,
        "mailbox": mailbox,
        "brand": { "name": web.brand.name, "accent": web.brand.accent, "mark": mark },
        "analytics": analytics,
        "accounts": {
            "manualLinking": auth.manual_linking,
            "emailChange": email_change,
            "codeLength": code_length,
            "factors": factors,
        },
    })
}

/// Composes the web app. `None` if this build has none.
///
/// # Errors
/// When the configured analytics host is not an origin.
pub(super) fn compose(config: Value, development: bool) -> anyhow::Result<Option<WebApp>> {
    let Some(files) = files() else {
        tracing::warn!("this build has no web app inside: run `make build` to build both");
        return Ok(None);
    };
    let app = WebApp::from_files(files)?.with_config(config.clone()).development(development);
    Ok(Some(allow_adapter(app, &config)?))
}

/// Allows the page to connect to the analytics service that `config` names, and to no other.
///
/// # Errors
/// When the configured host is not an origin.
fn allow_adapter(app: WebApp, config: &Value) -> anyhow::Result<WebApp> {
    let analytics = &config["analytics"];
    Ok(match analytics["adapter"].as_str() {
        Some("posthog") => app.allow_origin(analytics["host"].as_str().unwrap_or_default())?,
        Some("ga4") => app
            .allow_origin("https://www.googletagmanager.com")?
            .allow_origin("https://region1.google-analytics.com")?
            .allow_origin("https://www.google-analytics.com")?,
        _ => app,
    })
}

#[cfg(test)]
mod tests {
    use portico_project::portico_toml::BrandSettings;

    use super::*;

    #[test]
    fn the_page_reads_what_the_account_service_allows() {
        let brand = BrandSettings { name: "Shop".into(), mark: None, accent: None };
        let web = WebSettings { brand, analytics: AnalyticsAdapter::None };
        let mut auth = AuthSettings::default();
        let config_for = |auth: &AuthSettings| {
            let facts = PageFacts {
                publishable_key: "sb_publishable_x",
                mailbox: None,
                development: false,
                web: &web,
                mark: Some("/portico/brand/mark-1.svg"),
                auth,
            };
            config(facts)
        };
        assert_eq!(
            config_for(&auth)["brand"],
            json!({ "name": "Shop", "accent": null, "mark": "/portico/brand/mark-1.svg" })
        );
        assert_eq!(
            config_for(&auth)["accounts"],
            json!({
                "manualLinking": false,
                "emailChange": "both",
                "codeLength": { "email": 6, "phone": 6, "factor": 6 },
                "factors": { "totp": true, "phone": false, "securityKey": false },
            })
        );
        auth.manual_linking = true;
        auth.email.autoconfirm = true;
        auth.email.otp_length = 8;
        auth.sms.otp_length = 10;
        auth.factors.phone.otp_length = 7;
        auth.factors.phone.switches = FactorSwitches { enroll: true, verify: true };
        auth.factors.webauthn = FactorSwitches { enroll: true, verify: false };
        assert_eq!(
            config_for(&auth)["accounts"],
            json!({
                "manualLinking": true,
                "emailChange": "either",
                "codeLength": { "email": 8, "phone": 10, "factor": 7 },
                "factors": { "totp": true, "phone": true, "securityKey": false },
            })
        );
        auth.email.secure_change = false;
        assert_eq!(config_for(&auth)["accounts"]["emailChange"], "new");
    }
}
