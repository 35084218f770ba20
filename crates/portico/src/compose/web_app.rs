//! The web app inside the program, and the document that it reads when it starts.

use portico_auth::AuthSettings;
use portico_auth::settings::FactorSwitches;
use portico_base::colour::Colour;
use portico_gateway::WebApp;
use portico_project::portico_toml::{AnalyticsAdapter, WebSettings};
use serde_json::{Value, json};
use url::Url;

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

/// Returns the address at which browsers open the pages of a development server: that of its API,
/// but at the name of this machine instead of its IP address. Browsers bind passkeys to a name.
#[must_use]
pub fn address_in_browser(api: &str) -> String {
    let Ok(mut url) = Url::parse(api) else { return api.to_owned() };
    if url.host_str() != Some("127.0.0.1") || url.set_host(Some("localhost")).is_err() {
        return api.to_owned();
    }
    url.as_str().trim_end_matches('/').to_owned()
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
    /// The pictures of accounts.
    pub avatars: AvatarFacts,
    /// The realtime service is on, so that pages can follow changes.
    pub realtime: bool,
}

/// The facts about the pictures of accounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AvatarFacts {
    /// The storage service keeps them.
    pub are_kept: bool,
    /// The storage service renders images, so that each page gets the size that it needs.
    pub are_rendered: bool,
}

/// Returns the document at `/portico/config.json`. It is public.
#[must_use]
pub fn config(facts: PageFacts<'_>) -> Value {
    let PageFacts { publishable_key, mailbox, development, web, mark, auth, avatars, realtime } = facts;
    let analytics = match &web.analytics {
        AnalyticsAdapter::Builtin => json!({ "adapter": "builtin", "key": null, "host": null }),
        AnalyticsAdapter::Posthog { key, host } => json!({ "adapter": "posthog", "key": key, "host": host }),
        AnalyticsAdapter::Ga4 { measurement_id } => json!({ "adapter": "ga4", "key": measurement_id, "host": null }),
        AnalyticsAdapter::None => json!({ "adapter": "none", "key": null, "host": null }),
    };
    // The links that have to be opened to change the address: one of the emails to the old and the
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
    let password = json!({
        "minLength": auth.password.min_length,
        "requires": auth.password.required_characters.iter().map(|set| character_class(set)).collect::<Vec<_>>(),
    });
    json!({
        // The API is on the page's own origin, under the name by which it was opened
        "url": null,
        "anonKey": publishable_key,
        "development": development,
        "mailbox": mailbox,
        "brand": { "name": web.brand.name, "accent": web.brand.accent.map(accent), "mark": mark },
        "analytics": analytics,
        "accounts": {
            "manualLinking": auth.manual_linking,
            "emailChange": email_change,
            "codeLength": code_length,
            "factors": factors,
            "password": password,
        },
        "avatars": { "kept": avatars.are_kept, "rendered": avatars.are_rendered },
        "realtime": realtime,
        // A page shows the sign-in methods at once, and asks for the current ones
        "settings": portico_auth::public_settings(auth),
    })
}

/// Returns the class of a set of characters of which a password needs one.
fn character_class(set: &str) -> &'static str {
    let are_all = |is_of_class: fn(&char) -> bool| set.chars().all(|character| is_of_class(&character));
    match () {
        () if are_all(char::is_ascii_lowercase) => "lower",
        () if are_all(char::is_ascii_uppercase) => "upper",
        () if are_all(char::is_ascii_digit) => "digits",
        () if are_all(char::is_ascii_alphabetic) => "letters",
        () => "symbols",
    }
}

/// The backgrounds of text in `web/src/styles/tokens.css`: paper, surface and sunken, for light and
/// dark.
const LIGHT: [&str; 3] = ["#f9f8f5", "#ffffff", "#f1efea"];
const DARK: [&str; 3] = ["#0c1516", "#141e20", "#070e10"];
/// The part of the accent colour in `--accent-wash`.
const WASH: f64 = 0.11;

/// Returns the colours that follow from the accent colour of a product: of fills and the text on
/// them, and of text on light and on dark backgrounds.
fn accent(accent: Colour) -> Value {
    let text_on = |backgrounds: [&str; 3]| {
        let mut known: Vec<Colour> = backgrounds.into_iter().filter_map(Colour::parse).collect();
        let surface = known.get(1).copied().unwrap_or(Colour::WHITE);
        known.push(surface.mixed_with(accent, WASH));
        accent.readable_on(&known).to_string()
    };
    json!({
        "fill": accent.to_string(),
        "onFill": accent.text_on().to_string(),
        "light": text_on(LIGHT),
        "dark": text_on(DARK),
    })
}

