//! Advice about an extension that the database does not have, or may not create.

use super::statement_error::StatementError;

/// Extensions with the end of their package's name, `postgresql-<version>-…` of Debian and of
/// PostgreSQL's own package repository. Empty: there is no such package.
const PACKAGES: &[(&str, &str)] = &[
    ("address_standardizer", "postgis-3"),
    ("address_standardizer_data_us", "postgis-3"),
    ("age", "age"),
    ("h3", "h3"),
    ("hll", "hll"),
    ("http", "http"),
    ("hypopg", "hypopg"),
    ("ip4r", "ip4r"),
    ("orafce", "orafce"),
    ("pg_hint_plan", "pg-hint-plan"),
    ("pg_ivm", "pg-ivm"),
    ("pg_partman", "partman"),
    ("pg_repack", "repack"),
    ("pg_uuidv7", "pg-uuidv7"),
    ("pgaudit", "pgaudit"),
    ("pgrouting", "pgrouting"),
    ("pgtap", "pgtap"),
    ("plpgsql_check", "plpgsql-check"),
    ("plr", "plr"),
    ("postgis", "postgis-3"),
    ("postgis_raster", "postgis-3"),
    ("postgis_sfcgal", "postgis-3"),
    ("postgis_tiger_geocoder", "postgis-3"),
    ("postgis_topology", "postgis-3"),
    ("rum", "rum"),
    ("semver", "semver"),
    ("tds_fdw", "tds-fdw"),
    ("vector", "pgvector"),
];

/// Extensions that `scripts/extensions` fetches.
const FETCHED: &[&str] = &["pgmq", "pgtap", "vector"];

/// Substitutes for extensions that have no package.
const SUBSTITUTES: &[(&str, &str)] = &[
    ("index_advisor", "it advises on indexes only, and no application needs it"),
    ("pg_jsonschema", "a check constraint on the keys that matter does the same"),
    ("pg_tle", "put the SQL of the helpers into a migration or a test file"),
    ("pgsodium", "the functions of pgcrypto, and the vault, replace it"),
    ("supabase-dbdev", "put the SQL of the helpers into a migration or a test file"),
    ("timescaledb", "its makers have packages of their own"),
];

/// Replaces PostgreSQL's text about files on its disk by advice.
pub(super) fn advise(error: &mut StatementError, major: u32) {
    let quoted = |text: &str| text.split('"').nth(1).map(str::to_owned);
    match error.code.as_str() {
        "0A000" if error.message.ends_with(" is not available") => {
            let Some(name) = quoted(&error.message) else { return };
            error.hint = Some(missing(&name, major));
            error.detail = None;
            error.context = None;
        }
        // Before PostgreSQL 15, and if one of the extension's files is missing
        "58P01" if error.message.contains("extension control file") => {
            let file = quoted(&error.message).unwrap_or_default();
            let name = file.rsplit('/').next().and_then(|file| file.strip_suffix(".control")).unwrap_or_default();
            error.hint = Some(missing(name, major));
            error.context = None;
        }
        "42501" if error.message.starts_with("permission denied to create extension") => {
            let name = quoted(&error.message).unwrap_or_default();
            error.hint = Some(format!(
                "Only a superuser can create it, since its script runs with a superuser's rights; docs/database.md lists the \
                 extensions that need none. {}",
                without(&name)
            ));
            error.context = None;
        }
        _ => {}
    }
}

fn missing(name: &str, major: u32) -> String {
    let package = PACKAGES.iter().find(|(known, _)| *known == name).map(|(_, package)| *package);
    let fetched = match FETCHED.contains(&name) {
        true => "`make extensions` in Portico's own folder fetches it (it needs Python with pip)",
        false => "",
    };
    let installed = package.map(|package| {
        format!(
            "the package postgresql-{major}-{package} of Debian or of PostgreSQL's own package repository brings it"
        )
    });
    let how = match (fetched, installed) {
        ("", None) => match SUBSTITUTES.iter().find(|(known, _)| *known == name) {
            Some((_, substitute)) => format!("no package brings it: {substitute}"),
            None => format!("install it for PostgreSQL {major} on the machine of the database, if there is a package"),
        },
        ("", Some(installed)) => installed,
        (fetched, None) => fetched.to_owned(),
        (fetched, Some(installed)) => format!("{fetched}, or {installed}"),
    };
    format!("PostgreSQL {major} does not have the extension {name}: {how}. {}", without(name))
}

/// Returns advice on how to continue without the extension.
fn without(name: &str) -> String {
    let quoted = match name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_') {
        true => name.to_owned(),
        false => format!("\"{name}\""),
    };
    format!(
        "To go on without it, remove the statement, or run it only where it works: do $$ begin if exists (select from \
         pg_available_extensions where name = '{name}') then create extension {quoted}; end if; end $$;"
    )
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn advice_names_the_package_or_a_substitute() {
        for (name, expected) in [
            ("postgis", "the package postgresql-18-postgis-3 of Debian"),
            ("http", "postgresql-18-http"),
            ("vector", "`make extensions` in Portico's own folder fetches it"),
            ("vector", "or the package postgresql-18-pgvector"),
            ("pgmq", "`make extensions`"),
            ("pg_jsonschema", "a check constraint"),
            ("pgsodium", "pgcrypto"),
            ("supabase-dbdev", "create extension \"supabase-dbdev\""),
            ("something", "install it for PostgreSQL 18"),
        ] {
            let text = missing(name, 18);
            assert!(text.contains(expected), "{text}");
            assert!(text.contains("To go on without it"), "{text}");
        }
    }
}
