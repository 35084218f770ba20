//! Roles of an external server: which role plays which part, and as whom a connection logs in to
//! act as it.
//!
//! On the embedded cluster every role has the name that the hosted service gives it, and the socket
//! admits us as any of them. A server of others may have roles of these names that are not ours,
//! `postgres` above all, which is usually its superuser. There another role plays the part, under a
//! name of our own.
//!
//! A session that has logged in as a mighty role and acts as a lesser one returns to the mighty one
//! at `reset role`, which any function can run. Therefore [`Logins`] has login roles of its own,
//! one for each part that runs SQL of a project. Such a login has no right but that of acting in
//! its part.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use tokio_postgres::Client;

use crate::connection;
use crate::endpoint::{Endpoint, Password};
use crate::error::DatabaseError;
use crate::pooler::{self, Pooling};

/// The role that owns the objects of a project.
pub(crate) const OWNER: &str = "postgres";
/// The role that the auth service acts as.
pub(crate) const AUTH: &str = "supabase_auth_admin";
/// The role that requests of the data API begin as.
pub(crate) const API: &str = "authenticator";

/// Parts that another role can play, with its name. `anon`, `authenticated` and `service_role` are
/// not among them: tokens and policies name them.
const PARTS: [(&str, &str); 6] = [
    (OWNER, "portico_owner"),
    (API, "portico_authenticator"),
    (AUTH, "portico_auth_admin"),
    ("supabase_storage_admin", "portico_storage_admin"),
    ("supabase_realtime_admin", "portico_realtime_admin"),
    ("supabase_functions_admin", "portico_functions_admin"),
];

/// Chooses the role for each part: of its own name, of our name for it, and of that name with a
/// mark of the database, the first that is free or that the login role can become. A superuser
/// never owns a project's objects, unless an earlier version has set up this database so.
const CHOOSE: &str = "
    with login as (select oid, rolsuper, rolcreaterole, current_setting('server_version_num')::int as version
                     from pg_roles where rolname = session_user),
         candidate as (
           select parts.part, choice.name, choice.place
             from unnest($1::text[], $2::text[]) as parts (part, substitute)
            cross join lateral (values (1, part), (2, substitute),
                   (3, substitute || '_' || left(md5(current_database()), 8))) as choice (place, name)),
         judged as (
           select c.*, r.oid is null as is_free,
                  r.oid = login.oid or not r.rolsuper and (
                    login.rolsuper or login.version < 160000 and login.rolcreaterole
                    or pg_has_role(login.oid, r.oid, case when login.version < 160000 then 'member' else 'set' end)
                    or exists (select from pg_auth_members as m where m.roleid = r.oid and m.member = login.oid and m.admin_option)) as is_ours,
                  r.rolsuper and login.rolsuper and c.part = 'postgres' as is_superuser,
                  exists (select from pg_namespace where nspname = 'supabase_migrations' and nspowner = r.oid) as owns_history
             from candidate as c cross join login left join pg_roles as r on r.rolname = c.name)
    select distinct on (part) part, name
      from judged
     where is_free or case when is_superuser then owns_history else is_ours end
     order by part, part = 'postgres' and owns_history desc, place";

/// The roles that play the parts, as far as they have other names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Names(Vec<(&'static str, String)>);

impl Names {
    /// Asks the server of a guarded session.
    pub async fn choose(client: &Client) -> Result<Self, DatabaseError> {
        let (parts, substitutes): (Vec<&str>, Vec<&str>) = PARTS.into_iter().unzip();
        let rows = client.query(CHOOSE, &[&parts, &substitutes]).await?;
        let chosen: HashMap<String, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let mut names = Vec::new();
        for (part, _) in PARTS {
            match chosen.get(part) {
                Some(name) if name == part => {}
                Some(name) => names.push((part, name.clone())),
                None => {
                    return Err(DatabaseError::Refused(format!(
                        "every role that could play the part of `{part}` exists and belongs to others: give `{part}` to the \
                         login role, or drop one of them"
                    )));
                }
            }
        }
        Ok(Self(names))
    }

    /// Returns the role that plays a part; every other role is itself.
    pub fn of<'a>(&'a self, part: &'a str) -> &'a str {
        self.0.iter().find(|(known, _)| *known == part).map_or(part, |(_, name)| name)
    }

    /// Puts the names into SQL of our own, which is written for those of the hosted service. The
    /// names are plain identifiers, so they fit where an identifier, a literal or an element of an
    /// array stands.
    pub fn in_sql<'a>(&self, sql: &'a str) -> Cow<'a, str> {
        if self.0.is_empty() {
            return Cow::Borrowed(sql);
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut text = String::with_capacity(sql.len() + 256);
        let mut rest = sql;
        while let Some(start) = rest.find(is_part) {
            let (before, word) = rest.split_at(start);
            let (word, after) = word.split_at(word.find(|c| !is_part(c)).unwrap_or(word.len()));
            text.push_str(before);
            text.push_str(self.of(word));
            rest = after;
        }
        text.push_str(rest);
        Cow::Owned(text)
    }

    /// The names as text, for a fingerprint.
    pub fn identity(&self) -> String {
        self.0.iter().map(|(part, name)| format!("{part}={name};")).collect()
    }
}

