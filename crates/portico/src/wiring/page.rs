//! The web app inside the program, and what it is told when it starts.

use portico_auth::AuthSettings;
use portico_gateway::WebApp;
use portico_project::portico_toml::{AnalyticsAdapter, WebSettings};
use serde_json::{Value, json};

/// The built web app, by path; empty when it was not built before the program.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/web_files.rs"));

/// The web app's files, when this build has them.
#[must_use]
pub fn files() -> Option<&'static [(&'static str, &'static [u8])]> {
    (!FILES.is_empty()).then_some(FILES)
}

/// What the page is told about the server it comes from.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The key that calls carry while nobody is signed in.
    pub publishable_key: &'a str,
    /// Where captured messages are read, in development.
    pub mailbox: Option<&'a str>,
    /// Whether this is a development server.
    pub development: bool,
    /// `[web]` of the configuration.
    pub web: &'a WebSettings,
    /// Path of the product's own mark.
    pub mark: Option<&'a str>,
    /// The account service as it runs.
    pub auth: &'a AuthSettings,
}

/// The document at `/portico/config.json`. It is public.
#[must_use]
pub fn config(facts: Facts<'_>) -> Value {
    let Facts { publishable_key, mailbox, development, web, mark, auth } = facts;
    let analytics = match &web.analytics {
        AnalyticsAdapter::Builtin => json!({ "adapter": "builtin", "key": null, "host": null }),
        AnalyticsAdapter::Posthog { key, host } => json!({ "adapter": "posthog", "key": key, "host": host }),
        AnalyticsAdapter::Ga4 { measurement_id } => json!({ "adapter": "ga4", "key": measurement_id, "host": null }),
        AnalyticsAdapter::None => json!({ "adapter": "none", "key": null, "host": null }),
    };
    // Which of the mails about another address have to be answered (auth-core, 7.3)
    let email_change = match (auth.email.secure_change, auth.email.autoconfirm) {
        (false, _) => "new",
        (true, true) => "either",
        (true, false) => "both",
    };
    let code_length = json!({ "email": auth.email.otp_length, "phone": auth.sms.otp_length });
    json!({
        // The API is on the page's own origin, by whichever name a person has opened it.
        "url": null,
        "anonKey": publishable_key,
        "development": development,
        "mailbox": mailbox,
        "brand": { "name": web.brand.name, "accent": web.brand.accent, "mark": mark },
        "analytics": analytics,
        "accounts": { "manualLinking": auth.manual_linking, "emailChange": email_change, "codeLength": code_length },
    })
}

/// Lets the page reach the analytics service that `config` names, and no other.
///
/// # Errors
/// When the configured host is no origin.
pub fn allow_adapter(app: WebApp, config: &Value) -> anyhow::Result<WebApp> {
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
    fn the_page_learns_what_the_account_service_allows() {
        let brand = BrandSettings { name: "Shop".into(), mark: None, accent: None };
        let web = WebSettings { brand, analytics: AnalyticsAdapter::None };
        let mut auth = AuthSettings::default();
        let told = |auth: &AuthSettings| {
            let facts = Facts {
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
            told(&auth)["brand"],
            json!({ "name": "Shop", "accent": null, "mark": "/portico/brand/mark-1.svg" })
        );
        assert_eq!(
            told(&auth)["accounts"],
            json!({ "manualLinking": false, "emailChange": "both", "codeLength": { "email": 6, "phone": 6 } })
        );
        auth.manual_linking = true;
        auth.email.autoconfirm = true;
        auth.email.otp_length = 8;
        auth.sms.otp_length = 10;
        assert_eq!(
            told(&auth)["accounts"],
            json!({ "manualLinking": true, "emailChange": "either", "codeLength": { "email": 8, "phone": 10 } })
        );
        auth.email.secure_change = false;
        assert_eq!(told(&auth)["accounts"]["emailChange"], "new");
    }
}
