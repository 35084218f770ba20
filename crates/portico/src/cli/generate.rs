//! `portico gen`: signing keys and tokens for a project folder, in the forms that scripts of the
//! reference expect. Results alone go to standard output.

use std::fs::OpenOptions;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use portico_base::{Clock, random};
use portico_project::portico_toml::Settings;
use portico_project::{LoadOptions, parse_duration};
use portico_tokens::{Algorithm, generate_jwk};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::global::Global;
use super::{folder, prompt};
use crate::compose::keys;

#[derive(Debug, Subcommand)]
pub(super) enum GenerateCommand {
    /// Make a private key that signs access tokens
    SigningKey(SigningKeyOptions),
    /// Sign an access token of a role with the development server's key
    BearerJwt(BearerOptions),
}

#[derive(Debug, Args)]
pub(super) struct SigningKeyOptions {
    /// The algorithm of the key
    #[arg(long, value_enum, ignore_case = true, default_value = "ES256")]
    algorithm: FileKeyAlgorithm,
    /// Keep the keys of the file, of which the present one continues to sign
    #[arg(long)]
    append: bool,
    /// Replace the keys of the file without a question
    #[arg(long)]
    yes: bool,
}

/// The algorithms of keys in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FileKeyAlgorithm {
    /// ECDSA on P-256: short tokens, verified by every client
    #[value(name = "ES256")]
    Es256,
    /// RSA with 2048 bits, for programs that know no other
    #[value(name = "RS256")]
    Rs256,
}

#[derive(Debug, Args)]
pub(super) struct BearerOptions {
    /// The role in the database: anon, authenticated, service_role or one of your own
    #[arg(long)]
    role: String,
    /// The id of the account
    #[arg(long, value_name = "UUID")]
    sub: Option<uuid::Uuid>,
    /// The time at which the token expires, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = timestamp, conflicts_with = "valid_for")]
    exp: Option<OffsetDateTime>,
    /// The lifetime of the token, such as 24h [default: 30m]
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    valid_for: Option<Duration>,
    /// Further claims, which take precedence over those of the other options
    #[arg(long, value_name = "JSON", value_parser = object)]
    payload: Option<Map<String, Value>>,
}

/// The lifetime of a token whose end is not given.
const LIFETIME: Duration = Duration::from_secs(30 * 60);

fn timestamp(text: &str) -> Result<OffsetDateTime, String> {
    OffsetDateTime::parse(text, &Rfc3339).map_err(|error| error.to_string())
}

fn lifetime(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .filter(|lifetime| !lifetime.is_zero())
        .ok_or_else(|| "expected a duration such as 30m or 24h".to_owned())
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a JSON object: {error}"))
}

pub(super) fn run(global: &Global, command: GenerateCommand) -> anyhow::Result<()> {
    match command {
        GenerateCommand::SigningKey(options) => signing_key(global, &options),
        GenerateCommand::BearerJwt(options) => bearer_jwt(global, options),
    }
}

fn signing_key(global: &Global, options: &SigningKeyOptions) -> anyhow::Result<()> {
    let algorithm = match options.algorithm {
        FileKeyAlgorithm::Es256 => Algorithm::Es256,
        FileKeyAlgorithm::Rs256 => Algorithm::Rs256,
    };
    let mut key = generate_jwk(algorithm, &random::uuid().hyphenated().to_string())?;
    let project = folder::load(LoadOptions { workdir: global.workdir.clone(), ..LoadOptions::default() })?;
    let Some(path) = &project.config().auth.signing_keys_path else {
        anstream::println!("{}", serde_json::to_string_pretty(&key)?);
        anstream::eprintln!(
            "To sign with this key, put it into an array in supabase/signing_keys.json, keep that file out of version \
             control, and add to supabase/config.toml:\n\n[auth]\nsigning_keys_path = \"./signing_keys.json\"\n"
        );
        return Ok(());
    };
    let mut present = read_keys(path)?;
    if options.append && !present.is_empty() {
        // One key signs: the new one is published first
        key["key_ops"] = json!(["verify"]);
        present.push(key);
    } else {
        if !present.is_empty() && !options.yes && !confirm_replacement(path)? {
            bail!("{} was not changed", path.display());
        }
        present = vec![key];
    }
    write_keys(path, &present).with_context(|| format!("could not write {}", path.display()))?;
    anstream::eprintln!("Wrote {} ({} keys).", path.display(), present.len());
    if present.len() > 1 {
        anstream::eprintln!(
            "The new key verifies. To sign with it, move \"sign\" to its key_ops from those of the present one."
        );
    }
    Ok(())
}

/// Reads the keys of a file; none where there is no file.
fn read_keys(path: &Path) -> anyhow::Result<Vec<Value>> {
    match std::fs::read(path) {
        Ok(text) if text.trim_ascii().is_empty() => Ok(Vec::new()),
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("{} is no array of keys", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
    }
}

fn confirm_replacement(path: &Path) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!(
            "{} has keys, and tokens that they signed would become invalid: keep them with --append, or replace them \
             with --yes",
            path.display()
        );
    }
    Ok(prompt::confirm(&format!("Replace the keys of {}, with which their tokens become invalid?", path.display()))?)
}

