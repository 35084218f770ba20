//! The keys of a server: those that sign and verify tokens, and the API keys.
//!
//! `dev` uses the published development keys unless the configuration names others, so that `.env`
//! files and tests of existing projects work unchanged. `serve` makes its own at the first start
//! and keeps them in the data folder, readable by its user only. Keys in the configuration or the
//! environment take precedence in both.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use portico_base::{Clock, Secret, random};
use portico_project::AuthConfig;
use portico_tokens::{Algorithm, ApiKeys, KeyRing, SigningKey, development};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::Duration;

/// The name of the file that holds a production server's own secrets.
const SECRETS_FILE: &str = "secrets.json";
/// The lifetime of a legacy API key that is signed at the start.
const LEGACY_KEY_LIFETIME: Duration = Duration::days(3650);
/// The issuer of the legacy API keys in production.
const LEGACY_ISSUER: &str = "supabase";

/// The keys that prove identities.
#[derive(Debug, Clone)]
pub struct ServerKeys {
    /// The key ring that signs and verifies access tokens.
    pub ring: Arc<KeyRing>,
    /// The API keys.
    pub api: Arc<ApiKeys>,
    /// The HS256 secret, which `portico status` prints and older SQL reads as
    /// `app.settings.jwt_secret`.
    pub jwt_secret: Secret,
}

/// Returns the published development keys.
///
/// # Errors
/// When a constant is invalid, which a test rules out.
pub fn development() -> anyhow::Result<ServerKeys> {
    let jwt_secret = Secret::new(development::JWT_SECRET);
    let ring = KeyRing::new(Some(jwt_secret.clone()), vec![development_signing_key()?])?;
    Ok(ServerKeys { ring: Arc::new(ring), api: Arc::new(ApiKeys::development()), jwt_secret })
}

fn development_signing_key() -> anyhow::Result<SigningKey> {
    let key = serde_json::from_str(development::SIGNING_KEY).context("the development signing key")?;
    Ok(SigningKey::parse_jwk(&key)?)
}

/// Returns the development keys, replaced by the configured ones where there are any.
///
/// # Errors
/// When a configured key is not usable.
pub fn for_development(auth: &AuthConfig, methods: ValidMethods<'_>, clock: &Clock) -> anyhow::Result<ServerKeys> {
    let jwt_secret = auth.jwt_secret.clone().unwrap_or_else(|| Secret::new(development::JWT_SECRET));
    let signing = match &auth.signing_keys_path {
        Some(path) => read_signing_keys(path)?,
        None => vec![development_signing_key()?],
    };
    let ring = issuing(auth, &jwt_secret, signing, methods)?;
    let publishable = configured(auth.publishable_key.as_ref()).unwrap_or(development::PUBLISHABLE_KEY);
    let secret = configured(auth.secret_key.as_ref()).unwrap_or(development::SECRET_KEY);
    let signed = if jwt_secret.expose() == development::JWT_SECRET {
        ApiKeys::development()
    } else {
        // With a fixed expiry the keys stay the same from start to start
        let expires = time::OffsetDateTime::from_unix_timestamp(development::KEYS_EXPIRE_AT).unwrap_or(clock.now());
        ApiKeys::mint(&KeyRing::hs256(&jwt_secret), development::KEY_ISSUER, expires, publishable, secret)?
    };
    Ok(ServerKeys {
        ring: Arc::new(ring),
        api: Arc::new(with_configured(auth, &signed, publishable, secret)?),
        jwt_secret,
    })
}

/// Returns the keys of a production server with the data folder `data`.
///
/// # Errors
/// When a configured key is a published development key or unusable, or the secrets cannot be
/// stored.
pub fn for_production(
    auth: &AuthConfig,
    methods: ValidMethods<'_>,
    data: &Path,
    missing: MissingSecrets,
    clock: &Clock,
) -> anyhow::Result<ServerKeys> {
    let own = own_secrets(data, missing, clock)?;
    let jwt_secret = auth.jwt_secret.clone().unwrap_or_else(|| own.jwt_secret.clone().into());
    if jwt_secret.expose() == development::JWT_SECRET {
        bail!(
            "auth.jwt_secret is the published development secret, with which any client can sign in as any account. Remove it, and Portico makes its own"
        );
    }
    if jwt_secret.expose().len() < 32 {
        bail!("auth.jwt_secret must be at least 32 characters long in production");
    }
    let signing = match &auth.signing_keys_path {
        Some(path) => read_signing_keys(path)?,
        None => Vec::new(),
    };
    let ring = issuing(auth, &jwt_secret, signing, methods)?;
    let publishable = configured(auth.publishable_key.as_ref()).unwrap_or(&own.publishable_key);
    let secret = configured(auth.secret_key.as_ref()).unwrap_or(&own.secret_key);
    let made_at = time::OffsetDateTime::from_unix_timestamp(own.created_at).unwrap_or(clock.now());
    let signed =
        ApiKeys::mint(&KeyRing::hs256(&jwt_secret), LEGACY_ISSUER, made_at + LEGACY_KEY_LIFETIME, publishable, secret)?;
    let api = with_configured(auth, &signed, publishable, secret)?;
    if api.contains_development_key() {
        bail!("an API key of [auth] is a published development key: remove it, and Portico makes its own");
    }
    Ok(ServerKeys { ring: Arc::new(ring), api: Arc::new(api), jwt_secret })
}

