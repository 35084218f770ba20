//! The built-in providers.

use crate::oauth::provider::description::{
    ClientAuthentication, EndpointTemplates, ForwardedParameters, IdTokenUse, ProviderDescription, UrlTemplate,
    UserinfoDocument, UserinfoExtra,
};
use crate::oauth::provider::readers as read;

const FORWARD_ALL: ForwardedParameters = ForwardedParameters { scopes: true, others: true };
const FORWARD_NO_SCOPES: ForwardedParameters = ForwardedParameters { scopes: false, others: true };

/// The values that most providers share; the entries name what differs.
const DEFAULTS: ProviderDescription = ProviderDescription {
    name: "",
    endpoints: EndpointTemplates::Discovered { issuer: "" },
    scopes: "",
    forwarded: FORWARD_ALL,
    parameters: &[],
    needs_pkce: false,
    returns_nonce: false,
    client_authentication: ClientAuthentication::Detect,
    id_tokens: IdTokenUse::Ignored,
    userinfo: &[],
    needs_url: false,
    read: read::openid,
};

const fn fixed(authorize: (&'static str, &'static str), token: (&'static str, &'static str)) -> EndpointTemplates {
    EndpointTemplates::Fixed {
        authorize: UrlTemplate::new(authorize.0, authorize.1),
        token: UrlTemplate::new(token.0, token.1),
    }
}

/// Google's issuer.
pub const GOOGLE_ISSUER: &str = "https://accounts.google.com";
/// Apple's issuer.
pub const APPLE_ISSUER: &str = "https://appleid.apple.com";
/// The `iss` of Microsoft's tokens starts with one of these.
pub const AZURE_ISSUERS: [&str; 2] = ["https://login.microsoftonline.com/", "https://sts.windows.net/"];

