//! `config.toml`: every key, typed, with its default.
//!
//! This module parses. The composition of the server turns these structs into the settings of
//! services.

mod api;
mod auth;
mod db;
pub(crate) mod email;
mod external;
mod folders;
mod functions;
mod local;
mod remotes;
mod root;
mod security;
mod sms;
mod storage;

pub use self::api::{ApiConfig, ApiTls};
pub use self::auth::{AuthConfig, PasswordRequirements, RateLimits};
pub(crate) use self::db::DEFAULT_SEED_PATH;
pub use self::db::{DbConfig, DbMigrations, DbPooler, DbSeed, DbSettings, NetworkRestrictions, PoolMode};
pub use self::email::{EmailConfig, EmailNotification, EmailTemplate, SmtpConfig};
pub use self::external::{ConfiguredIssuer, ExternalProvider, OauthServerConfig, ThirdPartyConfig, Web3Config};
pub(crate) use self::folders::{Folders, absolute};
pub use self::functions::{EdgePolicy, EdgeRuntimeConfig, FunctionConfig};
pub use self::local::{
    AnalyticsConfig, ExperimentalConfig, InbucketConfig, InspectRule, IpVersion, RealtimeConfig, StudioConfig,
};
pub use self::root::Config;
pub(crate) use self::root::clean_project_id;
pub use self::security::{
    CaptchaConfig, CaptchaProviderName, HookConfig, MfaConfig, MfaFactor, MfaPhone, PasskeyConfig, SessionsConfig,
    WebauthnConfig,
};
pub use self::sms::{SmsConfig, SmsProvider};
pub use self::storage::{BucketConfig, StorageConfig};

pub(crate) use self::remotes::{apply_remote, check_remotes};
