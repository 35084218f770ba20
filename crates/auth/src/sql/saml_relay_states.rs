//! `auth.saml_relay_states`.

use time::OffsetDateTime;
use tokio_postgres::Error;

use super::Tx;

statements! {
    const DELETE_OLD = "
        delete from auth.saml_relay_states
         where id in (select old.id
                        from auth.saml_relay_states as old
                       where old.created_at < $1
                       limit 500
                         for update skip locked)";
}

/// Deletes sign-ins at the provider of a company that began before `before`. Returns their number.
pub async fn delete_old(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_OLD, &[&before]).await
}