fn configured(key: Option<&Secret>) -> Option<&str> {
    key.map(Secret::expose).filter(|key| !key.is_empty())
}

fn with_configured(auth: &AuthConfig, signed: &ApiKeys, publishable: &str, secret: &str) -> anyhow::Result<ApiKeys> {
    let anon = configured(auth.anon_key.as_ref()).unwrap_or(signed.anon_jwt());
    let service = configured(auth.service_role_key.as_ref()).unwrap_or(signed.service_role_jwt());
    Ok(ApiKeys::new(anon, service, publishable, secret)?)
}

/// `[auth] jwt_valid_methods` of `portico.toml`: the algorithms of accepted tokens. `None` accepts
/// those of the keys.
pub type ValidMethods<'a> = Option<&'a [String]>;

/// Returns the key ring that signs access tokens.
fn issuing(
    auth: &AuthConfig,
    secret: &Secret,
    keys: Vec<SigningKey>,
    methods: ValidMethods<'_>,
) -> anyhow::Result<KeyRing> {
    let known = |name: &String| {
        Algorithm::parse(name).with_context(|| format!("auth.jwt_valid_methods: {name:?} is no signature algorithm"))
    };
    let methods = methods.unwrap_or_default().iter().map(known).collect::<anyhow::Result<Vec<_>>>()?;
    KeyRing::issuing(Some(secret.clone()), keys, &methods).with_context(|| match &auth.signing_keys_path {
        Some(path) => format!("the signing keys of {} cannot be used", path.display()),
        None => "the signing key cannot be used".to_owned(),
    })
}

fn read_signing_keys(path: &Path) -> anyhow::Result<Vec<SigningKey>> {
    let text = std::fs::read(path).with_context(|| format!("failed to read signing keys: {}", path.display()))?;
    let keys: Vec<Value> =
        serde_json::from_slice(&text).with_context(|| format!("failed to decode signing keys: {}", path.display()))?;
    let parsed = keys.iter().map(SigningKey::parse_jwk).collect::<Result<Vec<_>, _>>();
    parsed.with_context(|| format!("failed to decode signing keys: {}", path.display()))
}

/// The reaction to a data folder without secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingSecrets {
    /// Creates and stores them: the first start of a server.
    Create,
    /// Uses temporary ones and writes nothing: a check of the configuration.
    Simulate,
    /// Fails: a command for a server that has been started before.
    Refuse,
}

/// The secrets that a production server made for itself.
#[derive(Serialize, Deserialize)]
struct OwnSecrets {
    jwt_secret: String,
    publishable_key: String,
    secret_key: String,
    created_at: i64,
}

