//! `auth.refresh_tokens`, and the reads of a refresh.

use time::OffsetDateTime;
use tokio_postgres::{Error, Row};

use super::sessions::{Session, session_columns};
use super::{Params, Tx};
use crate::model::ids::{SessionId, UserId};
use crate::model::{Factor, Identity, User, factor_columns, identity_columns, user_columns};

/// The session of a stored token, in a statement with the parameter `$1`.
macro_rules! session_of_token {
    () => {
        "(select refresh_tokens.session_id from auth.refresh_tokens where refresh_tokens.token = $1)"
    };
}
macro_rules! lock_session {
    ($($session:tt)+) => {
        concat!("select sessions.id from auth.sessions where sessions.id = ", $($session)+, " for update skip locked")
    };
}
macro_rules! read_session {
    ($($session:tt)+) => {
        concat!("select ", session_columns!(), " from auth.sessions where sessions.id = ", $($session)+)
    };
}
macro_rules! read_user {
    ($($session:tt)+) => {
        concat!(
            "select ",
            user_columns!(),
            " from auth.users
             where users.id = (select sessions.user_id from auth.sessions where sessions.id = ",
            $($session)+,
            ")"
        )
    };
}
macro_rules! read_identities {
    ($($session:tt)+) => {
        concat!(
            "select ",
            identity_columns!(),
            " from auth.identities
             where identities.user_id = (select sessions.user_id from auth.sessions where sessions.id = ",
            $($session)+,
            ") order by identities.created_at, identities.provider, identities.id"
        )
    };
}
macro_rules! read_factors {
    ($($session:tt)+) => {
        concat!(
            "select ",
            factor_columns!(),
            " from auth.mfa_factors as factors
             where factors.user_id = (select sessions.user_id from auth.sessions where sessions.id = ",
            $($session)+,
            ") order by factors.created_at, factors.id"
        )
    };
}

statements! {
    const INSERT = "
        insert into auth.refresh_tokens
            (instance_id, token, user_id, revoked, created_at, updated_at, parent, session_id)
        values ('00000000-0000-0000-0000-000000000000', $1, $2, false, $3, $3, $4, $5)";
    const REVOKE = "update auth.refresh_tokens set revoked = true, updated_at = $2 where id = $1";
    const REVOKE_OLDEST = "
        update auth.refresh_tokens
           set revoked = true, updated_at = $2
         where id = (select oldest.id
                       from auth.refresh_tokens as oldest
                      where oldest.session_id = $1
                        and not oldest.revoked
                      order by oldest.id
                      limit 1)
        returning token";
    const REVOKE_FAMILY = "
        update auth.refresh_tokens set revoked = true, updated_at = $2 where session_id = $1 and not revoked";
    const DELETE = "delete from auth.refresh_tokens where id = $1";
    /// Keeps the parent of a current token: a client that lost the response may still present it.
    const DELETE_OLD = "
        delete from auth.refresh_tokens
         where id in (select old.id
                        from auth.refresh_tokens as old
                       where old.revoked
                         and old.updated_at < $1
                         and not exists (select 1
                                           from auth.refresh_tokens as child
                                          where child.parent = old.token
                                            and child.session_id = old.session_id
                                            and not child.revoked)
                       order by old.updated_at
                       limit 500
                         for update skip locked)";
    /// A stored token, and the newest token of its session that is not revoked.
    const TOKEN = "
        select presented.id, presented.revoked, presented.updated_at, presented.session_id, active.token, active.parent,
               presented.user_id
          from auth.refresh_tokens as presented
          left join lateral (select newest.token, newest.parent
                               from auth.refresh_tokens as newest
                              where newest.session_id = presented.session_id
                                and not newest.revoked
                              order by newest.id desc
                              limit 1) as active on true
         where presented.token = $1";
    const LOCK_BY_TOKEN = lock_session!(session_of_token!());
    const SESSION_BY_TOKEN = read_session!(session_of_token!());
    const USER_BY_TOKEN = read_user!(session_of_token!());
    const IDENTITIES_BY_TOKEN = read_identities!(session_of_token!());
    const FACTORS_BY_TOKEN = read_factors!(session_of_token!());
    const LOCK_BY_SESSION = lock_session!("$1");
    const SESSION_BY_SESSION = read_session!("$1");
    const USER_BY_SESSION = read_user!("$1");
    const IDENTITIES_BY_SESSION = read_identities!("$1");
    const FACTORS_BY_SESSION = read_factors!("$1");
}

/// The statements that lock and read a session and its user. Each runs with a snapshot of its own,
/// so those behind the lock see what its last owner wrote. They do not wait for the lock: a waiting
/// connection could serve no other request.
struct FamilyStatements {
    lock: &'static str,
    session: &'static str,
    user: &'static str,
    identities: &'static str,
    factors: &'static str,
}

const BY_TOKEN: FamilyStatements = FamilyStatements {
    lock: LOCK_BY_TOKEN,
    session: SESSION_BY_TOKEN,
    user: USER_BY_TOKEN,
    identities: IDENTITIES_BY_TOKEN,
    factors: FACTORS_BY_TOKEN,
};
const BY_SESSION: FamilyStatements = FamilyStatements {
    lock: LOCK_BY_SESSION,
    session: SESSION_BY_SESSION,
    user: USER_BY_SESSION,
    identities: IDENTITIES_BY_SESSION,
    factors: FACTORS_BY_SESSION,
};

/// A stored token that was presented.
#[derive(Debug)]
pub struct StoredToken {
    /// Primary key.
    pub id: i64,
    /// The token was replaced or revoked.
    pub revoked: bool,
    /// The time at which it was revoked.
    pub updated_at: Option<OffsetDateTime>,
    /// The session; rows of very old versions have none.
    pub session_id: Option<SessionId>,
    /// The user, as the row itself names it.
    pub user_id: Option<UserId>,
    /// The newest token of the session that is not revoked.
    pub active: Option<ActiveToken>,
}

/// The current token of a session.
#[derive(Clone)]
pub struct ActiveToken {
    /// The text.
    pub token: String,
    /// The token that it replaced.
    pub parent: Option<String>,
}

impl std::fmt::Debug for ActiveToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ActiveToken(***)")
    }
}

impl StoredToken {
    fn from_row(row: &Row) -> Self {
        let active = row.get::<_, Option<String>>(4).map(|token| ActiveToken {
            token,
            parent: row.get::<_, Option<String>>(5).filter(|parent| !parent.is_empty()),
        });
        Self {
            id: row.get(0),
            revoked: row.get::<_, Option<bool>>(1).unwrap_or_default(),
            updated_at: row.get(2),
            session_id: row.get(3),
            user_id: row.get::<_, Option<&str>>(6).and_then(UserId::parse),
            active,
        }
    }
}

/// The refresh token family of a locked session: the session and its user, as a token response
/// needs them.
#[derive(Debug)]
pub struct RefreshTokenFamily {
    /// The session, locked.
    pub session: Session,
    /// The user, with identities and factors.
    pub user: User,
}

/// The result of an attempt to lock a row.
#[derive(Debug)]
pub enum LockAttempt<T> {
    /// The row is locked for this transaction.
    Locked(T),
    /// Another transaction holds the lock.
    HeldElsewhere,
    /// There is no such row.
    NoRow,
}

/// Reads a stored token and its family, in one round trip. The session stays locked for this
/// transaction.
pub async fn lock_by_token(tx: &Tx, token: &str) -> Result<LockAttempt<(StoredToken, Option<RefreshTokenFamily>)>, Error> {
    let params: Params<'_> = &[&token];
    let all = BY_TOKEN;
    let (locked, stored, family) =
        tokio::join!(biased; tx.query_opt(all.lock, params), tx.query_opt(TOKEN, params), read(tx, &all, params));
    let is_locked = locked?.is_some();
    let (Some(stored), mut family) = (stored?, family?) else { return Ok(LockAttempt::NoRow) };
    let stored = StoredToken::from_row(&stored);
    if let Some(family) = &mut family {
        family.session.token_touched = stored.updated_at;
    }
    Ok(match (&stored.session_id, is_locked, &family) {
        // A session that exists and is not locked is locked by another transaction, or was a moment
        // ago
        (Some(_), false, Some(_)) => LockAttempt::HeldElsewhere,
        // That transaction deleted the session between two of these statements
        (Some(_), false, None) => LockAttempt::NoRow,
        _ => LockAttempt::Locked((stored, family)),
    })
}

/// Reads a session and its user, in one round trip. The session stays locked for this transaction.
pub async fn lock_by_session(tx: &Tx, session: SessionId) -> Result<LockAttempt<RefreshTokenFamily>, Error> {
    let params: Params<'_> = &[&session];
    let all = BY_SESSION;
    let (locked, family) = tokio::join!(biased; tx.query_opt(all.lock, params), read(tx, &all, params));
    let is_locked = locked?.is_some();
    Ok(match family? {
        Some(family) if is_locked => LockAttempt::Locked(family),
        Some(_) => LockAttempt::HeldElsewhere,
        None => LockAttempt::NoRow,
    })
}

async fn read(tx: &Tx, all: &FamilyStatements, params: Params<'_>) -> Result<Option<RefreshTokenFamily>, Error> {
    let (session, user, identities, factors) = tokio::join!(biased;
        tx.query_opt(all.session, params),
        tx.query_opt(all.user, params),
        tx.query(all.identities, params),
        tx.query(all.factors, params),
    );
    let (Some(session), Some(user)) = (session?, user?) else { return Ok(None) };
    let mut user = User::from_row(&user);
    user.identities = identities?.iter().map(Identity::from_row).collect();
    user.factors = factors?.iter().map(Factor::from_row).collect();
    Ok(Some(RefreshTokenFamily { session: Session::from_row(&session), user }))
}

/// Adds a token to a session.
pub async fn insert(
    tx: &Tx,
    token: &str,
    parent: Option<&str>,
    session: SessionId,
    user: UserId,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(INSERT, &[&token, &user.to_string(), &now, &parent, &session]).await.map(drop)
}

/// Marks a token as replaced.
pub async fn revoke(tx: &Tx, id: i64, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(REVOKE, &[&id, &now]).await.map(drop)
}

/// Revokes the oldest token of a session that is not revoked, and returns it.
pub async fn revoke_oldest(tx: &Tx, session: SessionId, now: OffsetDateTime) -> Result<Option<String>, Error> {
    Ok(tx.query_opt(REVOKE_OLDEST, &[&session, &now]).await?.map(|row| row.get(0)))
}

/// Revokes every token of a session.
pub async fn revoke_family(tx: &Tx, session: SessionId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(REVOKE_FAMILY, &[&session, &now]).await.map(drop)
}

/// Deletes a token.
pub async fn delete(tx: &Tx, id: i64) -> Result<(), Error> {
    tx.execute(DELETE, &[&id]).await.map(drop)
}

/// Deletes tokens that were revoked before `before`. Returns their number.
pub async fn delete_old(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_OLD, &[&before]).await
}
