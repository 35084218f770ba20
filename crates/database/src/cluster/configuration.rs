//! The configuration files that PostgreSQL reads. They are ours: written anew at every start.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use super::account;
use super::binaries::Binaries;
use super::extensions;
use super::home::{Home, SOCKET_PORT, SUPERUSER};
use super::settings::{ClusterSettings, Durability};
use crate::quote;

/// The name of the map from system users to roles.
const MAP: &str = "portico";
/// Access over TCP: a password for every role but the superuser, and no physical replication.
const ACCESS_BY_TCP: &str = "host all all 127.0.0.1/32 scram-sha-256\nhost all all ::1/128 scram-sha-256\n";
/// The first version whose map accepts `all` for every role.
const MAPS_ALL_ROLES: u32 = 16;

/// The extension that works only in a server that has loaded it at its start, and that the hosted
/// service has.
const PRELOADED: &str = "pg_stat_statements";

/// Writes `postgresql.conf`, `pg_hba.conf` and `pg_ident.conf` where they differ from what is
/// there.
pub(super) fn write(home: &Home, settings: &ClusterSettings, binaries: &Binaries) -> io::Result<()> {
    let (folder, major) = (home.pgdata(), binaries.major());
    let files = [
        ("postgresql.conf", postgresql_conf(home, settings, binaries)),
        ("pg_hba.conf", pg_hba_conf(settings, major)),
        ("pg_ident.conf", pg_ident_conf(&account::own_name()?, major)),
    ];
    for (name, text) in files {
        let file = folder.join(name);
        if fs::read_to_string(&file).is_ok_and(|present| present == text) {
            continue;
        }
        fs::write(&file, text)?;
        home.account.set_owner(&file)?;
    }
    Ok(())
}

/// Returns the rules of access. Through the socket the system user of this program, which the
/// kernel reports, may act as the roles of the map; any other connection needs the password of its
/// role. No connection is trusted, neither from a second server nor from a query that connects to
/// its own server.
fn pg_hba_conf(settings: &ClusterSettings, major: u32) -> String {
    let mapped = match major >= MAPS_ALL_ROLES {
        true => "all".to_owned(),
        false => MAPPED_ROLES.join(","),
    };
    let mut text = format!("local all {mapped} peer map={MAP}\n");
    if major < MAPS_ALL_ROLES {
        text.push_str("local all all scram-sha-256\n");
    }
    if settings.tcp_port.is_some() {
        text.push_str(&format!("host all {SUPERUSER} all reject\n{ACCESS_BY_TCP}"));
    }
    text
}

/// Returns the map for `peer`: the user of this program, and root, which could become that user. A
/// separate user of the server is not in it.
fn pg_ident_conf(user: &str, major: u32) -> String {
    let roles: &[&str] = if major >= MAPS_ALL_ROLES { &["all"] } else { MAPPED_ROLES };
    let mut users = vec![user, "root"];
    users.dedup();
    let lines = users.iter().flat_map(|user| roles.iter().map(move |role| format!("{MAP} \"{user}\" {role}\n")));
    lines.collect()
}

/// The roles that this program logs in as, for versions whose map needs each by name.
const MAPPED_ROLES: &[&str] = &[
    SUPERUSER,
    "postgres",
    "authenticator",
    "supabase_auth_admin",
    "supabase_storage_admin",
    "supabase_realtime_admin",
    "supabase_functions_admin",
];

/// Returns the loopback addresses that this machine has: a container often lacks the newer one.
pub(super) fn loopback_addresses() -> Vec<IpAddr> {
    let newer = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let has_newer = TcpListener::bind((newer, 0)).is_ok();
    [IpAddr::V4(Ipv4Addr::LOCALHOST)].into_iter().chain(has_newer.then_some(newer)).collect()
}

/// Returns the settings on the command line, where neither a file nor `alter system` can override
/// them: those of access.
pub(super) fn arguments(home: &Home, settings: &ClusterSettings) -> Vec<String> {
    let (addresses, port) = match settings.tcp_port {
        Some(port) => (loopback_addresses().iter().map(IpAddr::to_string).collect(), port),
        None => (Vec::new(), SOCKET_PORT),
    };
    let addresses = addresses.join(",");
    [
        format!("listen_addresses={addresses}"),
        format!("port={port}"),
        format!("unix_socket_directories={}", list_item(&home.socket_folder().to_string_lossy())),
        "unix_socket_permissions=0700".to_owned(),
    ]
    .into_iter()
    .flat_map(|setting| ["-c".to_owned(), setting])
    .collect()
}

