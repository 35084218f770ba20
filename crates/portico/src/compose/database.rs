//! An external PostgreSQL: the secret of Portico's login roles there, and the statements that an
//! administrator of that server has to run.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, bail};
use portico_base::random;
use portico_database::{Database, Endpoint};

/// The name of the file that the names and passwords of the login roles are derived from.
const SECRET_FILE: &str = "database-login";
/// The number of random bytes of the secret.
const SECRET_LENGTH: usize = 32;

/// Reads the URL of an external PostgreSQL, and that of the way past a connection pooler. Each
/// comes with the setting that it is from.
///
/// # Errors
/// When one of them is wrong.
pub fn external_endpoint(url: (&str, &str), direct: Option<(&str, &str)>) -> anyhow::Result<Endpoint> {
    let parse = |(setting, url): (&str, &str)| Endpoint::parse(url).with_context(|| setting.to_owned());
    let endpoint = parse(url)?;
    Ok(match direct {
        Some(direct) => endpoint.with_direct(parse(direct)?),
        None => endpoint,
    })
}

/// Returns what a connection pooler lacks, if the database is reached through one and no way past
/// it is known.
#[must_use]
pub fn pooler_advice(database: &Database) -> Option<&'static str> {
    let lacks = database.is_pooled() && !database.has_direct_endpoint();
    lacks.then_some(
        "the database is reached through a connection pooler, and no way past it is set (DIRECT_URL, or [database] direct_url): \
         changes of the schema are found within 10 seconds and not at once, `notify pgrst` has no effect, and statements that \
         PostgreSQL runs outside of transactions only (`create index concurrently`, `vacuum`) run as the login and not as the \
         owner of the project's objects",
    )
}

/// Returns the endpoint with login roles of this installation, whose data folder is `data`. Creates
/// the secret if there is none.
///
/// # Errors
/// When the secret cannot be stored, or other users can read it.
pub fn with_own_logins(endpoint: &Endpoint, data: &Path) -> anyhow::Result<Endpoint> {
    if let Some(known) = with_known_logins(endpoint, data)? {
        return Ok(known);
    }
    let path = data.join(SECRET_FILE);
    store(&path, &random::base64url(SECRET_LENGTH)).with_context(|| format!("could not write {}", path.display()))?;
    with_known_logins(endpoint, data)?.with_context(|| format!("could not read {}", path.display()))
}

/// Like [`with_own_logins`], and `None` where there is no secret.
///
/// # Errors
/// When other users can read the secret.
pub fn with_known_logins(endpoint: &Endpoint, data: &Path) -> anyhow::Result<Option<Endpoint>> {
    let path = data.join(SECRET_FILE);
    match std::fs::read(&path) {
        Ok(secret) => {
            let mode = std::fs::metadata(&path)?.mode();
            if mode & 0o077 != 0 {
                bail!("{} can be read by other users (mode {:o}): run chmod 600 on it", path.display(), mode & 0o777);
            }
            if secret.len() < SECRET_LENGTH {
                bail!("{} is damaged: delete it, and Portico makes another one", path.display());
            }
            Ok(Some(endpoint.with_login_secret(&secret)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
    }
}

/// Stores the secret. The file is written under another name and linked, so a crash leaves a
/// complete file or none, and a file that another process has made meanwhile is kept.
fn store(path: &Path, secret: &str) -> std::io::Result<()> {
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let _ = std::fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(secret.as_bytes())?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&draft, path);
    std::fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Returns the SQL, with comments, that an administrator of the server has to run; `None` if
/// nothing is missing.
#[must_use]
pub fn requests_to_administrator(database: &Database) -> Option<String> {
    let limitations = database.limitations();
    if limitations.is_empty() {
        return None;
    }
    let mut text = format!(
        "-- The database login `{}` lacks rights for a part of the set-up. A superuser of the server can\n\
         -- run this in the database `{}`; then start Portico again.\n",
        database.endpoint().user(),
        database.endpoint().database()
    );
    for missing in limitations {
        // A name or a message may contain a line break, and the text behind it would be a statement
        let comment = |text: &str| text.replace(['\n', '\r'], " ");
        text.push_str(&format!("\n-- {} ({})\n", comment(&missing.what), comment(&missing.why)));
        text.push_str(&format!("-- Until then: {}.\n", comment(&missing.effect)));
        if !missing.remedy.is_empty() {
            text.push_str(missing.remedy.trim());
            text.push('\n');
        }
    }
    Some(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_made_once_and_only_its_owner_can_read_it() {
        let data = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::parse("postgresql://a@b/c").unwrap();
        assert!(with_known_logins(&endpoint, data.path()).unwrap().is_none());
        let first = with_own_logins(&endpoint, data.path()).unwrap();
        assert!(first == with_own_logins(&endpoint, data.path()).unwrap() && first != endpoint);
        let file = data.path().join(SECRET_FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 1);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(with_own_logins(&endpoint, data.path()).unwrap_err().to_string().contains("chmod 600"));
    }
}
