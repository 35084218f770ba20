//! `auth.sessions` and `auth.mfa_amr_claims`.

use std::net::IpAddr;

use time::{OffsetDateTime, PrimitiveDateTime, UtcOffset};
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::{Params, Run, Tx, users};
use crate::model::ids::{FactorId, SessionId, UserId};

/// The columns of [`Session::from_row`], of a table or alias named `sessions`. The last two are its
/// methods, newest first.
macro_rules! session_columns {
    () => {
        "sessions.id, sessions.user_id, sessions.created_at, sessions.aal::text, sessions.not_after, \
         sessions.refreshed_at, sessions.user_agent, sessions.ip, sessions.tag, sessions.oauth_client_id, \
         sessions.refresh_token_hmac_key, sessions.refresh_token_counter, \
         array(select amr.authentication_method from auth.mfa_amr_claims as amr \
                where amr.session_id = sessions.id order by amr.updated_at desc, amr.id), \
         array(select amr.updated_at from auth.mfa_amr_claims as amr \
                where amr.session_id = sessions.id order by amr.updated_at desc, amr.id)"
    };
}
pub(crate) use session_columns;

statements! {
    const INSERT = "
        insert into auth.sessions
            (id, user_id, created_at, updated_at, aal, user_agent, ip, tag, refresh_token_hmac_key, refresh_token_counter)
        values ($1, $2, $3, $3, 'aal1', $4, $5, $6, $7, $8)";
    const INSERT_AMR = "
        insert into auth.mfa_amr_claims (id, session_id, created_at, updated_at, authentication_method)
        values ($1, $2, $3, $3, $4)";
    /// The last use of an imported session may be known by its stored refresh tokens only.
    const OF_USER = concat!(
        "select ",
        session_columns!(),
        ", stored.touched
           from auth.sessions
           left join lateral (select max(tokens.updated_at) as touched
                                from auth.refresh_tokens as tokens
                               where tokens.session_id = sessions.id) as stored on true
          where sessions.user_id = $1
          order by coalesce(sessions.refreshed_at at time zone 'utc', stored.touched, sessions.created_at) desc nulls last,
                   sessions.id"
    );
    const BY_ID = concat!(
        "select ",
        session_columns!(),
        ", (select max(tokens.updated_at) from auth.refresh_tokens as tokens where tokens.session_id = sessions.id)
           from auth.sessions
          where sessions.id = $1"
    );
    const LOCK_AAL = "
        select coalesce(sessions.aal::text, 'aal1')
          from auth.sessions
         where sessions.id = $1
           and sessions.user_id = $2
           for update";
    const PUT_AMR = "
        insert into auth.mfa_amr_claims (id, session_id, created_at, updated_at, authentication_method)
        values ($1, $2, $3, $3, $4)
        on conflict (session_id, authentication_method) do update set updated_at = excluded.updated_at";
    const RAISE = "
        update auth.sessions
           set aal = 'aal2', factor_id = coalesce($2, factor_id), updated_at = $3
         where id = $1";
    const DELETE_OTHERS_BELOW_AAL2 = "
        delete from auth.sessions
         where user_id = $1
           and id <> $2
           and coalesce(aal, 'aal1') < 'aal2'";
    /// The sessions that a factor raised lose its method.
    const FORGET_FACTOR = "
        with raised as (
          update auth.sessions set factor_id = null, updated_at = $4 where user_id = $1 and factor_id = $2 returning id
        )
        delete from auth.mfa_amr_claims
         using raised
         where mfa_amr_claims.session_id = raised.id
           and mfa_amr_claims.authentication_method = $3";
    const FORGET_METHODS = "
        delete from auth.mfa_amr_claims
         using auth.sessions
         where sessions.user_id = $1
           and mfa_amr_claims.session_id = sessions.id
           and mfa_amr_claims.authentication_method = any ($2)";
    const LOWER = "
        update auth.sessions
           set aal = 'aal1', updated_at = $3
         where user_id = $1
           and aal > 'aal1'
           and not exists (select
                             from auth.mfa_amr_claims as amr
                            where amr.session_id = sessions.id
                              and amr.authentication_method = any ($2))";
    const TOUCH = "
        update auth.sessions set refreshed_at = $2, user_agent = $3, ip = $4, updated_at = $5 where id = $1";
    const SET_COUNTER = "update auth.sessions set refresh_token_counter = $2 where id = $1";
    const SET_KEY = "update auth.sessions set refresh_token_hmac_key = $2, refresh_token_counter = 0 where id = $1";
    const REPLACE_KEY_FORM = "update auth.sessions set refresh_token_hmac_key = $2 where id = $1";
    const DELETE = "delete from auth.sessions where id = $1";
    const DELETE_OF_USER = "delete from auth.sessions where id = $1 and user_id = $2";
    const DELETE_OTHERS = "delete from auth.sessions where user_id = $1 and id <> $2";
    const DELETE_ALL = "delete from auth.sessions where user_id = $1";
    /// By their fixed end, which has an index.
    const DELETE_ENDED = "
        delete from auth.sessions
         where id in (select ended.id
                        from auth.sessions as ended
                       where ended.not_after < $1
                       limit 500
                         for update skip locked)";
    /// By their age (`$1`) or their last use (`$2`); null disables the condition. Run only where
    /// such a policy is in force, since it reads all sessions. The last use of an imported session
    /// may be known by its refresh tokens only.
    const DELETE_OUTLIVED = "
        delete from auth.sessions
         where id in (select ended.id
                        from auth.sessions as ended
                       where ended.created_at < $1
                          or coalesce(ended.refreshed_at at time zone 'utc',
                                      (select max(tokens.updated_at)
                                         from auth.refresh_tokens as tokens
                                        where tokens.session_id = ended.id),
                                      ended.created_at) < $2
                       limit 500
                         for update skip locked)";
}