/// Every built-in provider.
pub static PROVIDERS: &[ProviderDescription] = &[
    ProviderDescription {
        name: "google",
        endpoints: EndpointTemplates::Discovered { issuer: GOOGLE_ISSUER },
        scopes: "email profile openid",
        returns_nonce: true,
        id_tokens: IdTokenUse::Preferred,
        userinfo: &[UserinfoDocument::new("https://www.googleapis.com", "/userinfo/v2/me")],
        read: read::google,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "github",
        endpoints: fixed(
            ("https://github.com", "/login/oauth/authorize"),
            ("https://github.com", "/login/oauth/access_token"),
        ),
        scopes: "user:email",
        userinfo: &[
            UserinfoDocument {
                url: UrlTemplate { host: "https://api.github.com", under: "/api/v3", path: "/user" },
                extra: UserinfoExtra::Nothing,
            },
            UserinfoDocument {
                url: UrlTemplate { host: "https://api.github.com", under: "/api/v3", path: "/user/emails" },
                extra: UserinfoExtra::Nothing,
            },
        ],
        read: read::github,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "apple",
        endpoints: EndpointTemplates::Discovered { issuer: APPLE_ISSUER },
        scopes: "email name",
        forwarded: ForwardedParameters { scopes: false, others: false },
        parameters: &[("response_mode", "form_post")],
        returns_nonce: true,
        client_authentication: ClientAuthentication::Form,
        id_tokens: IdTokenUse::Required(APPLE_ISSUER),
        read: read::apple,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "facebook",
        endpoints: fixed(
            ("https://www.facebook.com", "/dialog/oauth"),
            ("https://graph.facebook.com", "/oauth/access_token"),
        ),
        scopes: "email",
        userinfo: &[UserinfoDocument {
            url: UrlTemplate::new("https://graph.facebook.com", "/me?fields=email,first_name,last_name,name,picture"),
            extra: UserinfoExtra::SecretProof,
        }],
        read: read::facebook,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "azure",
        endpoints: fixed(
            ("https://login.microsoftonline.com/common", "/oauth2/v2.0/authorize"),
            ("https://login.microsoftonline.com/common", "/oauth2/v2.0/token"),
        ),
        scopes: "openid",
        returns_nonce: true,
        id_tokens: IdTokenUse::PerTenant,
        read: read::azure,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "discord",
        endpoints: fixed(
            ("https://discord.com", "/api/oauth2/authorize"),
            ("https://discord.com", "/api/oauth2/token"),
        ),
        scopes: "email identify",
        userinfo: &[UserinfoDocument::new("https://discord.com", "/api/users/@me")],
        read: read::discord,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "gitlab",
        endpoints: fixed(("https://gitlab.com", "/oauth/authorize"), ("https://gitlab.com", "/oauth/token")),
        scopes: "read_user",
        userinfo: &[
            UserinfoDocument::new("https://gitlab.com", "/api/v4/user"),
            UserinfoDocument::new("https://gitlab.com", "/api/v4/user/emails"),
        ],
        read: read::gitlab,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "bitbucket",
        endpoints: fixed(
            ("https://bitbucket.org", "/site/oauth2/authorize"),
            ("https://bitbucket.org", "/site/oauth2/access_token"),
        ),
        scopes: "account email",
        forwarded: FORWARD_NO_SCOPES,
        userinfo: &[
            UserinfoDocument::new("https://api.bitbucket.org", "/2.0/user"),
            UserinfoDocument::new("https://api.bitbucket.org", "/2.0/user/emails"),
        ],
        read: read::bitbucket,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "linkedin_oidc",
        endpoints: fixed(
            ("https://api.linkedin.com", "/oauth/v2/authorization"),
            ("https://api.linkedin.com", "/oauth/v2/accessToken"),
        ),
        scopes: "openid email profile",
        client_authentication: ClientAuthentication::Form,
        id_tokens: IdTokenUse::Required("https://www.linkedin.com/oauth"),
        read: read::linkedin_oidc,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "linkedin",
        endpoints: fixed(
            ("https://api.linkedin.com", "/oauth/v2/authorization"),
            ("https://api.linkedin.com", "/oauth/v2/accessToken"),
        ),
        scopes: "r_emailaddress r_liteprofile",
        client_authentication: ClientAuthentication::Form,
        userinfo: &[
            UserinfoDocument::new(
                "https://api.linkedin.com",
                "/v2/me?projection=(id,firstName,lastName,profilePicture(displayImage~:playableStreams))",
            ),
            UserinfoDocument::new(
                "https://api.linkedin.com",
                "/v2/emailAddress?q=members&projection=(elements*(handle~))",
            ),
        ],
        read: read::linkedin,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "twitter",
        endpoints: EndpointTemplates::OAuth1 {
            request: UrlTemplate::new("https://api.twitter.com", "/oauth/request_token"),
            authorize: UrlTemplate::new("https://api.twitter.com", "/oauth/authenticate"),
            token: UrlTemplate::new("https://api.twitter.com", "/oauth/access_token"),
        },
        forwarded: ForwardedParameters { scopes: false, others: false },
        userinfo: &[UserinfoDocument::new(
            "https://api.twitter.com",
            "/1.1/account/verify_credentials.json?include_email=true",
        )],
        read: read::twitter,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "x",
        endpoints: fixed(("https://x.com", "/i/oauth2/authorize"), ("https://api.x.com", "/2/oauth2/token")),
        scopes: "users.email tweet.read users.read offline.access",
        needs_pkce: true,
        userinfo: &[UserinfoDocument::new(
            "https://api.x.com",
            "/2/users/me?user.fields=confirmed_email,created_at,profile_image_url,url,username,name",
        )],
        read: read::x,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "slack_oidc",
        endpoints: fixed(
            ("https://slack.com", "/openid/connect/authorize"),
            ("https://slack.com", "/api/openid.connect.token"),
        ),
        scopes: "profile email openid",
        userinfo: &[UserinfoDocument::new("https://slack.com", "/api/openid.connect.userInfo")],
        read: read::slack_oidc,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "slack",
        endpoints: fixed(("https://slack.com", "/oauth/authorize"), ("https://slack.com", "/api/oauth.access")),
        scopes: "profile email openid",
        userinfo: &[UserinfoDocument::new("https://slack.com", "/api/openid.connect.userInfo")],
        read: read::slack,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "spotify",
        endpoints: fixed(
            ("https://accounts.spotify.com", "/authorize"),
            ("https://accounts.spotify.com", "/api/token"),
        ),
        scopes: "user-read-email",
        userinfo: &[UserinfoDocument::new("https://api.spotify.com", "/v1/me")],
        read: read::spotify,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "twitch",
        endpoints: fixed(("https://id.twitch.tv", "/oauth2/authorize"), ("https://id.twitch.tv", "/oauth2/token")),
        scopes: "user:read:email",
        client_authentication: ClientAuthentication::Form,
        userinfo: &[UserinfoDocument {
            url: UrlTemplate::new("https://api.twitch.tv", "/helix/users"),
            extra: UserinfoExtra::ClientId,
        }],
        read: read::twitch,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "notion",
        endpoints: fixed(
            ("https://api.notion.com", "/v1/oauth/authorize"),
            ("https://api.notion.com", "/v1/oauth/token"),
        ),
        forwarded: FORWARD_NO_SCOPES,
        userinfo: &[UserinfoDocument {
            url: UrlTemplate::new("https://api.notion.com", "/v1/users/me"),
            extra: UserinfoExtra::Header("notion-version", "2021-08-16"),
        }],
        read: read::notion,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "figma",
        endpoints: fixed(("https://www.figma.com", "/oauth"), ("https://api.figma.com", "/v1/oauth/token")),
        scopes: "current_user:read",
        userinfo: &[UserinfoDocument::new("https://api.figma.com", "/v1/me")],
        read: read::figma,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "kakao",
        endpoints: fixed(("https://kauth.kakao.com", "/oauth/authorize"), ("https://kauth.kakao.com", "/oauth/token")),
        scopes: "account_email profile_image profile_nickname",
        client_authentication: ClientAuthentication::Form,
        userinfo: &[UserinfoDocument::new("https://kapi.kakao.com", "/v2/user/me")],
        read: read::kakao,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "keycloak",
        endpoints: fixed(("", "/protocol/openid-connect/auth"), ("", "/protocol/openid-connect/token")),
        scopes: "profile email",
        userinfo: &[UserinfoDocument::new("", "/protocol/openid-connect/userinfo")],
        needs_url: true,
        read: read::keycloak,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "workos",
        endpoints: fixed(("https://api.workos.com", "/sso/authorize"), ("https://api.workos.com", "/sso/token")),
        forwarded: FORWARD_NO_SCOPES,
        client_authentication: ClientAuthentication::Form,
        read: read::workos,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "zoom",
        endpoints: fixed(("https://zoom.us", "/oauth/authorize"), ("https://zoom.us", "/oauth/token")),
        forwarded: FORWARD_NO_SCOPES,
        userinfo: &[UserinfoDocument::new("https://api.zoom.us", "/v2/users/me")],
        read: read::zoom,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "snapchat",
        endpoints: fixed(
            ("https://accounts.snapchat.com", "/accounts/oauth2/auth"),
            ("https://accounts.snapchat.com", "/accounts/oauth2/token"),
        ),
        scopes: "https://auth.snapchat.com/oauth2/api/user.external_id https://auth.snapchat.com/oauth2/api/user.display_name https://auth.snapchat.com/oauth2/api/user.bitmoji.avatar",
        userinfo: &[UserinfoDocument::new(
            "https://kit.snapchat.com",
            "/v1/me?query=%7Bme%7BexternalId%20displayName%20bitmoji%7Bavatar%20id%7D%7D%7D",
        )],
        read: read::snapchat,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "fly",
        endpoints: fixed(("https://api.fly.io", "/oauth/authorize"), ("https://api.fly.io", "/oauth/token")),
        scopes: "read",
        userinfo: &[UserinfoDocument::new("https://api.fly.io", "/oauth/token/info")],
        read: read::fly,
        ..DEFAULTS
    },
    ProviderDescription {
        name: "vercel_marketplace",
        endpoints: fixed(
            ("https://api.vercel.com", "/oauth/v2/authorization"),
            ("https://api.vercel.com", "/oauth/v2/accessToken"),
        ),
        id_tokens: IdTokenUse::Required("https://marketplace.vercel.com"),
        read: read::vercel_marketplace,
        ..DEFAULTS
    },
];

