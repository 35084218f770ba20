//! The configuration files that PostgreSQL reads. They are ours: written anew at every start.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use super::extensions;
use super::home::{Home, SOCKET_PORT};
use super::settings::{ClusterSettings, Durability};

/// Who may connect: whoever can open the socket, which lies in a folder that only PostgreSQL's user and root can enter,
/// as any role; others through TCP with a password.
const ACCESS_BY_SOCKET: &str = "local all all trust\nlocal replication all trust\n";
const ACCESS_BY_TCP: &str = "host all all 127.0.0.1/32 scram-sha-256\nhost all all ::1/128 scram-sha-256\n\
                             host replication all 127.0.0.1/32 scram-sha-256\nhost replication all ::1/128 scram-sha-256\n";

/// Writes `postgresql.conf` and `pg_hba.conf` where they differ from what is there.
pub(super) fn write(home: &Home, settings: &ClusterSettings, major: u32) -> io::Result<()> {
    let folder = home.pgdata();
    let access = match settings.tcp_port {
        Some(_) => format!("{ACCESS_BY_SOCKET}{ACCESS_BY_TCP}"),
        None => ACCESS_BY_SOCKET.to_owned(),
    };
    for (name, text) in [("postgresql.conf", postgresql_conf(home, settings, major)), ("pg_hba.conf", access)] {
        let file = folder.join(name);
        if fs::read_to_string(&file).is_ok_and(|present| present == text) {
            continue;
        }
        fs::write(&file, text)?;
        home.account.own(&file)?;
    }
    Ok(())
}

/// The loopback addresses that this machine has: a container often lacks the newer one.
pub(super) fn loopback_addresses() -> Vec<IpAddr> {
    let newer = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let has_newer = TcpListener::bind((newer, 0)).is_ok();
    [IpAddr::V4(Ipv4Addr::LOCALHOST)].into_iter().chain(has_newer.then_some(newer)).collect()
}

/// What is given on the command line, where neither a file nor `alter system` can override it: the ways in.
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

fn postgresql_conf(home: &Home, settings: &ClusterSettings, major: u32) -> String {
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
        // Data is in memory or on a disk without arms. At the default of 4 a join of few rows hashes whole small tables, for each parent
        // of an embed again: 100 rows with a many-to-many embed take 39 ms so, and 5 ms with this
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
    if major >= 18 {
        // No processes of its own for reading: the data of a small server is in memory
        lines.push(("io_method", "sync".into()));
    }
    if let Some(folders) = extensions::search_path(home, major) {
        lines.push(("extension_control_path", folders));
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

/// One item of a setting that is a list: quoted, so that commas and spaces in a path stay inside.
fn list_item(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
