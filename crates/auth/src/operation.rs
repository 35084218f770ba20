//! The parts of one operation on accounts.

use time::OffsetDateTime;
use tokio_postgres::Error;

use crate::Auth;
use crate::http::extract::RequestInfo;
use crate::model::User;
use crate::protection::audit::{Action, AuditEvent, Traits};
use crate::sql::Tx;

/// The service, the request and the transaction that belong to one operation on accounts.
///
/// The transaction stays with the function that began it, which also commits it.
#[derive(Clone, Copy)]
pub(crate) struct Operation<'a> {
    pub(crate) auth: &'a Auth,
    pub(crate) request: &'a RequestInfo,
    pub(crate) tx: &'a Tx,
}

impl<'a> Operation<'a> {
    pub(crate) fn new(auth: &'a Auth, request: &'a RequestInfo, tx: &'a Tx) -> Self {
        Self { auth, request, tx }
    }

    /// Returns the time of the request, which everything that the operation writes carries.
    pub(crate) fn now(self) -> OffsetDateTime {
        self.request.now
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
