//! The parts of one operation on accounts.

use time::OffsetDateTime;
use tokio_postgres::Error;

use crate::Auth;
use crate::http::extract::RequestInfo;
use crate::model::ids::{IdentityId, UserId};
use crate::model::{Identity, JsonObject, User};
use crate::protection::audit::{Action, AuditEvent, Traits};
use crate::sql::identities::NewIdentity;
use crate::sql::{Tx, identities};

/// The service, the request and the transaction that belong to one operation on accounts.
///
/// The transaction stays with the function that began it, which also commits it.
#[derive(Clone, Copy)]
pub(crate) struct AccountOperation<'a> {
    pub(crate) auth: &'a Auth,
    pub(crate) request: &'a RequestInfo,
    pub(crate) tx: &'a Tx,
}

impl<'a> AccountOperation<'a> {
    pub(crate) fn new(auth: &'a Auth, request: &'a RequestInfo, tx: &'a Tx) -> Self {
        Self { auth, request, tx }
    }

    /// Returns the time of the request, which everything that the operation writes carries.
    pub(crate) fn now(self) -> OffsetDateTime {
        self.request.now
    }

    /// Adds the identity of `subject` at a provider to a user. Its id is the same in each run of
    /// the transaction: hooks see it before it is stored.
    ///
    /// # Errors
    /// The error of PostgreSQL.
    pub(crate) async fn insert_identity(
        self,
        user: UserId,
        provider: &str,
        subject: &str,
        data: &JsonObject,
    ) -> Result<Identity, Error> {
        let id = self.identity_id(provider, subject);
        identities::insert(self.tx, &NewIdentity { id, user, provider, provider_id: subject, data }, self.now()).await
    }

    /// Adds or updates the identity that stands for the own address (`email`) or number (`phone`)
    /// of a user.
    ///
    /// # Errors
    /// The error of PostgreSQL.
    pub(crate) async fn upsert_contact_identity(
        self,
        user: UserId,
        provider: &str,
        data: &JsonObject,
    ) -> Result<(), Error> {
        let provider_id = &user.to_string();
        let id = self.identity_id(provider, provider_id);
        identities::upsert_contact(self.tx, &NewIdentity { id, user, provider, provider_id, data }, self.now()).await
    }

    fn identity_id(self, provider: &str, subject: &str) -> IdentityId {
        IdentityId(self.request.hooks.uuid(&format!("identity at {provider} of {subject}")))
    }

    /// Writes an entry of the audit log, without the address of the client.
    ///
    /// # Errors
    /// The error of PostgreSQL.
    pub(crate) async fn record(self, actor: &User, action: Action, traits: Traits) -> Result<(), Error> {
        let event = AuditEvent::new(actor, action).with_traits(traits);
        self.auth.audit_log().record(self.tx, event, self.now()).await
    }

    /// Writes an entry of the audit log, with the address of the client. Only for actions on
    /// identities, factors and passkeys.
    ///
    /// # Errors
    /// The error of PostgreSQL.
    pub(crate) async fn record_with_ip(self, actor: &User, action: Action, traits: Traits) -> Result<(), Error> {
        let event = AuditEvent::new(actor, action).with_traits(traits).with_ip(self.request.ip);
        self.auth.audit_log().record(self.tx, event, self.now()).await
    }
}