/// The login roles of this installation on an external server: their names and passwords follow
/// from a secret.
///
/// Installations that share a database and not the secret have different login roles, so none takes
/// another's password away.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Logins {
    tag: String,
    key: [u8; 32],
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logins").field("tag", &self.tag).finish_non_exhaustive()
    }
}

impl Logins {
    /// The parts that have a login role.
    pub const PARTS: [(&'static str, &'static str); 3] = [(API, "api"), (AUTH, "auth"), (OWNER, "owner")];

    fn new(secret: &[u8]) -> Self {
        let key = signed(secret, b"the logins of a database");
        let tag = hex::encode(&signed(&key, b"name")[..4]);
        Self { tag, key }
    }

    /// Returns the login role and its password for a part.
    pub fn of(&self, part: &str) -> Option<(String, Password)> {
        let (_, short) = Self::PARTS.into_iter().find(|(known, _)| *known == part)?;
        let password = hex::encode(signed(&self.key, short.as_bytes()));
        Some((format!("portico_{}_{short}", self.tag), Password::new(password)))
    }

    /// The names as text, for a fingerprint.
    pub fn identity(&self) -> &str {
        &self.tag
    }
}

fn signed(key: &[u8], text: &[u8]) -> [u8; 32] {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, key);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(aws_lc_rs::hmac::sign(&key, text).as_ref());
    bytes
}

/// The state of all clones of an endpoint: the names that were chosen, and the logins that the
/// server admits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acting(Arc<State>);

#[derive(Debug, Default)]
struct State {
    logins: Option<Logins>,
    names: RwLock<Option<Arc<Names>>>,
    admitted: RwLock<Vec<&'static str>>,
    pooling: RwLock<Option<Pooling>>,
}

/// An endpoint is where a server is and as whom to connect; what was found out there is no part of
/// it.
impl PartialEq for Acting {
    fn eq(&self, other: &Self) -> bool {
        self.0.logins == other.0.logins
    }
}

impl Eq for Acting {}

impl Acting {
    /// Returns a state that knows nothing of the server, with login roles by a secret.
    pub fn with_secret(secret: &[u8]) -> Self {
        Self(Arc::new(State { logins: Some(Logins::new(secret)), ..State::default() }))
    }

    /// Returns a state that knows nothing of the server, for another database of it.
    pub fn afresh(&self) -> Self {
        let pooling = RwLock::new(self.known_pooling());
        Self(Arc::new(State { logins: self.0.logins.clone(), pooling, ..State::default() }))
    }

    /// Returns how connections get server sessions, once that was found out.
    pub fn known_pooling(&self) -> Option<Pooling> {
        *self.0.pooling.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps how connections get server sessions.
    pub fn set_pooling(&self, pooling: Pooling) {
        *self.0.pooling.write().unwrap_or_else(PoisonError::into_inner) = Some(pooling);
    }

    /// The login roles of this installation.
    pub fn logins(&self) -> Option<&Logins> {
        self.0.logins.as_ref()
    }

    /// The names, if they were chosen already.
    pub fn names(&self) -> Option<Arc<Names>> {
        self.0.names.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the names that were chosen last.
    pub fn set_names(&self, names: Names) -> Arc<Names> {
        let names = Arc::new(names);
        *self.0.names.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&names));
        names
    }

    /// Notes for which parts the server admits our logins.
    pub fn set_admitted(&self, parts: Vec<&'static str>) {
        *self.0.admitted.write().unwrap_or_else(PoisonError::into_inner) = parts;
    }

    /// Returns whether the server admits our login for a part.
    pub fn is_admitted(&self, part: &str) -> bool {
        self.0.admitted.read().unwrap_or_else(PoisonError::into_inner).contains(&part)
    }
}

/// Returns the names of an endpoint's server, and asks it for them the first time.
pub(crate) async fn names(endpoint: &Endpoint) -> Result<Arc<Names>, DatabaseError> {
    if endpoint.trusts_any_role() {
        return Ok(Arc::default());
    }
    if let Some(names) = endpoint.acting().names() {
        return Ok(names);
    }
    pooler::detect(endpoint).await?;
    let client = connection::connect_guarded(endpoint).await?;
    Ok(endpoint.acting().set_names(Names::choose(&client).await?))
}

#[cfg(test)]
mod tests {
    use super::{Logins, Names};

    #[test]
    fn names_replace_whole_words() {
        let names = Names(vec![("postgres", "portico_owner".into())]);
        let sql = "grant a to postgres, anon; select 'postgres'::regrole, '{x,postgres}', postgres_fdw, a.postgres";
        let expected = "grant a to portico_owner, anon; select 'portico_owner'::regrole, '{x,portico_owner}', postgres_fdw, a.portico_owner";
        assert_eq!(names.in_sql(sql), expected);
        assert_eq!(Names::default().in_sql(sql), sql);
        assert_eq!(names.in_sql("é postgres é"), "é portico_owner é");
    }

    #[test]
    fn logins_follow_from_the_secret() {
        let (one, other) = (Logins::new(b"one"), Logins::new(b"other"));
        assert_eq!(one.of("postgres"), Logins::new(b"one").of("postgres"));
        assert_ne!(one.of("postgres"), other.of("postgres"));
        assert_ne!(one.of("postgres").map(|login| login.1), one.of("authenticator").map(|login| login.1));
        assert_eq!(one.of("anon"), None);
        assert!(!format!("{one:?}").contains("key"));
    }
}