/// An authentication method of a session, for the `amr` claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amr {
    /// The name: `password`, `otp`, ...
    pub method: String,
    /// The time of its last use in this session.
    pub at: OffsetDateTime,
}

/// A row of `auth.sessions` with its methods.
#[derive(Clone)]
pub struct Session {
    /// Primary key.
    pub id: SessionId,
    /// The user.
    pub user_id: UserId,
    /// The time of the sign-in.
    pub created_at: OffsetDateTime,
    /// The assurance level: `aal1` or `aal2`.
    pub aal: String,
    /// The fixed end.
    pub not_after: Option<OffsetDateTime>,
    /// The time of the last refresh.
    pub refreshed_at: Option<OffsetDateTime>,
    /// The last change of a stored refresh token of the session, where it was read: imported
    /// sessions may lack the time of their last refresh.
    pub token_touched: Option<OffsetDateTime>,
    /// The user agent of the last refresh, else of the sign-in.
    pub user_agent: Option<String>,
    /// The client address of the last refresh, else of the sign-in.
    pub ip: Option<IpAddr>,
    /// The class of sessions.
    pub tag: Option<String>,
    /// The application of a third party that the session was issued to.
    pub oauth_client_id: Option<Uuid>,
    /// The key of its counted refresh tokens.
    pub hmac_key: Option<String>,
    /// The newest counted refresh token.
    pub counter: i64,
    /// The methods, newest first.
    pub amr: Vec<Amr>,
}

impl std::fmt::Debug for Session {
    // The key is a secret
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("user_id", &self.user_id).finish_non_exhaustive()
    }
}

impl Session {
    /// The number of columns in [`session_columns`].
    pub const COLUMN_COUNT: usize = 14;

