//! Settings that the statements of a batch need. What one batch has set stays with the session, so that the next one sets only what it
//! needs otherwise: mostly the same role asks for the same things.
//!
//! Invariant: what is held is what the session has. A batch is one transaction, and settings come back with it when it fails; what
//! statements may have set without our knowledge is for [`Batch::restoring`].

use std::borrow::Cow;
use std::time::{Duration, Instant};

use super::batch::{Param, Statement};
use super::beginning::Beginning;

/// What the statements of a batch see, over what the session began with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Within<'a> {
    /// Names and values in the order in which they are set. The role that the batch acts in is the setting `role`; those in front of it are
    /// set with the rights of the role that the connection began with.
    pub settings: &'a [(&'a str, &'a str)],
    /// Names of settings that nothing in the batch can see, so that any value will do.
    pub unseen: &'a [&'a str],
}

/// After so long a role is set again although it is held: whether it may still be taken on, and which role has the name, is looked up
/// only then.
const FRESH: Duration = Duration::from_secs(1);

/// The settings that a session has from earlier batches.
#[derive(Debug, Default)]
pub(super) struct Held {
    settings: Settings,
    /// When the role was set.
    role_set: Option<Instant>,
    /// What will be held if the open transaction commits.
    pending: Option<Settings>,
    /// The roles of the batches may not set anything, so the role of the beginning does it.
    as_begun: bool,
}

type Settings = Vec<(Box<str>, Box<str>)>;

/// What is to be set.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change<'a> {
    /// Statements without values that come first.
    first: Vec<Cow<'a, str>>,
    /// Sets the values.
    set: String,
    values: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Names that go back to what they were in the beginning.
    gone: Vec<Box<str>>,
}

const ROLE: &str = "role";

impl Held {
    /// What has to be set for a batch.
    pub fn change<'a>(&self, within: Within<'a>, beginning: &'a Beginning, now: Instant) -> Change<'a> {
        let is_old = self.role_set.is_none_or(|set| now.saturating_duration_since(set) >= FRESH);
        let is_held = |(name, value): &(&str, &str)| {
            !(is_old && *name == ROLE)
                && self.settings.iter().any(|(held, current)| **held == **name && **current == **value)
        };
        let is_settled =
            |name: &str| within.unseen.contains(&name) || within.settings.iter().any(|(it, _)| *it == name);
        let is_same = within.settings.iter().all(is_held) && self.settings.iter().all(|(name, _)| is_settled(name));
        if is_same {
            return Change::default();
        }
        let mut change = Change::default();
        let role = within.settings.iter().find(|(name, _)| *name == ROLE);
        let changes_role = match role {
            Some(role) => !is_held(role),
            None => self.settings.iter().any(|(name, _)| **name == *ROLE),
        };
        let leaves = changes_role || self.as_begun;
        for (name, _) in self.settings.iter().filter(|(name, _)| !is_settled(name)) {
            change.gone.push(name.clone());
            match beginning.value(name) {
                _ if **name == *ROLE => {}
                Some(value) => change.values.push((Cow::Owned(name.to_string()), value.into())),
                // One that PostgreSQL does not know itself was empty
                None if is_own(name) => change.values.push((Cow::Owned(name.to_string()), "".into())),
                None => change.first.push(format!("reset \"{}\"", name.replace('"', "\"\"")).into()),
            }
        }
        let wanted = within.settings.iter().filter(|setting| match setting.0 {
            ROLE => leaves,
            _ => !is_held(setting),
        });
        change.values.extend(wanted.map(|(name, value)| (Cow::Borrowed(*name), Cow::Borrowed(*value))));
        if self.settings.iter().any(|(name, _)| **name == *ROLE) {
            let needs_rights = |name: &str| name != ROLE && !is_own(name);
            if self.as_begun || !change.first.is_empty() || role.is_none() {
                change.first.insert(0, beginning.role_again().into());
                if let (false, Some(role)) = (leaves, role) {
                    change.values.push((role.0.into(), role.1.into()));
                }
            } else if changes_role && change.values.iter().any(|(name, _)| needs_rights(name)) {
                change.values.insert(0, (ROLE.into(), beginning.login_role().into()));
            }
        }
        if !change.values.is_empty() {
            change.set = set(change.values.len(), false);
        }
        change
    }

    /// A batch went well.
    pub fn done(&mut self, change: &Change<'_>, in_transaction: bool, rolled_back: bool, now: Instant) {
        if !rolled_back && change.names().any(|name| name == ROLE) {
            self.role_set = Some(now);
        }
        if rolled_back {
            self.pending = None;
            return;
        }
        if in_transaction {
            let mut settings = self.pending.take().unwrap_or_else(|| self.settings.clone());
            change.apply(&mut settings);
            self.pending = Some(settings);
            return;
        }
        if let Some(settings) = self.pending.take() {
            self.settings = settings;
        }
        change.apply(&mut self.settings);
    }

