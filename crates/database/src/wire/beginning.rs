//! What a session begins with: the role it acts as, and settings. A batch may ask for it again.

use super::batch::{Batch, Param, Statement};

/// The role and the settings of a new session, as statements.
#[derive(Debug, Clone, Default)]
pub(super) struct Beginning {
    role: Role,
    /// Names and values, in their order.
    settings: Vec<(String, String)>,
    /// Sets them all.
    set: String,
}

/// How the role is taken on.
#[derive(Debug, Clone, Default)]
pub(super) enum Role {
    /// It is the one that logs in.
    #[default]
    Login,
    /// By `set role`.
    Taken {
        /// The role.
        role: String,
        /// What takes it on.
        statement: String,
    },
    /// By `set session authorization`: the login role is a superuser.
    Session(String),
}

impl Role {
    /// The statement that takes it on.
    pub fn take(&self) -> Option<&str> {
        match self {
            Self::Login => None,
            Self::Taken { statement, .. } | Self::Session(statement) => Some(statement),
        }
    }

    /// The statement that makes the session the login role's again, which may do what the settings need.
    fn leave(&self) -> &'static str {
        match self {
            Self::Login | Self::Taken { .. } => "reset role",
            Self::Session(_) => "reset session authorization",
        }
    }
}

impl Beginning {
    /// The beginning in a role, with the settings that the login role makes before it takes on the role.
    pub fn new(role: Role, settings: Vec<(String, String)>) -> Self {
        let calls = (0..settings.len())
            .map(|at| format!("pg_catalog.set_config(${}, ${}, false)", 2 * at + 1, 2 * at + 2))
            .collect::<Vec<_>>();
        let set = if calls.is_empty() { String::new() } else { format!("select {}", calls.join(", ")) };
        Self { role, settings, set }
    }

    /// What a setting was in the beginning, if that was our doing.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    /// The setting `role` of the beginning.
    pub fn login_role(&self) -> &str {
        match &self.role {
            Role::Login | Role::Session(_) => "none",
            Role::Taken { role, .. } => role,
        }
    }

    /// The statement that goes back to the role of the beginning from one that was set over it.
    pub fn role_again(&self) -> &str {
        match &self.role {
            Role::Login | Role::Session(_) => "reset role",
            Role::Taken { statement, .. } => statement,
        }
    }

    /// The values that [`behind`](Self::behind) and [`set`](Self::set) send.
    pub fn params(&self) -> Vec<Param<'_>> {
        self.settings.iter().flat_map(|(name, value)| [Some(name.as_bytes()), Some(value.as_bytes())]).collect()
    }

    /// What makes the settings, if there are any.
    pub fn set<'a>(&'a self, params: &'a [Param<'a>]) -> Option<Statement<'a>> {
        (!self.set.is_empty()).then(|| Statement::named(&self.set, params))
    }

    /// The batch, and behind it what brings back the beginning.
    pub fn behind<'a>(&'a self, batch: &Batch<'a>, params: &'a [Param<'a>]) -> Batch<'a> {
        let mut whole = batch.clone();
        whole.push(Statement::named("reset all", &[]));
        // The role is not among `all`
        whole.push(Statement::named(self.role.leave(), &[]));
        whole.statements.extend(self.set(params));
        whole.statements.extend(self.role.take().map(|role| Statement::named(role, &[])));
        whole
    }
}
