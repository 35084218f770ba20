//! The web app inside the program, and what it is told when it starts.

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

/// The document at `/portico/config.json`. It is public.
#[must_use]
pub fn config(publishable_key: &str, mailbox: Option<&str>, development: bool, web: &WebSettings) -> Value {
    let analytics = match &web.analytics {
        AnalyticsAdapter::Builtin => json!({ "adapter": "builtin", "key": null, "host": null }),
        AnalyticsAdapter::Posthog { key, host } => json!({ "adapter": "posthog", "key": key, "host": host }),
        AnalyticsAdapter::Ga4 { measurement_id } => json!({ "adapter": "ga4", "key": measurement_id, "host": null }),
        AnalyticsAdapter::None => json!({ "adapter": "none", "key": null, "host": null }),
    };
    json!({
        // The API is on the page's own origin, by whichever name a person has opened it.
        "url": null,
        "anonKey": publishable_key,
        "development": development,
        "mailbox": mailbox,
        "brand": { "name": web.brand.name, "accent": web.brand.accent, "mark": null },
        "analytics": analytics,
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