    /// A batch or a transaction came to nothing.
    pub fn undone(&mut self) {
        self.pending = None;
    }

    /// From now on the role that the connection began with sets everything. Not so, if it did already.
    pub fn rises(&mut self) -> bool {
        !self.settings.is_empty() && !std::mem::replace(&mut self.as_begun, true)
    }

    /// Whether the role that the connection began with sets everything.
    pub fn is_as_begun(&self) -> bool {
        self.as_begun
    }

    /// The session has what it began with.
    pub fn clear(&mut self) {
        self.settings.clear();
        self.pending = None;
    }
}

impl<'a> Change<'a> {
    /// Everything anew and for the transaction alone: for sessions that are not ours.
    pub fn local(within: Within<'a>) -> Self {
        let values: Vec<_> =
            within.settings.iter().map(|(name, value)| (Cow::Borrowed(*name), Cow::Borrowed(*value))).collect();
        let set = if values.is_empty() { String::new() } else { set(values.len(), true) };
        Self { set, values, ..Self::default() }
    }

    /// Whether it changes nothing but settings that PostgreSQL does not know itself: those need no rights, and nothing depends on them.
    pub fn is_of_own_settings(&self) -> bool {
        self.first.is_empty() && self.gone.is_empty() && self.values.iter().all(|(name, _)| is_own(name))
    }

    /// Sets these, whatever there is.
    pub fn setting(values: &[(&'a str, &'a str)]) -> Self {
        let values: Vec<_> = values.iter().map(|(name, value)| (Cow::Borrowed(*name), Cow::Borrowed(*value))).collect();
        let set = if values.is_empty() { String::new() } else { set(values.len(), false) };
        Self { set, values, ..Self::default() }
    }

    /// The statement that sets its values; empty where there are none.
    pub fn set(&self) -> &str {
        &self.set
    }

    /// How many statements it has: none where the session has everything already.
    pub fn len(&self) -> usize {
        self.first.len() + usize::from(!self.values.is_empty())
    }

    /// The names that it sets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(name, _)| &**name).chain(self.gone.iter().map(|name| &**name))
    }

    /// The values of its last statement.
    pub fn params(&self) -> Vec<Param<'_>> {
        self.values.iter().flat_map(|(name, value)| [Some(name.as_bytes()), Some(value.as_bytes())]).collect()
    }

    /// Its statements.
    pub fn statements<'b>(&'b self, params: &'b [Param<'b>]) -> impl Iterator<Item = Statement<'b>> {
        let set = (!self.values.is_empty()).then(|| Statement::named(&self.set, params));
        self.first.iter().map(|text| Statement::named(text, &[])).chain(set)
    }

    fn apply(&self, settings: &mut Settings) {
        settings.retain(|(name, _)| !self.gone.contains(name));
        for (name, value) in self.values.iter().filter(|(name, _)| !self.gone.iter().any(|gone| **gone == **name)) {
            match settings.iter_mut().find(|(held, _)| **held == **name) {
                Some((_, current)) => *current = (**value).into(),
                None => settings.push(((**name).into(), (**value).into())),
            }
        }
    }
}

/// Whether a setting is one of an application's: PostgreSQL takes every value for it, from everybody.
pub(super) fn is_own(name: &str) -> bool {
    name.contains('.')
}

