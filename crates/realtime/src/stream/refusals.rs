//! The changes of publications that the database refuses, which are logged once.

use std::sync::{Mutex, PoisonError};

use portico_database::replication::RefusedChange;

/// The changes that were refused at the last attempt.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Vec<RefusedChange>>);

impl Refusals {
    /// Replaces the refused changes by those of another attempt. Returns those that are new.
    pub fn replace(&self, refused: Vec<RefusedChange>) -> Vec<RefusedChange> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = refused.iter().filter(|refusal| !known.contains(refusal)).cloned().collect();
        *known = refused;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_new_until_it_changes_or_ends() {
        let refusals = Refusals::default();
        let refusal = |reason: &str| RefusedChange { publication: "p", reason: reason.into() };
        let (owner, read_only) = (refusal("must be owner"), refusal("read-only"));
        assert_eq!(refusals.replace(vec![owner.clone()]), std::slice::from_ref(&owner));
        assert_eq!(refusals.replace(vec![owner.clone()]), []);
        assert_eq!(refusals.replace(vec![owner.clone(), read_only.clone()]), [read_only]);
        assert_eq!(refusals.replace(Vec::new()), []);
        assert_eq!(refusals.replace(vec![owner.clone()]), [owner]);
    }
}
