//! Tables that the data API exposes without row-level security.

use std::fmt;

use tokio_postgres::Client;

/// The number of names that are listed.
const LISTED: usize = 10;

/// The tables of the exposed schemas without row-level security, other than those of extensions.
const UNPROTECTED: &str = "
    select pg_catalog.format('%I.%I', n.nspname, c.relname)
      from pg_catalog.pg_class as c
      join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
     where n.nspname::text = any ($1)
       and c.relkind in ('r', 'p')
       and not c.relrowsecurity
       and not exists (select from pg_catalog.pg_depend as d
                        where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.objid = c.oid and d.deptype = 'e')
     order by 1";

/// Tables without row-level security. `Display` gives the warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unprotected(Vec<String>);

/// Finds the tables of `schemas` without row-level security. `None`: there are none.
///
/// # Errors
/// When the query fails.
pub async fn unprotected(client: &Client, schemas: &[String]) -> Result<Option<Unprotected>, tokio_postgres::Error> {
    let rows = client.query(UNPROTECTED, &[&schemas]).await?;
    let tables: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    Ok((!tables.is_empty()).then_some(Unprotected(tables)))
}

impl Unprotected {
    /// Returns the names of all tables, with their schema and quoted where SQL requires it.
    #[must_use]
    pub fn tables(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Unprotected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (listed, rest) = self.0.split_at(self.0.len().min(LISTED));
        write!(f, "row-level security is off for {}", listed.join(", "))?;
        if !rest.is_empty() {
            write!(f, " and {} more", rest.len())?;
        }
        let first = listed.first().map(String::as_str).unwrap_or_default();
        write!(
            f,
            ": every holder of the publishable key has the rows that are granted to anon or authenticated. Switch it on with \
             `alter table {first} enable row level security`, and write policies"
        )
    }
}