/// The statement that sets so many settings.
fn set(count: usize, local: bool) -> String {
    let mut text = String::with_capacity(count * 48 + 7);
    for at in 0..count {
        text.push_str(if at == 0 { "select " } else { ", " });
        text.push_str(&format!("pg_catalog.set_config(${}, ${}, {local})", 2 * at + 1, 2 * at + 2));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::beginning::Role;

    fn beginning() -> Beginning {
        Beginning::new(Role::Login, vec![("request.cookies".into(), "{}".into())])
    }

    /// What a batch would send, and that it went well.
    fn next(held: &mut Held, settings: &[(&str, &str)], unseen: &[&str]) -> Vec<String> {
        next_at(held, settings, unseen, held.role_set.unwrap_or_else(Instant::now))
    }

    fn next_at(held: &mut Held, settings: &[(&str, &str)], unseen: &[&str], now: Instant) -> Vec<String> {
        let beginning = beginning();
        let change = held.change(Within { settings, unseen }, &beginning, now);
        let mut sent: Vec<_> = change.first.iter().map(ToString::to_string).collect();
        sent.extend(change.values.iter().map(|(name, value)| format!("{name}={value}")));
        held.done(&change, false, false, now);
        sent
    }

    #[test]
    fn a_role_is_asked_for_again_after_a_while() {
        let mut held = Held::default();
        let wanted = [("statement_timeout", "3s"), ("role", "anon"), ("request.path", "/a")];
        let begun = Instant::now();
        assert_eq!(next_at(&mut held, &wanted, &[], begun).len(), 3);
        assert!(next_at(&mut held, &wanted, &[], begun + FRESH / 2).is_empty());
        assert_eq!(next_at(&mut held, &wanted, &[], begun + FRESH), ["role=anon"]);
        assert!(next_at(&mut held, &wanted, &[], begun + FRESH + FRESH / 2).is_empty());
    }

    #[test]
    fn what_the_session_has_is_not_set_again() {
        let mut held = Held::default();
        let anon = [("statement_timeout", "3s"), ("role", "anon"), ("request.path", "/a")];
        assert_eq!(next(&mut held, &anon, &[]), ["statement_timeout=3s", "role=anon", "request.path=/a"]);
        assert!(next(&mut held, &anon, &[]).is_empty());
        let elsewhere = [("statement_timeout", "3s"), ("role", "anon"), ("request.path", "/b")];
        assert_eq!(next(&mut held, &elsewhere, &[]), ["request.path=/b"]);
        // What nobody sees stays as it is
        assert!(next(&mut held, &anon[..2], &["request.path"]).is_empty());
        assert_eq!(next(&mut held, &anon, &[]), ["request.path=/a"]);
    }

    #[test]
    fn what_is_not_wanted_goes_back_to_the_beginning() {
        let mut held = Held::default();
        let all = [("statement_timeout", "3s"), ("role", "anon"), ("app.x", "1"), ("request.cookies", "{\"a\":1}")];
        next(&mut held, &all, &[]);
        let longer = [("statement_timeout", "8s"), ("role", "authenticated"), ("app.x", "1"), all[3]];
        // With the rights of the role that it began with
        assert_eq!(next(&mut held, &longer, &[]), ["role=none", "statement_timeout=8s", "role=authenticated"]);
        assert_eq!(next(&mut held, &all, &[]), ["role=none", "statement_timeout=3s", "role=anon"]);
        let other = [("role", "service_role")];
        let sent = ["reset role", "reset \"statement_timeout\"", "app.x=", "request.cookies={}", "role=service_role"];
        assert_eq!(next(&mut held, &other, &[]), sent);
        assert!(next(&mut held, &other, &[]).is_empty());
        assert_eq!(next(&mut held, &[], &[]), ["reset role"]);
        assert!(next(&mut held, &[], &[]).is_empty());
        next(&mut held, &all[..2], &[]);
        // The role stays, but what is set back needs the other's rights
        assert_eq!(next(&mut held, &all[1..2], &[]), ["reset role", "reset \"statement_timeout\"", "role=anon"]);
    }

    #[test]
    fn nothing_is_held_that_did_not_come_to_pass() {
        let beginning = beginning();
        let within = |value| [("role", value)];
        let mut held = Held::default();
        let now = Instant::now();
        next(&mut held, &within("anon"), &[]);
        let wanted = within("authenticated");
        let change = || held_change(&wanted, &beginning);
        fn held_change<'a>(wanted: &'a [(&'a str, &'a str)], beginning: &'a Beginning) -> Change<'a> {
            Held::default().change(Within { settings: wanted, unseen: &[] }, beginning, Instant::now())
        }
        // Rolled back in one batch, and in two
        held.done(&change(), false, true, now);
        assert!(next(&mut held, &within("anon"), &[]).is_empty());
        held.done(&change(), true, false, now);
        held.done(&Change::default(), false, true, now);
        assert!(next(&mut held, &within("anon"), &[]).is_empty());
        held.done(&change(), true, false, now);
        held.undone();
        assert!(next(&mut held, &within("anon"), &[]).is_empty());
        // Committed by a second batch
        held.done(&change(), true, false, now);
        held.done(&Change::default(), false, false, now);
        assert!(next(&mut held, &wanted, &[]).is_empty());
        held.clear();
        assert_eq!(next(&mut held, &wanted, &[]), ["role=authenticated"]);
    }

    #[test]
    fn where_roles_may_not_set_anything_the_first_one_does() {
        let mut held = Held { as_begun: true, ..Held::default() };
        assert_eq!(next(&mut held, &[("role", "anon"), ("request.path", "/a")], &[]), ["role=anon", "request.path=/a"]);
        let sent = ["reset role", "role=anon", "request.path=/b"];
        assert_eq!(next(&mut held, &[("role", "anon"), ("request.path", "/b")], &[]), sent);
    }
}
