//! A digest of the catalogs, to detect changes that no event trigger announces.

/// The catalogs that the schema cache, the roles and the settings are read from. The column tells
/// rows of projects from rows of PostgreSQL itself.
const CATALOGS: [(&str, &str); 17] = [
    ("pg_attrdef", "adrelid"),
    ("pg_attribute", "attrelid"),
    ("pg_auth_members", "member"),
    ("pg_cast", "oid"),
    ("pg_class", "oid"),
    ("pg_constraint", "oid"),
    ("pg_db_role_setting", "setrole"),
    ("pg_description", "objoid"),
    ("pg_enum", "enumtypid"),
    ("pg_index", "indexrelid"),
    ("pg_inherits", "inhrelid"),
    ("pg_namespace", "oid"),
    ("pg_policy", "oid"),
    ("pg_proc", "oid"),
    ("pg_rewrite", "oid"),
    ("pg_trigger", "oid"),
    ("pg_type", "oid"),
];

/// Returns a query for a digest of the catalogs. A row that changes gets another `xmin`.
pub(super) fn query() -> String {
    let digest = |(catalog, column): (&str, &str)| {
        // The public schema belongs to PostgreSQL, and settings may apply to all roles
        let is_whole = matches!(catalog, "pg_namespace" | "pg_db_role_setting" | "pg_auth_members");
        let rows = if is_whole { String::new() } else { format!(" where {column} >= 16384") };
        format!(
            "select '{catalog} ' || sum(pg_catalog.hashtextextended(xmin::text || ' ' || {column}, 0)) from pg_catalog.{catalog}{rows}"
        )
    };
    let digests = CATALOGS.map(digest).join(" union all ");
    format!(
        "select pg_catalog.md5(pg_catalog.string_agg(digest, ',' order by digest)) from ({digests}) as catalogs (digest)"
    )
}
