//! The administration of accounts, for callers with an administrator's role.

pub(crate) mod administrator;
pub(crate) mod audit_log;
mod ban;
pub mod command;
mod cursor;
pub(crate) mod custom_providers;
pub(crate) mod invitation;
pub(crate) mod link;
mod page;
pub(crate) mod users;

use crate::model::User;
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits};

/// Returns the traits that name the account of an event.
fn account_traits(user: &User) -> Traits {
    Traits::from_iter([
        ("user_id".to_owned(), user.id.to_string().into()),
        ("user_email".to_owned(), user.email.as_str().into()),
        ("user_phone".to_owned(), user.phone.as_str().into()),
    ])
}

/// Writes an entry of the audit log for an action of an administrator on the account `user`.
async fn record(
    op: AccountOperation<'_>,
    actor: &User,
    action: Action,
    user: &User,
) -> Result<(), tokio_postgres::Error> {
    op.record(actor, action, account_traits(user)).await
}