/// Returns the content of the slots in `web/index.html`: the configuration, and the brand as it
/// shows before any script runs.
fn slots(config: &Value) -> Vec<(&'static str, String)> {
    let brand = &config["brand"];
    let name = escape(brand["name"].as_str().unwrap_or_default());
    // Within an element of scripts, only this character can end it or begin a comment
    let json = config.to_string().replace('<', "\\u003c");
    let mut slots = vec![
        ("config", format!(r#"<script type="application/json" id="config">{json}</script>"#)),
        ("title", format!("<title>{name}</title>")),
        ("name", name),
    ];
    if let Some(mark) = brand["mark"].as_str().map(escape) {
        slots.push(("icon", format!(r#"<link rel="icon" href="{mark}">"#)));
        slots.push(("mark", format!(r#"<img src="{mark}" alt="" width="26" height="26">"#)));
    }
    slots
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the web app's manifest, for its icon on a home screen.
fn manifest(brand: &Value) -> String {
    let icon = match brand["mark"].as_str() {
        Some(mark) => json!({ "src": mark, "sizes": "any" }),
        None => json!({ "src": "/favicon.svg", "sizes": "any", "type": "image/svg+xml" }),
    };
    let accent = brand["accent"]["fill"].as_str().unwrap_or("#006b64");
    json!({
        "name": brand["name"],
        "short_name": brand["name"],
        "start_url": "/app",
        "scope": "/",
        "display": "standalone",
        "background_color": LIGHT[0],
        "theme_color": accent,
        "icons": [icon],
    })
    .to_string()
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
    let mut app = WebApp::from_files(files)?
        .with_config(&config)
        .with_slots(&slots(&config))
        .with_document("site.webmanifest", manifest(&config["brand"]))
        .with_redirect("/.well-known/change-password", "/app/security")
        .development(development);
    if let Some(mark) = config["brand"]["mark"].as_str() {
        app = app.with_redirect("/favicon.ico", mark);
    }
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
    #![allow(clippy::unwrap_used)]

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
                avatars: AvatarFacts { are_kept: true, are_rendered: false },
                realtime: true,
            };
            config(facts)
        };
        assert_eq!(
            config_for(&auth)["brand"],
            json!({ "name": "Shop", "accent": null, "mark": "/portico/brand/mark-1.svg" })
        );
        assert_eq!(config_for(&auth)["avatars"], json!({ "kept": true, "rendered": false }));
        assert_eq!(config_for(&auth)["realtime"], json!(true));
        assert_eq!(
            config_for(&auth)["accounts"],
            json!({
                "manualLinking": false,
                "emailChange": "both",
                "codeLength": { "email": 6, "phone": 6, "factor": 6 },
                "factors": { "totp": true, "phone": false, "securityKey": false },
                "password": { "minLength": 6, "requires": [] },
            })
        );
        auth.manual_linking = true;
        auth.email.autoconfirm = true;
        auth.email.otp_length = 8;
        auth.sms.otp_length = 10;
        auth.factors.phone.otp_length = 7;
        auth.factors.phone.switches = FactorSwitches { enroll: true, verify: true };
        auth.factors.webauthn = FactorSwitches { enroll: true, verify: false };
        auth.password.min_length = 12;
        auth.password.required_characters = ["abc", "ABC", "012", "aB", "!?"].map(str::to_owned).to_vec();
        assert_eq!(
            config_for(&auth)["accounts"],
            json!({
                "manualLinking": true,
                "emailChange": "either",
                "codeLength": { "email": 8, "phone": 10, "factor": 7 },
                "factors": { "totp": true, "phone": true, "securityKey": false },
                "password": { "minLength": 12, "requires": ["lower", "upper", "digits", "letters", "symbols"] },
            })
        );
        assert_eq!(config_for(&auth)["settings"], portico_auth::public_settings(&auth));
        auth.email.secure_change = false;
        assert_eq!(config_for(&auth)["accounts"]["emailChange"], "new");
    }

    #[test]
    fn pages_of_a_development_server_open_at_a_name() {
        for (api, page) in [
            ("http://127.0.0.1:54321", "http://localhost:54321"),
            ("http://localhost:54321", "http://localhost:54321"),
            ("https://portico.example", "https://portico.example"),
            ("http://192.0.2.1:80", "http://192.0.2.1:80"),
        ] {
            assert_eq!(address_in_browser(api), page);
        }
    }

    #[test]
    fn an_accent_colour_has_readable_text_on_it_and_in_it() {
        let wine = accent(Colour::parse("#500724").unwrap());
        assert_eq!(
            (&wine["fill"], &wine["onFill"], &wine["light"]),
            (&json!("#500724"), &json!("#ffffff"), &json!("#500724"))
        );
        assert_ne!(wine["dark"], wine["fill"]);
        let lemon = accent(Colour::parse("#fde047").unwrap());
        assert_eq!((&lemon["onFill"], &lemon["dark"]), (&json!("#000000"), &json!("#fde047")));
        assert_ne!(lemon["light"], lemon["fill"]);
    }

    /// Returns the red, green and blue of `oklch(…)` as in a stylesheet, such as `0.979 0.0045 95`.
    fn of_oklch(text: &str) -> String {
        let parts: Vec<f64> = text.split(' ').map(|part| part.parse().unwrap()).collect();
        let [lightness, chroma, hue] = parts[..] else { panic!("{text} is no colour") };
        let (a, b) = (chroma * hue.to_radians().cos(), chroma * hue.to_radians().sin());
        let long = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
        let medium = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
        let short = (lightness - 0.089_484_177_5 * a - 1.291_485_548 * b).powi(3);
        let channel = |light: f64| {
            let encoded = if light <= 0.003_130_8 { 12.92 * light } else { 1.055 * light.powf(1.0 / 2.4) - 0.055 };
            format!("{:02x}", (encoded.clamp(0.0, 1.0) * 255.0).round() as u8)
        };
        let red = 4.076_741_662_1 * long - 3.307_711_591_3 * medium + 0.230_969_929_2 * short;
        let green = -1.268_438_004_6 * long + 2.609_757_401_1 * medium - 0.341_319_396_5 * short;
        let blue = -0.004_196_086_3 * long - 0.703_418_614_7 * medium + 1.707_614_701 * short;
        format!("#{}{}{}", channel(red), channel(green), channel(blue))
    }

    #[test]
    fn the_backgrounds_are_those_of_the_pages_and_mails() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
        let tokens = read("web/src/styles/tokens.css");
        for (index, name) in ["paper", "surface", "sunken"].into_iter().enumerate() {
            let line = tokens.lines().find(|line| line.trim().starts_with(&format!("--{name}:"))).unwrap();
            let colours: Vec<String> =
                line.split("oklch(").skip(1).map(|rest| of_oklch(rest.split(')').next().unwrap())).collect();
            assert_eq!(colours, [LIGHT[index], DARK[index]], "{name}");
        }
        assert!(tokens.contains(&format!("var(--accent-fill) {:.0}%, var(--surface))", WASH * 100.0)));
        let (page, mail) = (read("web/index.html"), read("crates/mail/src/built_in/layout.html"));
        for colour in [LIGHT[0], DARK[0]] {
            assert!(page.contains(colour) && mail.contains(colour), "{colour}");
        }
        assert!(mail.contains(LIGHT[1]) && mail.contains(DARK[1]));
    }

    #[test]
    fn a_page_holds_its_configuration_and_brand_as_text() {
        let config = json!({ "brand": { "name": "A </script><b>\"&", "mark": "/m\"x.svg", "accent": null } });
        let slots = slots(&config);
        let slot = |name: &str| slots.iter().find(|(known, _)| *known == name).unwrap().1.clone();
        assert_eq!(slot("name"), "A &lt;/script&gt;&lt;b&gt;&quot;&amp;");
        assert_eq!(slot("mark"), r#"<img src="/m&quot;x.svg" alt="" width="26" height="26">"#);
        let script = slot("config");
        let json = script.strip_prefix(r#"<script type="application/json" id="config">"#).unwrap();
        let json = json.strip_suffix("</script>").unwrap();
        assert!(!json.contains('<'));
        assert_eq!(serde_json::from_str::<Value>(json).unwrap(), config);
        assert!(manifest(&config["brand"]).contains("#006b64"));
    }
}
