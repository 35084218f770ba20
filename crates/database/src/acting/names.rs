//! The names of the roles that play the parts.

use std::borrow::Cow;
use std::collections::HashMap;

use tokio_postgres::Client;

use crate::error::DatabaseError;

/// The role that owns the objects of a project.
pub(crate) const OWNER: &str = "postgres";
/// The role that owns the schema `auth`.
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

    /// Returns the names as text, for a fingerprint.
    pub fn identity(&self) -> String {
        self.0.iter().map(|(part, name)| format!("{part}={name};")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn names_replace_whole_words() {
        let names = Names(vec![("postgres", "portico_owner".into())]);
        let sql = "grant a to postgres, anon; select 'postgres'::regrole, '{x,postgres}', postgres_fdw, a.postgres";
        let expected = "grant a to portico_owner, anon; select 'portico_owner'::regrole, '{x,portico_owner}', postgres_fdw, a.portico_owner";
        assert_eq!(names.in_sql(sql), expected);
        assert_eq!(Names::default().in_sql(sql), sql);
        assert_eq!(names.in_sql("é postgres é"), "é portico_owner é");
    }
}