fn postgresql_conf(home: &Home, settings: &ClusterSettings, binaries: &Binaries) -> String {
    let mut lines: Vec<(&str, String)> = [
        // Small, since this machine runs other things; a project can ask for more
        ("max_connections", "100"),
        ("shared_buffers", "64MB"),
        ("huge_pages", "off"),
        ("min_wal_size", "32MB"),
        ("max_wal_size", "512MB"),
        // The change feed and replication
        ("wal_level", "logical"),
        ("max_wal_senders", "10"),
        ("max_replication_slots", "10"),
        ("max_slot_wal_keep_size", "4GB"),
        // As applications find it on the hosted platform
        ("timezone", "UTC"),
        ("extra_float_digits", "0"),
        ("password_encryption", "scram-sha-256"),
        ("row_security", "on"),
        ("default_text_search_config", "pg_catalog.english"),
        ("lc_messages", "C"),
        // Data is in memory or on a disk without arms. At the default of 4 a join of few rows
        // hashes whole small tables, for each parent of an embed again: 100 rows with a
        // many-to-many embed take 39 ms so, and 5 ms with this
        ("random_page_cost", "1.1"),
        // Compiling pays for long analyses only, and costs short requests their plan
        ("jit", "off"),
        // The log goes to our log; statements may hold secrets, so they stay out of it
        ("log_destination", "stderr"),
        ("logging_collector", "off"),
        ("log_timezone", "UTC"),
        ("log_line_prefix", ""),
        ("log_min_messages", "warning"),
        ("log_min_error_statement", "panic"),
        ("log_checkpoints", "off"),
        ("update_process_title", "off"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .into();
    if binaries.major() >= 18 {
        // No processes of its own for reading: the data of a small server is in memory
        lines.push(("io_method", "sync".into()));
    }
    if let Some(paths) = extensions::search_paths(home, binaries) {
        lines.push(("extension_control_path", paths.control));
        lines.push(("dynamic_library_path", paths.library));
    }
    if extensions::has_library(binaries, PRELOADED) {
        lines.push(("shared_preload_libraries", PRELOADED.into()));
    }
    if settings.durability == Durability::Off {
        for name in ["fsync", "synchronous_commit", "full_page_writes"] {
            lines.push((name, "off".into()));
        }
    }
    let ours = lines.iter().map(|(name, value)| (*name, value));
    let theirs = settings.parameters.iter().map(|(name, value)| (name.as_str(), value));
    let mut text =
        String::from("# Written by Portico at every start. Use `alter system`, or [db.settings] of the project.\n");
    for (name, value) in ours.chain(theirs) {
        let _ = writeln!(text, "{name} = '{}'", value.replace('\\', "\\\\").replace('\'', "''"));
    }
    text
}

/// Returns one item of a setting that is a list: quoted, so that commas and spaces in a path stay
/// inside.
fn list_item(text: &str) -> String {
    quote::identifier(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_of_access_trusts() {
        for (port, major) in [(None, 15), (Some(1), 15), (None, 18), (Some(1), 18)] {
            let settings = ClusterSettings { tcp_port: port, ..ClusterSettings::new("data") };
            let rules = pg_hba_conf(&settings, major);
            for rule in rules.lines() {
                let method = rule.split_whitespace().nth(if rule.starts_with("local") { 3 } else { 4 });
                assert!(["peer", "scram-sha-256", "reject"].contains(&method.unwrap_or_default()), "{rule}");
            }
            assert!(!rules.contains("replication"), "{rules}");
        }
        assert_eq!(pg_ident_conf("me", 18), "portico \"me\" all\nportico \"root\" all\n");
        assert_eq!(pg_ident_conf("root", 18), "portico \"root\" all\n");
        assert!(pg_ident_conf("me", 15).contains("portico \"me\" authenticator\n"));
    }
}
