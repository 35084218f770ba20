//! `[remotes.<name>]`: variants of the configuration for other deployments.
//!
//! They have no effect locally. All of them are checked, and one may be chosen.

use indexmap::IndexMap;

use super::folders::Folders;
use super::root::Config;
use crate::document::{DocumentNode, Value};
use crate::environment::Environment;
use crate::error::{Problem, Warning, WarningKind};
use crate::section::{ConfigReader, UnknownKeys};

/// Checks names and project ids of all remotes, and every value in them.
pub(crate) fn check_remotes(
    root: &DocumentNode,
    environment: &Environment,
    folders: &Folders<'_>,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Warning>,
) {
    let Some(remotes) = root.find(&["remotes"]) else { return };
    let Some(remotes) = remotes.as_table() else {
        let message = format!("remotes: expected a table, found {}", remotes.value.kind());
        problems.push(Problem { position: Some(remotes.origin.position()), key: "remotes".to_owned(), message });
        return;
    };
    let mut seen: IndexMap<&str, &str> = IndexMap::new();
    for (name, remote) in remotes {
        let key = format!("remotes.{name}.project_id");
        let position = Some(remote.origin.position());
        let Some(id) = project_id(remote) else {
            let message = format!("Invalid config for {key}. Must be like: abcdefghijklmnopqrst");
            problems.push(Problem { position, key, message });
            continue;
        };
        if let Some(other) = seen.insert(id, name) {
            let message = format!("duplicate project_id for [remotes.{name}] and [remotes.{other}]");
            problems.push(Problem { position, key, message });
        }
        // A remote is read alone, on the defaults: its values are checked, and missing ones are not
        // needed here
        let reading = ConfigReader::new(environment, "SUPABASE", UnknownKeys::Warn);
        let mut section = reading.root(remote);
        section.quiet_unless(false);
        Config::read(section, folders);
        let (found, remarks) = reading.into_findings();
        problems.extend(
            found.into_iter().map(|problem| Problem { key: format!("remotes.{name}.{}", problem.key), ..problem }),
        );
        warnings.extend(
            remarks
                .into_iter()
                .filter(|warning| warning.kind == WarningKind::UnknownKey)
                .map(|warning| Warning { key: format!("remotes.{name}.{}", warning.key), ..warning }),
        );
    }
}

/// Merges the remote with this name or project id into the tree. Returns its name.
pub(crate) fn apply_remote(root: &mut DocumentNode, chosen: &str) -> Option<String> {
    let remotes = root.find(&["remotes"])?.as_table()?;
    let chosen_name = chosen.to_lowercase();
    let (name, remote) =
        remotes.iter().find(|(name, remote)| **name == chosen_name || project_id(remote) == Some(chosen))?;
    let (name, mut remote) = (name.clone(), remote.clone());
    remote.beat_environment();
    // A remote is not seeded unless it says so
    if remote.find(&["db", "seed", "enabled"]).is_none() {
        let off = DocumentNode { value: Value::Boolean(false), origin: remote.origin.clone() };
        let wrapped = ["enabled", "seed", "db"].into_iter().fold(off, |inner, name| DocumentNode {
            origin: inner.origin.clone(),
            value: Value::Table(IndexMap::from([(name.to_owned(), inner)])),
        });
        remote.merge(wrapped);
    }
    root.merge(remote);
    Some(name)
}

fn project_id(remote: &DocumentNode) -> Option<&str> {
    match &remote.find(&["project_id"])?.value {
        Value::Text(id) if id.len() == 20 && id.bytes().all(|byte| byte.is_ascii_lowercase()) => Some(id),
        _ => None,
    }
}