    /// Reads a row that starts with [`session_columns`].
    pub fn from_row(row: &Row) -> Self {
        let methods: Vec<String> = row.get(12);
        let times: Vec<OffsetDateTime> = row.get(13);
        Self {
            id: row.get(0),
            user_id: row.get(1),
            // Imported rows may lack the time
            created_at: row.get::<_, Option<OffsetDateTime>>(2).unwrap_or(OffsetDateTime::UNIX_EPOCH),
            aal: row.get::<_, Option<String>>(3).unwrap_or_else(|| "aal1".to_owned()),
            not_after: row.get(4),
            refreshed_at: row.get::<_, Option<PrimitiveDateTime>>(5).map(PrimitiveDateTime::assume_utc),
            token_touched: None,
            user_agent: row.get(6),
            ip: row.get(7),
            tag: row.get(8),
            oauth_client_id: row.get(9),
            hmac_key: row.get(10),
            counter: row.get::<_, Option<i64>>(11).unwrap_or_default(),
            amr: methods.into_iter().zip(times).map(|(method, at)| Amr { method, at }).collect(),
        }
    }

    /// Returns the time of its last use, as far as is known.
    #[must_use]
    pub fn last_used(&self) -> OffsetDateTime {
        self.refreshed_at.or(self.token_touched).unwrap_or(self.created_at)
    }
}

/// A session to insert.
#[derive(Debug)]
pub struct NewSession<'a> {
    /// Primary key.
    pub id: SessionId,
    /// The user.
    pub user_id: UserId,
    /// The user agent of the sign-in.
    pub user_agent: Option<&'a str>,
    /// The client address of the sign-in.
    pub ip: Option<IpAddr>,
    /// The class of sessions.
    pub tag: Option<&'a str>,
    /// The key of counted refresh tokens; the counter starts at 0.
    pub hmac_key: Option<&'a str>,
    /// The name of the authentication method.
    pub method: &'a str,
}

/// Inserts a session with its first method and records the sign-in at the user, in one round trip.
pub async fn insert(tx: &Tx, session: &NewSession<'_>, now: OffsetDateTime) -> Result<(), Error> {
    let counter = session.hmac_key.map(|_| 0_i64);
    let amr_id = portico_base::random::uuid();
    let row: Params<'_> = &[
        &session.id,
        &session.user_id,
        &now,
        &session.user_agent,
        &session.ip,
        &session.tag,
        &session.hmac_key,
        &counter,
    ];
    let amr: Params<'_> = &[&amr_id, &session.id, &now, &session.method];
    let (inserted, amr, user) = tokio::join!(biased;
        tx.execute(INSERT, row),
        tx.execute(INSERT_AMR, amr),
        users::record_sign_in(tx, session.user_id, now),
    );
    inserted?;
    amr?;
    user
}

/// Locks a session of a user until the transaction ends. Returns its assurance level.
pub async fn lock_aal(tx: &Tx, id: SessionId, user: UserId) -> Result<Option<String>, Error> {
    Ok(tx.query_opt(LOCK_AAL, &[&id, &user]).await?.map(|row| row.get(0)))
}

/// Adds a method to a locked session, and raises it to `aal2` by `factor`, if the method has one.
/// Ends the other sessions of the user that are below `aal2`.
pub async fn raise(
    tx: &Tx,
    (id, user): (SessionId, UserId),
    method: &str,
    factor: Option<FactorId>,
    now: OffsetDateTime,
) -> Result<(), Error> {
    let amr_id = portico_base::random::uuid();
    let amr: Params<'_> = &[&amr_id, &id, &now, &method];
    let raised: Params<'_> = &[&id, &factor, &now];
    let others: Params<'_> = &[&user, &id];
    let (amr, raised, others) = tokio::join!(biased;
        tx.execute(PUT_AMR, amr),
        tx.execute(RAISE, raised),
        tx.execute(DELETE_OTHERS_BELOW_AAL2, others),
    );
    amr?;
    raised?;
    others.map(drop)
}

/// Removes the method of a factor from the sessions of the user that it raised.
pub async fn remove_factor(
    tx: &Tx,
    user: UserId,
    factor: FactorId,
    method: &str,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(FORGET_FACTOR, &[&user, &factor, &method, &now]).await.map(drop)
}

