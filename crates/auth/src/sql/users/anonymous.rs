//! The clean-up of anonymous accounts.

use time::OffsetDateTime;
use tokio_postgres::Error;

use crate::model::ids::UserId;
use crate::sql::{Run as _, Tx};

/// The condition for accounts that were last used before a time: by the latest of creation, sign-in
/// and refresh of a session.
macro_rules! unused_since {
    ($time:literal) => {
        concat!(
            "old.is_anonymous
             and old.created_at < ",
            $time,
            "
             and (old.last_sign_in_at is null or old.last_sign_in_at < ",
            $time,
            ")
             and not exists (select
                               from auth.sessions
                              where sessions.user_id = old.id
                                and (sessions.created_at >= ",
            $time,
            "
                                     or sessions.refreshed_at at time zone 'utc' >= ",
            $time,
            "
                                     or exists (select
                                                  from auth.refresh_tokens as tokens
                                                 where tokens.session_id = sessions.id
                                                   and tokens.updated_at >= ",
            $time,
            ")))"
        )
    };
}

statements! {
    /// A locked account gets no new session.
    const LOCK_OLD_ANONYMOUS = concat!(
        "select old.id
           from auth.users as old
          where ",
        unused_since!("$1"),
        "
          limit 100
            for update skip locked"
    );
    /// A locked session is not refreshed.
    const LOCK_SESSIONS = "select from auth.sessions where user_id = any ($1) order by id for update";
    /// Checks the condition again, with a snapshot from behind the locks: an account may have been
    /// used while this transaction waited for them.
    const DELETE_OLD_ANONYMOUS =
        concat!("delete from auth.users as old where old.id = any ($2) and ", unused_since!("$1"));
}

/// Deletes anonymous users that were last used before `before`. Returns their number.
pub async fn delete_old_anonymous(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    let old: Vec<UserId> = tx.rows(LOCK_OLD_ANONYMOUS, &[&before]).await?.iter().map(|row| row.get(0)).collect();
    if old.is_empty() {
        return Ok(0);
    }
    tx.execute(LOCK_SESSIONS, &[&old]).await?;
    tx.execute(DELETE_OLD_ANONYMOUS, &[&before, &old]).await
}