/// Writes the file under another name, for its owner only, and renames it: a crash leaves the
/// earlier keys or the new ones.
fn write_keys(path: &Path, keys: &[Value]) -> anyhow::Result<()> {
    let draft = path.with_extension("json.new");
    let _ = std::fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(&serde_json::to_vec_pretty(keys)?)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    Ok(())
}

fn bearer_jwt(global: &Global, options: BearerOptions) -> anyhow::Result<()> {
    let project = folder::load(LoadOptions { workdir: global.workdir.clone(), ..LoadOptions::default() })?;
    let settings = Settings::load(&project)?;
    let clock = Clock::system();
    let methods = settings.auth.jwt_valid_methods.as_deref();
    let keys = keys::for_development(&project.config().auth, methods, &clock)?;
    anstream::println!("{}", keys.ring.sign(&claims(options, clock.now()))?);
    Ok(())
}

/// Returns the claims of a token. Members of the payload take precedence over the other options,
/// as in the reference's command.
fn claims(options: BearerOptions, now: OffsetDateTime) -> Map<String, Value> {
    let end = options.exp.unwrap_or_else(|| now + options.valid_for.unwrap_or(LIFETIME));
    let mut claims = Map::new();
    claims.insert("role".into(), options.role.into());
    if let Some(sub) = options.sub {
        claims.insert("sub".into(), sub.to_string().into());
    }
    claims.insert("iat".into(), now.unix_timestamp().into());
    claims.insert("exp".into(), end.unix_timestamp().into());
    claims.extend(options.payload.unwrap_or_default());
    // The user of a token without an account is an anonymous one
    if claims.get("role").is_some_and(|role| role == "authenticated") && !claims.contains_key("sub") {
        claims.entry("is_anonymous").or_insert(true.into());
    }
    claims
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-01-01 0:00 UTC);

    fn options(role: &str) -> BearerOptions {
        BearerOptions { role: role.to_owned(), sub: None, exp: None, valid_for: None, payload: None }
    }

    fn claimed(options: BearerOptions) -> Value {
        claims(options, NOW).into()
    }

    #[test]
    fn a_token_has_the_role_its_times_and_the_payload() {
        let (iat, half_an_hour) = (NOW.unix_timestamp(), 1800);
        let expected = json!({"role": "service_role", "iat": iat, "exp": iat + half_an_hour});
        assert_eq!(claimed(options("service_role")), expected);
        let guest = claimed(options("authenticated"));
        assert_eq!((&guest["is_anonymous"], guest.get("sub")), (&json!(true), None));
        let sub = uuid::Uuid::from_u128(7);
        let person = claimed(BearerOptions { sub: Some(sub), ..options("authenticated") });
        assert_eq!((&person["sub"], person.get("is_anonymous")), (&json!(sub.to_string()), None));

        let day = Some(Duration::from_secs(86_400));
        assert_eq!(claimed(BearerOptions { valid_for: day, ..options("anon") })["exp"], iat + 86_400);
        let end = datetime!(2030-01-01 0:00 UTC);
        assert_eq!(claimed(BearerOptions { exp: Some(end), ..options("anon") })["exp"], end.unix_timestamp());
    }

    #[test]
    fn members_of_the_payload_take_precedence_over_options() {
        let payload = json!({"sub": "x", "role": "anon", "exp": 5, "iat": 4, "tenant": {"id": 1}});
        let with = |payload: &Value| BearerOptions {
            sub: Some(uuid::Uuid::from_u128(7)),
            exp: Some(datetime!(2030-01-01 0:00 UTC)),
            payload: payload.as_object().cloned(),
            ..options("authenticated")
        };
        assert_eq!(claimed(with(&payload)), payload);
        let some = claimed(with(&json!({"exp": 5, "is_anonymous": true})));
        assert_eq!((&some["exp"], &some["iat"]), (&json!(5), &json!(NOW.unix_timestamp())));
        assert_eq!((&some["role"], &some["is_anonymous"]), (&json!("authenticated"), &json!(true)));
        // The payload makes an account's user of a guest, and a guest of a visitor
        let payload = |payload: Value| payload.as_object().cloned();
        let named = BearerOptions { payload: payload(json!({"sub": "x"})), ..options("authenticated") };
        assert_eq!(claimed(named).get("is_anonymous"), None);
        let guest = BearerOptions { payload: payload(json!({"role": "authenticated"})), ..options("anon") };
        assert_eq!(claimed(guest)["is_anonymous"], true);
        let denied = BearerOptions { payload: payload(json!({"is_anonymous": false})), ..options("authenticated") };
        assert_eq!(claimed(denied)["is_anonymous"], false);
    }

    #[test]
    fn times_and_claims_of_another_form_are_rejected() {
        assert!(timestamp("2026-01-31T12:00:00+02:00").is_ok() && timestamp("tomorrow").is_err());
        assert!(lifetime("1h30m").is_ok() && lifetime("0").is_err() && lifetime("-5m").is_err());
        assert!(object("{}").is_ok() && object("[]").is_err() && object("x").is_err());
    }
}