/// Removes methods from all sessions of a user.
pub async fn remove_methods(tx: &Tx, user: UserId, methods: &[&str]) -> Result<(), Error> {
    tx.execute(FORGET_METHODS, &[&user, &methods]).await.map(drop)
}

/// Lowers the sessions of a user that have none of `methods` to `aal1`.
pub async fn lower(tx: &Tx, user: UserId, methods: &[&str], now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(LOWER, &[&user, &methods, &now]).await.map(drop)
}

/// Returns the sessions of a user, last used first.
pub async fn of_user(run: &impl Run, user: UserId) -> Result<Vec<Session>, Error> {
    Ok(run.rows(OF_USER, &[&user]).await?.iter().map(with_last_use).collect())
}

/// Returns a session.
pub async fn by_id(run: &impl Run, id: SessionId) -> Result<Option<Session>, Error> {
    Ok(run.rows(BY_ID, &[&id]).await?.first().map(with_last_use))
}

/// Reads a row whose last column is the last change of a stored refresh token.
fn with_last_use(row: &Row) -> Session {
    Session { token_touched: row.get(Session::COLUMN_COUNT), ..Session::from_row(row) }
}

/// Records a refresh.
pub async fn touch(
    tx: &Tx,
    id: SessionId,
    user_agent: Option<&str>,
    ip: Option<IpAddr>,
    now: OffsetDateTime,
) -> Result<(), Error> {
    let utc = now.to_offset(UtcOffset::UTC);
    let refreshed_at = PrimitiveDateTime::new(utc.date(), utc.time());
    tx.execute(TOUCH, &[&id, &refreshed_at, &user_agent, &ip, &now]).await.map(drop)
}

/// Sets the counter of counted refresh tokens.
pub async fn set_counter(tx: &Tx, id: SessionId, counter: i64) -> Result<(), Error> {
    tx.execute(SET_COUNTER, &[&id, &counter]).await.map(drop)
}

/// Gives a session of stored refresh tokens a key for counted ones.
pub async fn set_key(tx: &Tx, id: SessionId, key: &str) -> Result<(), Error> {
    tx.execute(SET_KEY, &[&id, &key]).await.map(drop)
}

/// Stores the same key in a newer form. The counter stays.
pub async fn replace_key_form(tx: &Tx, id: SessionId, key: &str) -> Result<(), Error> {
    tx.execute(REPLACE_KEY_FORM, &[&id, &key]).await.map(drop)
}

/// Ends a session.
pub async fn delete(tx: &Tx, id: SessionId) -> Result<(), Error> {
    tx.execute(DELETE, &[&id]).await.map(drop)
}

/// Ends a session of this user. Returns true if there was one.
pub async fn delete_of_user(tx: &Tx, id: SessionId, user: UserId) -> Result<bool, Error> {
    Ok(tx.execute(DELETE_OF_USER, &[&id, &user]).await? > 0)
}

/// Ends all sessions of a user but one. Returns their number.
pub async fn delete_others(tx: &Tx, user: UserId, keep: SessionId) -> Result<u64, Error> {
    tx.execute(DELETE_OTHERS, &[&user, &keep]).await
}

/// Ends all sessions of a user.
pub async fn delete_all(tx: &Tx, user: UserId) -> Result<(), Error> {
    tx.execute(DELETE_ALL, &[&user]).await.map(drop)
}

/// Deletes sessions whose fixed end was before `not_after`. Returns their number.
pub async fn delete_ended(tx: &Tx, not_after: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_ENDED, &[&not_after]).await
}

/// Deletes sessions that began before `created` or were last used before `used`. Returns their
/// number.
pub async fn delete_outlived(
    tx: &Tx,
    created: Option<OffsetDateTime>,
    used: Option<OffsetDateTime>,
) -> Result<u64, Error> {
    tx.execute(DELETE_OUTLIVED, &[&created, &used]).await
}
