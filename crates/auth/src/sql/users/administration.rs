//! The statements of administrators: lists, bans and deletions.

use time::OffsetDateTime;
use tokio_postgres::Error;
use uuid::Uuid;

use crate::model::ids::UserId;
use crate::model::{JsonObject, User, user_columns};
use crate::sql::{Run, Tx, mfa_factors, one_time_tokens, recovery_codes, sessions, webauthn_credentials};

/// The condition of a list: an audience (`$1`) and a filter (`$2`, a pattern; null for none).
macro_rules! listed {
    () => {
        " from auth.users
         where users.instance_id = '00000000-0000-0000-0000-000000000000'
           and users.aud = $1
           and ($2::text is null or users.email like $2 or users.raw_user_meta_data ->> 'full_name' ilike $2)"
    };
}

statements! {
    const COUNT = concat!("select count(*)", listed!());
    const NEWEST_FIRST = concat!(
        "select ",
        user_columns!(),
        listed!(),
        " order by users.created_at desc nulls last, users.id limit $3 offset $4"
    );
    const OLDEST_FIRST = concat!(
        "select ",
        user_columns!(),
        listed!(),
        " order by users.created_at nulls first, users.id limit $3 offset $4"
    );
    /// From the begin, or behind a user without a time; those come first.
    const NEWEST = concat!(
        "select ",
        user_columns!(),
        listed!(),
        " and ($3::uuid is null or users.created_at is not null or users.id < $3)
         order by users.created_at desc, users.id desc limit $4"
    );
    const NEWEST_AFTER = concat!(
        "select ",
        user_columns!(),
        listed!(),
        " and (users.created_at, users.id) < ($3, $4) order by users.created_at desc, users.id desc limit $5"
    );
    /// From the begin, or behind a user with a time; those without one come last.
    const OLDEST = concat!(
        "select ",
        user_columns!(),
        listed!(),
        " and ($3::timestamptz is null or users.created_at is null or (users.created_at, users.id) > ($3, $4::uuid))
         order by users.created_at, users.id limit $5"
    );
    const OLDEST_WITHOUT_TIME = concat!(
        "select ",
        user_columns!(),
        listed!(),
        " and users.created_at is null and users.id > $3 order by users.id limit $4"
    );
    const SET_BANNED_UNTIL = "update auth.users set banned_until = $2, updated_at = $3 where id = $1";
    const DELETE = "delete from auth.users where id = $1";
    const SOFT_DELETE = "
        update auth.users
           set email = $2,
               phone = $3,
               email_change = $4,
               phone_change = $5,
               encrypted_password = null,
               confirmation_token = '',
               recovery_token = '',
               email_change_token_new = '',
               email_change_token_current = '',
               phone_change_token = '',
               reauthentication_token = '',
               raw_app_meta_data = '{}',
               raw_user_meta_data = '{}',
               deleted_at = $6,
               updated_at = $6
         where id = $1";
    const METADATA = "
        select id, coalesce(raw_user_meta_data, '{}') from auth.users where id = any ($1) and deleted_at is null";
}

/// The users of a list, and their order.
#[derive(Debug, Clone, Copy)]
pub struct UserFilter<'a> {
    /// The audience.
    pub aud: &'a str,
    /// Only users whose address or full name contains this.
    pub part: Option<&'a str>,
    /// The oldest comes first, else the newest.
    pub oldest_first: bool,
}

/// The position of a user in a list that is sorted by the time of creation and the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListPosition {
    /// The time of creation. Rows that other programs insert may have none; they are before all
    /// others in a list of the newest, and after them in one of the oldest.
    pub created_at: Option<OffsetDateTime>,
    /// The id.
    pub id: UserId,
}