/// Returns the names of the built-in providers, as `[auth.external]` has them.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROVIDERS.iter().map(|provider| provider.name)
}

/// Returns the built-in provider of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static ProviderDescription> {
    PROVIDERS.iter().find(|provider| provider.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lower_case() {
        for (index, provider) in PROVIDERS.iter().enumerate() {
            assert_eq!(provider.name, provider.name.to_lowercase());
            assert!(!PROVIDERS[..index].iter().any(|other| other.name == provider.name), "{}", provider.name);
        }
        assert_eq!(PROVIDERS.len(), 25);
    }

    /// Name, authorization endpoint, token endpoint, first userinfo document, default scopes.
    #[rustfmt::skip]
    const ROWS: [(&str, &str, &str, &str, &str); 22] = [
        ("github", "https://github.com/login/oauth/authorize", "https://github.com/login/oauth/access_token", "https://api.github.com/user", "user:email"),
        ("facebook", "https://www.facebook.com/dialog/oauth", "https://graph.facebook.com/oauth/access_token", "https://graph.facebook.com/me?fields=email,first_name,last_name,name,picture", "email"),
        ("azure", "https://login.microsoftonline.com/common/oauth2/v2.0/authorize", "https://login.microsoftonline.com/common/oauth2/v2.0/token", "", "openid"),
        ("discord", "https://discord.com/api/oauth2/authorize", "https://discord.com/api/oauth2/token", "https://discord.com/api/users/@me", "email identify"),
        ("gitlab", "https://gitlab.com/oauth/authorize", "https://gitlab.com/oauth/token", "https://gitlab.com/api/v4/user", "read_user"),
        ("bitbucket", "https://bitbucket.org/site/oauth2/authorize", "https://bitbucket.org/site/oauth2/access_token", "https://api.bitbucket.org/2.0/user", "account email"),
        ("linkedin_oidc", "https://api.linkedin.com/oauth/v2/authorization", "https://api.linkedin.com/oauth/v2/accessToken", "", "openid email profile"),
        ("linkedin", "https://api.linkedin.com/oauth/v2/authorization", "https://api.linkedin.com/oauth/v2/accessToken", "https://api.linkedin.com/v2/me?projection=(id,firstName,lastName,profilePicture(displayImage~:playableStreams))", "r_emailaddress r_liteprofile"),
        ("x", "https://x.com/i/oauth2/authorize", "https://api.x.com/2/oauth2/token", "https://api.x.com/2/users/me?user.fields=confirmed_email,created_at,profile_image_url,url,username,name", "users.email tweet.read users.read offline.access"),
        ("slack_oidc", "https://slack.com/openid/connect/authorize", "https://slack.com/api/openid.connect.token", "https://slack.com/api/openid.connect.userInfo", "profile email openid"),
        ("slack", "https://slack.com/oauth/authorize", "https://slack.com/api/oauth.access", "https://slack.com/api/openid.connect.userInfo", "profile email openid"),
        ("spotify", "https://accounts.spotify.com/authorize", "https://accounts.spotify.com/api/token", "https://api.spotify.com/v1/me", "user-read-email"),
        ("twitch", "https://id.twitch.tv/oauth2/authorize", "https://id.twitch.tv/oauth2/token", "https://api.twitch.tv/helix/users", "user:read:email"),
        ("notion", "https://api.notion.com/v1/oauth/authorize", "https://api.notion.com/v1/oauth/token", "https://api.notion.com/v1/users/me", ""),
        ("figma", "https://www.figma.com/oauth", "https://api.figma.com/v1/oauth/token", "https://api.figma.com/v1/me", "current_user:read"),
        ("kakao", "https://kauth.kakao.com/oauth/authorize", "https://kauth.kakao.com/oauth/token", "https://kapi.kakao.com/v2/user/me", "account_email profile_image profile_nickname"),
        ("keycloak", "/protocol/openid-connect/auth", "/protocol/openid-connect/token", "/protocol/openid-connect/userinfo", "profile email"),
        ("workos", "https://api.workos.com/sso/authorize", "https://api.workos.com/sso/token", "", ""),
        ("zoom", "https://zoom.us/oauth/authorize", "https://zoom.us/oauth/token", "https://api.zoom.us/v2/users/me", ""),
        ("snapchat", "https://accounts.snapchat.com/accounts/oauth2/auth", "https://accounts.snapchat.com/accounts/oauth2/token", "https://kit.snapchat.com/v1/me?query=%7Bme%7BexternalId%20displayName%20bitmoji%7Bavatar%20id%7D%7D%7D", "https://auth.snapchat.com/oauth2/api/user.external_id https://auth.snapchat.com/oauth2/api/user.display_name https://auth.snapchat.com/oauth2/api/user.bitmoji.avatar"),
        ("fly", "https://api.fly.io/oauth/authorize", "https://api.fly.io/oauth/token", "https://api.fly.io/oauth/token/info", "read"),
        ("vercel_marketplace", "https://api.vercel.com/oauth/v2/authorization", "https://api.vercel.com/oauth/v2/accessToken", "", ""),
    ];

    #[test]
    fn endpoints_and_scopes_are_those_of_the_reference() {
        for (name, at, exchange, described, scopes) in ROWS {
            let Some(provider @ ProviderDescription { endpoints: EndpointTemplates::Fixed { authorize, token }, .. }) =
                find(name)
            else {
                panic!("{name} has fixed endpoints")
            };
            let document = provider.userinfo.first().map(|document| document.url.url(None)).unwrap_or_default();
            assert_eq!((authorize.url(None), token.url(None)), (at.to_owned(), exchange.to_owned()), "{name}");
            assert_eq!((document.as_str(), provider.scopes), (described, scopes), "{name}");
        }
        let without_scopes: Vec<&str> =
            PROVIDERS.iter().filter(|provider| !provider.forwarded.scopes).map(|provider| provider.name).collect();
        assert_eq!(without_scopes, ["apple", "bitbucket", "twitter", "notion", "workos", "zoom"]);
    }

    #[test]
    fn a_configured_url_replaces_every_host() {
        let Some(ProviderDescription { endpoints: EndpointTemplates::Fixed { authorize, .. }, userinfo, .. }) =
            find("github")
        else {
            panic!("github has fixed endpoints")
        };
        assert_eq!(authorize.url(None), "https://github.com/login/oauth/authorize");
        let own = Some("https://git.example.com/");
        assert_eq!(authorize.url(own), "https://git.example.com/login/oauth/authorize");
        assert_eq!(userinfo[0].url.url(own), "https://git.example.com/api/v3/user");
        assert_eq!(userinfo[0].url.origin(None), "https://api.github.com");
    }
}
