//! Settings that the database defines: `pgrst.*` of the login role, and the settings of the roles
//! of requests.

use std::collections::HashMap;

use portico_database::DatabaseError;
use tokio_postgres::Client;

use crate::config::{IN_DATABASE, RestConfig};
use crate::schema::QualifiedName;

/// The settings of a role (`alter role … set`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleSettings {
    /// Names and values, which are set for each transaction.
    pub settings: Vec<(String, String)>,
    /// `default_transaction_isolation`.
    pub isolation: Option<Isolation>,
}

/// Isolation levels other than the default one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// `repeatable read`
    RepeatableRead,
    /// `serializable`
    Serializable,
}

impl Isolation {
    /// Parses PostgreSQL's name of a level; `None` for the default one.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "repeatable read" => Some(Self::RepeatableRead),
            "serializable" => Some(Self::Serializable),
            _ => None,
        }
    }
}

/// The settings of every role that the login role may assume, by the role's name.
pub type Roles = HashMap<String, RoleSettings>;

/// Returns `pgrst.*` of the login role. Settings for this database come last and take precedence.
const PGRST: &str = "
select split_part(setting, '=', 1), substr(setting, strpos(setting, '=') + 1)
  from pg_catalog.pg_db_role_setting, unnest(setconfig) as setting
 where setrole = (select oid from pg_catalog.pg_roles where rolname = $1)
   and setdatabase in (0, (select oid from pg_catalog.pg_database where datname = current_database()))
   and setting like 'pgrst.%'
 order by setdatabase";

/// Returns settings of directly granted roles that the login role may set.
const ROLES: &str = "
select granted.rolname, split_part(own.setting, '=', 1), substr(own.setting, strpos(own.setting, '=') + 1)
  from pg_catalog.pg_auth_members as membership
  join pg_catalog.pg_roles as granted on granted.oid = membership.roleid
  join pg_catalog.pg_roles as login on login.oid = membership.member and login.rolname = $1
 cross join unnest(granted.rolconfig) as own(setting)
  join pg_catalog.pg_settings as known on lower(known.name) = lower(split_part(own.setting, '=', 1))
 where (known.context = 'user'";

/// Completes [`ROLES`] with the privilege that PostgreSQL 15 introduced.
const ROLES_15: &str = " or pg_catalog.has_parameter_privilege($1, known.name, 'set')";

/// Applies the settings of the database to those of the server. A setting that cannot be parsed is
/// logged and ignored.
///
/// # Errors
/// The database cannot be reached, or the `db-pre-config` function fails.
pub async fn load(client: &Client, login: &str, server: &RestConfig) -> Result<(RestConfig, Roles), DatabaseError> {
    let version: String = client.query_one("select current_setting('server_version_num')", &[]).await?.get(0);
    let is_15 = version.parse::<u32>().is_ok_and(|version| version >= 150_000);
    let roles_text = format!("{ROLES}{})", if is_15 { ROLES_15 } else { "" });
    let (settings, roles) =
        futures_util::future::try_join(client.query(PGRST, &[&login]), client.query(&roles_text, &[&login])).await?;

    let settings: Vec<(String, String)> = settings.iter().map(|row| (row.get(0), row.get(1))).collect();
    let own = settings.iter().map(|(name, value)| (name.trim_start_matches("pgrst."), value.as_str()));
    let (mut config, mut problems) = (server.clone(), Vec::new());
    config.apply(own.clone(), &mut problems);
    if let Some(function) = config.pre_config.clone() {
        // Settings from the function have a lower precedence than those of the role
        let from_function = run_pre_config(client, &function).await?;
        problems.clear();
        config = server.clone();
        config
            .apply(from_function.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(own), &mut problems);
    }
    for problem in problems {
        tracing::warn!("{problem}");
    }

    let mut by_role = Roles::new();
    for row in &roles {
        let (role, name, value): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        let entry = by_role.entry(role).or_default();
        if name.eq_ignore_ascii_case("default_transaction_isolation") {
            entry.isolation = Isolation::parse(&value);
        } else {
            entry.settings.push((name, value));
        }
    }
    Ok((config, by_role))
}

/// Calls the `db-pre-config` function in a transaction of its own, and reads the settings that it
/// has made.
async fn run_pre_config(client: &Client, function: &QualifiedName) -> Result<Vec<(String, String)>, DatabaseError> {
    let mut call = crate::sql::Sql::new();
    call.raw("begin read only; select ");
    if !function.schema.is_empty() {
        call.name(&function.schema).raw(".");
    }
    call.name(&function.name).raw("()");
    let outcome = async {
        client.batch_execute(call.text()).await?;
        client
            .query(
                "select name, current_setting('pgrst.' || name, true) from unnest($1::text[]) as name
                  where nullif(current_setting('pgrst.' || name, true), '') is not null",
                &[&IN_DATABASE],
            )
            .await
    }
    .await;
    client.batch_execute("rollback").await?;
    Ok(outcome?.iter().map(|row| (row.get(0), row.get(1))).collect())
}
