//! The properties of an endpoint's server that were detected.

use std::sync::{Arc, PoisonError, RwLock};

use super::logins::Logins;
use super::names::Names;
use crate::pooler::pooling::Pooling;

/// The state of all clones of an endpoint: the names that were chosen, and the logins that the
/// server admits.
#[derive(Debug, Clone, Default)]
pub(crate) struct DetectedServer(Arc<DetectedProperties>);

#[derive(Debug, Default)]
struct DetectedProperties {
    logins: Option<Logins>,
    names: RwLock<Option<Arc<Names>>>,
    admitted: RwLock<Vec<&'static str>>,
    pooling: RwLock<Option<Pooling>>,
}

/// An endpoint is where a server is and as whom to connect; what was found out there is no part of
/// it.
impl PartialEq for DetectedServer {
    fn eq(&self, other: &Self) -> bool {
        self.0.logins == other.0.logins
    }
}

impl Eq for DetectedServer {}

impl DetectedServer {
    /// Returns a state that knows nothing of the server, with login roles by a secret.
    pub fn with_secret(secret: &[u8]) -> Self {
        Self(Arc::new(DetectedProperties { logins: Some(Logins::new(secret)), ..DetectedProperties::default() }))
    }

    /// Returns a state that knows nothing of the server, for another database of it.
    pub fn afresh(&self) -> Self {
        let pooling = RwLock::new(self.known_pooling());
        Self(Arc::new(DetectedProperties { logins: self.0.logins.clone(), pooling, ..DetectedProperties::default() }))
    }

    /// Returns how connections get server sessions, once that was found out.
    pub fn known_pooling(&self) -> Option<Pooling> {
        *self.0.pooling.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps how connections get server sessions.
    pub fn set_pooling(&self, pooling: Pooling) {
        *self.0.pooling.write().unwrap_or_else(PoisonError::into_inner) = Some(pooling);
    }

    /// Returns the login roles of this installation.
    pub fn logins(&self) -> Option<&Logins> {
        self.0.logins.as_ref()
    }

    /// Returns the names, if they were chosen already.
    pub fn names(&self) -> Option<Arc<Names>> {
        self.0.names.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the names that were chosen last.
    pub fn set_names(&self, names: Names) -> Arc<Names> {
        let names = Arc::new(names);
        *self.0.names.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&names));
        names
    }

    /// Notes for which parts the server admits our logins.
    pub fn set_admitted(&self, parts: Vec<&'static str>) {
        *self.0.admitted.write().unwrap_or_else(PoisonError::into_inner) = parts;
    }

    /// Returns true if the server admits our login for a part.
    pub fn is_admitted(&self, part: &str) -> bool {
        self.0.admitted.read().unwrap_or_else(PoisonError::into_inner).contains(&part)
    }
}