/// Returns the number of users in the whole list, and at most `limit` users after `offset` others,
/// without identities and factors.
pub async fn list(run: &impl Run, filter: &UserFilter<'_>, limit: i64, offset: i64) -> Result<(i64, Vec<User>), Error> {
    let UserFilter { aud, part, oldest_first } = filter;
    let pattern = part.map(contains);
    let total = run.rows(COUNT, &[aud, &pattern]).await?[0].get(0);
    let statement = if *oldest_first { OLDEST_FIRST } else { NEWEST_FIRST };
    let rows = run.rows(statement, &[aud, &pattern, &limit, &offset]).await?;
    Ok((total, rows.iter().map(User::from_row).collect()))
}

/// Returns at most `limit` users behind a position, or from the begin, without identities and
/// factors.
pub async fn list_after(
    run: &impl Run,
    filter: &UserFilter<'_>,
    after: Option<ListPosition>,
    limit: i64,
) -> Result<Vec<User>, Error> {
    let UserFilter { aud, part, oldest_first } = filter;
    let pattern = part.map(contains);
    let id = after.map(|after| after.id);
    let time = after.and_then(|after| after.created_at);
    let rows = match (oldest_first, id, time) {
        (false, Some(id), Some(time)) => run.rows(NEWEST_AFTER, &[aud, &pattern, &time, &id, &limit]).await?,
        (false, id, _) => run.rows(NEWEST, &[aud, &pattern, &id, &limit]).await?,
        (true, Some(id), None) => run.rows(OLDEST_WITHOUT_TIME, &[aud, &pattern, &id, &limit]).await?,
        (true, id, time) => run.rows(OLDEST, &[aud, &pattern, &time, &id, &limit]).await?,
    };
    Ok(rows.iter().map(User::from_row).collect())
}

/// Returns the pattern of `like` for texts that contain `part`.
pub(crate) fn contains(part: &str) -> String {
    let literal = part.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{literal}%")
}

/// Returns the user metadata of those of the users that are not deleted.
pub async fn metadata_of(tx: &Tx, ids: &[Uuid]) -> Result<Vec<(Uuid, JsonObject)>, Error> {
    let rows = tx.rows(METADATA, &[&ids]).await?;
    let metadata = |row: &tokio_postgres::Row| match row.get::<_, serde_json::Value>(1) {
        serde_json::Value::Object(metadata) => metadata,
        _ => JsonObject::default(),
    };
    Ok(rows.iter().map(|row| (row.get(0), metadata(row))).collect())
}

/// Bans a user until a time, or lifts the ban.
pub async fn set_banned_until(
    tx: &Tx,
    id: UserId,
    until: Option<OffsetDateTime>,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(SET_BANNED_UNTIL, &[&id, &until, &now]).await.map(drop)
}

/// Deletes a user with everything that belongs to the account.
pub async fn delete(tx: &Tx, id: UserId) -> Result<(), Error> {
    // They are in a table of this program, which does not refer to the account
    recovery_codes::delete(tx, id).await?;
    tx.execute(DELETE, &[&id]).await.map(drop)
}

/// The replacements of the contacts of a deleted user.
#[derive(Debug)]
pub struct ObfuscatedContacts {
    /// Replaces the address.
    pub email: String,
    /// Replaces the number.
    pub phone: String,
    /// Replaces the pending address.
    pub email_change: String,
    /// Replaces the pending number.
    pub phone_change: String,
}

/// Replaces the personal data of a user, and deletes sessions, tokens, second factors and passkeys.
/// The row stays.
pub async fn soft_delete(tx: &Tx, id: UserId, replaced: &ObfuscatedContacts, now: OffsetDateTime) -> Result<(), Error> {
    let ObfuscatedContacts { email, phone, email_change, phone_change } = replaced;
    tx.execute(SOFT_DELETE, &[&id, email, phone, email_change, phone_change, &now]).await?;
    one_time_tokens::delete_all(tx, id).await?;
    recovery_codes::delete(tx, id).await?;
    mfa_factors::delete_all(tx, id).await?;
    webauthn_credentials::delete_all(tx, id).await?;
    sessions::delete_all(tx, id).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_literal() {
        assert_eq!(contains("a_b%c\\"), "%a\\_b\\%c\\\\%");
    }
}