fn own_secrets(data: &Path, missing: MissingSecrets, clock: &Clock) -> anyhow::Result<OwnSecrets> {
    let path = data.join(SECRETS_FILE);
    match std::fs::read(&path) {
        Ok(text) => {
            let mode = std::fs::metadata(&path)?.mode();
            if mode & 0o077 != 0 {
                bail!("{} can be read by other users (mode {:o}): run chmod 600 on it", path.display(), mode & 0o777);
            }
            serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound && missing == MissingSecrets::Refuse => {
            bail!("no server of `portico serve` has run with the data folder {} yet", data.display())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let secrets = OwnSecrets {
                jwt_secret: random::base64url(48),
                publishable_key: ApiKeys::generate_publishable(),
                secret_key: ApiKeys::generate_secret(),
                created_at: clock.now().unix_timestamp(),
            };
            if missing == MissingSecrets::Create {
                store(&path, &secrets).with_context(|| format!("could not write {}", path.display()))?;
            }
            Ok(secrets)
        }
        Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
    }
}

/// Stores the secrets. The file is written under another name with its final mode, synced and
/// renamed, so a crash leaves a complete file or none.
fn store(path: &Path, secrets: &OwnSecrets) -> anyhow::Result<()> {
    let draft = path.with_extension("json.new");
    let _ = std::fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(&serde_json::to_vec_pretty(secrets)?)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use portico_project::{Environment, LoadOptions, Project};

    use super::*;

    /// Returns `[auth]` of a project with this configuration.
    fn auth(config: &str) -> AuthConfig {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("supabase")).unwrap();
        std::fs::write(folder.path().join("supabase/config.toml"), config).unwrap();
        let workdir = Some(folder.path().to_owned());
        let environment = Environment::default();
        let project = Project::load(LoadOptions { workdir, environment, ..LoadOptions::default() }).unwrap();
        project.config().auth.clone()
    }

    #[test]
    fn development_keys_are_the_published_ones() {
        let keys = for_development(&auth(""), None, &Clock::system()).unwrap();
        assert_eq!(keys.api.anon_jwt(), development::ANON_KEY);
        assert_eq!(keys.api.publishable(), development::PUBLISHABLE_KEY);
        let now = Clock::system().now();
        assert_eq!(keys.ring.verify(development::SERVICE_ROLE_KEY, now).unwrap().role(), Some("service_role"));
    }

    #[test]
    fn another_secret_makes_other_legacy_keys_that_stay_the_same() {
        let auth = auth("[auth]\njwt_secret = \"another-secret-of-at-least-32-characters\"");
        let first = for_development(&auth, None, &Clock::system()).unwrap();
        let second = for_development(&auth, None, &Clock::system()).unwrap();
        assert_ne!(first.api.anon_jwt(), development::ANON_KEY);
        assert_eq!(first.api.anon_jwt(), second.api.anon_jwt());
    }

    #[test]
    fn a_check_of_production_writes_nothing_and_sees_what_is_there() {
        let data = tempfile::tempdir().unwrap();
        let absent = data.path().join("absent");
        let check =
            |data: &Path| for_production(&auth(""), None, data, MissingSecrets::Simulate, &Clock::system()).unwrap();
        assert_ne!(check(&absent).api.secret(), check(&absent).api.secret());
        assert!(!absent.exists());
        let kept = for_production(&auth(""), None, data.path(), MissingSecrets::Create, &Clock::system()).unwrap();
        assert_eq!(check(data.path()).api.secret(), kept.api.secret());
    }

    #[test]
    fn production_keeps_its_own_secrets_privately() {
        let data = tempfile::tempdir().unwrap();
        let first = for_production(&auth(""), None, data.path(), MissingSecrets::Create, &Clock::system()).unwrap();
        let second = for_production(&auth(""), None, data.path(), MissingSecrets::Create, &Clock::system()).unwrap();
        assert_eq!(first.api.secret(), second.api.secret());
        assert_eq!(first.api.anon_jwt(), second.api.anon_jwt());
        assert!(!first.api.contains_development_key());
        let mode = std::fs::metadata(data.path().join(SECRETS_FILE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn production_refuses_what_is_published() {
        let data = tempfile::tempdir().unwrap();
        for (key, value) in [
            ("jwt_secret", development::JWT_SECRET),
            ("secret_key", development::SECRET_KEY),
            ("anon_key", development::ANON_KEY),
        ] {
            let auth = auth(&format!("[auth]\n{key} = \"{value}\""));
            assert!(
                for_production(&auth, None, data.path(), MissingSecrets::Create, &Clock::system()).is_err(),
                "{key}"
            );
        }
    }

    #[test]
    fn signing_keys_that_leave_open_who_signs_and_methods_that_are_none_are_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        let mut second: Value = serde_json::from_str(development::SIGNING_KEY).unwrap();
        second["kid"] = "second".into();
        let first: Value = serde_json::from_str(development::SIGNING_KEY).unwrap();
        let with = |keys: &[&Value], methods: &[&str]| {
            std::fs::write(&path, serde_json::to_vec(keys).unwrap()).unwrap();
            let auth = AuthConfig { signing_keys_path: Some(path.clone()), ..auth("") };
            let methods: Vec<String> = methods.iter().map(|name| (*name).to_owned()).collect();
            let read = for_development(&auth, Some(&methods), &Clock::system());
            read.map(drop).map_err(|error| format!("{error:#}"))
        };
        let both = with(&[&first, &second], &[]).unwrap_err();
        assert!(both.contains("keys.json") && both.contains("exactly one must have \"sign\""), "{both}");
        let mut verifies = second.clone();
        verifies["key_ops"] = serde_json::json!(["verify"]);
        assert!(with(&[&verifies], &[]).unwrap_err().contains("no key signs"));
        assert_eq!(with(&[&verifies, &first], &["ES256", "HS256"]), Ok(()));
        let other = with(&[&first], &["HS256"]).unwrap_err();
        assert!(other.contains("ES256, which is not among the accepted methods"), "{other}");
        assert!(with(&[&first], &["none"]).unwrap_err().contains("\"none\" is no signature algorithm"));
    }
}
