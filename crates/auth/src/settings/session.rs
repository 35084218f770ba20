//! The settings of access tokens, refresh tokens and sessions.

use portico_tokens::ThirdPartyIssuer;
use std::time::Duration;

/// The settings of access tokens.
#[derive(Debug, Clone)]
pub struct JwtSettings {
    /// Lifetime.
    pub expiry: Duration,
    /// `aud` of tokens and users.
    pub audience: String,
    /// `role` of new users.
    pub default_role: String,
    /// `iss`; empty: no such claim.
    pub issuer: String,
    /// Roles that may call the administrator's endpoints.
    pub admin_roles: Vec<String>,
    /// The role that may set `app_metadata` by `PUT /user`.
    pub admin_group: String,
}

/// The settings of refresh tokens.
#[derive(Debug, Clone)]
pub struct RefreshSettings {
    /// A detected reuse revokes the whole refresh token family.
    pub rotation: bool,
    /// The time for which a replaced token is still accepted.
    pub reuse_interval: Duration,
    /// 0 or 1: stored tokens; 2: signed ones.
    pub algorithm_version: u8,
    /// Percent of existing sessions that move to the signed form when they refresh.
    pub upgrade_percentage: u8,
    /// Replaced tokens of the signed form are always accepted.
    pub allow_reuse: bool,
}

/// The lifetime of sessions. `None`: as long as they are refreshed.
#[derive(Debug, Clone, Default)]
pub struct SessionSettings {
    /// From sign-in.
    pub timebox: Option<Duration>,
    /// From the last refresh.
    pub inactivity_timeout: Option<Duration>,
    /// From sign-in, for users with a second factor who did not use it.
    pub allow_low_aal: Option<Duration>,
    /// Only the newest session of a user can be refreshed.
    pub single_per_user: bool,
    /// Classes of sessions that `single_per_user` treats separately.
    pub tags: Vec<String>,
}

impl Default for JwtSettings {
    fn default() -> Self {
        Self {
            expiry: Duration::from_secs(3600),
            audience: "authenticated".into(),
            default_role: "authenticated".into(),
            issuer: String::new(),
            admin_roles: vec!["service_role".into(), "supabase_admin".into()],
            admin_group: "admin".into(),
        }
    }
}

impl Default for RefreshSettings {
    fn default() -> Self {
        Self {
            rotation: true,
            reuse_interval: Duration::ZERO,
            algorithm_version: 0,
            upgrade_percentage: 0,
            allow_reuse: false,
        }
    }
}

/// The settings of a third party whose tokens are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThirdPartySettings {
    /// The issuer.
    pub issuer: ThirdPartyIssuer,
    /// The URL of its discovery document, if not the standard one.
    pub discovery_url: Option<String>,
}
