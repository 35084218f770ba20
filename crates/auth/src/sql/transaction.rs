//! The transaction that statements run in.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use futures_util::poll;
use portico_base::inherit_request;
use portico_database::{Client, RolePool};
use postgres_types::{ToSql, Type};
use tokio::sync::Notify;
use tokio_postgres::{Error, Row, Statement};

use crate::error::AuthError;

statements! {
    const GIVE_WAY = "set local lock_timeout = '100ms'";
}

/// The parameters of a statement.
pub type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The parameters of a statement that is not prepared, with their types.
pub type TypedParams<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// A transaction that begins with its first statement.
///
/// `begin` is sent together with the first statement, so it costs no round trip. All methods take
/// `&self`: futures of several statements that are polled together (`tokio::join!`, in this order)
/// travel in one round trip, and run in the order in which they were written. A transaction that is
/// dropped without [`Tx::commit`] is rolled back, also when the request is cancelled.
pub struct Tx {
    client: Option<Client>,
    begun: AtomicBool,
    turn: tokio::sync::Mutex<()>,
    after_commit: OnceLock<Arc<Notify>>,
}

impl Tx {
    /// Takes a connection; nothing is sent yet.
    ///
    /// # Errors
    /// [`AuthError::Unavailable`] when the database is down or every connection stays busy.
    pub async fn begin(database: &RolePool) -> Result<Self, AuthError> {
        Ok(Self {
            client: Some(database.client().await?),
            begun: AtomicBool::new(false),
            turn: Default::default(),
            after_commit: OnceLock::new(),
        })
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("the connection is there until commit or drop")
    }

    /// Makes the transaction fail soon where it would have to wait for a lock.
    ///
    /// Rows that follow a deleted one (the sessions of a user) cannot be skipped when they are
    /// locked.
    ///
    /// # Errors
    /// The error of PostgreSQL.
    pub async fn give_way(&self) -> Result<(), Error> {
        self.execute(GIVE_WAY, &[]).await.map(drop)
    }

    /// Runs a statement and returns its rows.
    ///
    /// # Errors
    /// The error of PostgreSQL; the transaction can then only be dropped.
    pub async fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Error> {
        self.in_turn(sql, async |statement| self.client().query(&statement, params).await).await
    }

    /// Runs a statement that returns at most one row.
    ///
    /// # Errors
    /// The error of PostgreSQL.
    pub async fn query_opt(&self, sql: &str, params: Params<'_>) -> Result<Option<Row>, Error> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Runs a statement that is not prepared, with the types of its parameters, and returns its
    /// rows.
    ///
    /// # Errors
    /// The error of PostgreSQL; the transaction can then only be dropped.
    pub async fn query_typed(&self, sql: &str, params: TypedParams<'_>) -> Result<Vec<Row>, Error> {
        let client = self.client();
        let turn = self.turn.lock().await;
        if !self.begun.swap(true, Ordering::Relaxed) {
            client.batch_execute("begin").await?;
        }
        let mut answer = pin!(client.query_typed(sql, params));
        // The first poll puts the message on the wire
        let answered = poll!(&mut answer);
        drop(turn);
        match answered {
            Poll::Ready(answer) => answer,
            Poll::Pending => answer.await,
        }
    }

    /// Runs a statement and returns the number of rows that it changed.
    ///
    /// # Errors
    /// The error of PostgreSQL.
    pub async fn execute(&self, sql: &str, params: Params<'_>) -> Result<u64, Error> {
        self.in_turn(sql, async |statement| self.client().execute(&statement, params).await).await
    }

    /// Sends a statement behind all statements requested before it, and waits for its response
    /// without delaying the next.
    async fn in_turn<T>(&self, sql: &str, send: impl AsyncFnOnce(Statement) -> Result<T, Error>) -> Result<T, Error> {
        let client = self.client();
        // In the order of the requests: a statement that must be prepared is not overtaken by a
        // prepared one
        let turn = self.turn.lock().await;
        let statement = client.prepare_cached(sql).await?;
        let begins = !self.begun.swap(true, Ordering::Relaxed);
        let mut begin = pin!(async { if begins { client.batch_execute("begin").await } else { Ok(()) } });
        let mut answer = pin!(send(statement));
        // The first poll puts the message on the wire
        let begun = poll!(&mut begin);
        let answered = poll!(&mut answer);
        drop(turn);
        match begun {
            Poll::Ready(begun) => begun?,
            Poll::Pending => begin.await?,
        }
        match answered {
            Poll::Ready(answer) => answer,
            Poll::Pending => answer.await,
        }
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// The error of PostgreSQL; nothing is then committed.
    pub async fn commit(mut self) -> Result<(), AuthError> {
        if !self.begun.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.client().batch_execute("commit").await?;
        self.begun.store(false, Ordering::Relaxed);
        self.client = None;
        if let Some(waiting) = self.after_commit.get() {
            waiting.notify_one();
        }
        Ok(())
    }

    /// Notifies a task when the transaction is committed; not when it is rolled back.
    pub fn notify_after_commit(&self, waiting: &Arc<Notify>) {
        let _ = self.after_commit.set(waiting.clone());
    }

    /// Sends the commit behind statements that are polled together with this call, and before it:
    /// one round trip less. If one of them fails, PostgreSQL rolls back instead; so check their
    /// results first. No statement may follow.
    ///
    /// # Errors
    /// The error of PostgreSQL; nothing is then committed.
    pub async fn commit_behind(&self) -> Result<(), AuthError> {
        let turn = self.turn.lock().await;
        let mut commit = pin!(self.client().batch_execute("commit"));
        let sent = poll!(&mut commit);
        drop(turn);
        match sent {
            Poll::Ready(committed) => committed?,
            Poll::Pending => commit.await?,
        }
        self.begun.store(false, Ordering::Relaxed);
        if let Some(waiting) = self.after_commit.get() {
            waiting.notify_one();
        }
        Ok(())
    }

    /// Rolls the transaction back, and waits for the end of the rollback.
    pub async fn rollback(mut self) {
        if let Some(client) = self.client.take()
            && self.begun.swap(false, Ordering::Relaxed)
        {
            roll_back(client).await;
        }
    }
}

/// A transaction, or a connection where one statement is enough.
pub trait Run: Sync {
    /// Runs a statement and returns its rows.
    fn rows(&self, sql: &str, params: Params<'_>) -> impl Future<Output = Result<Vec<Row>, Error>> + Send;
}

impl Run for Tx {
    async fn rows(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Error> {
        self.query(sql, params).await
    }
}

impl Run for Client {
    async fn rows(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Error> {
        let statement = self.prepare_cached(sql).await?;
        self.query(&statement, params).await
    }
}

async fn roll_back(client: Client) {
    if client.batch_execute("rollback").await.is_err() {
        // A broken connection must not return to the pool
        drop(Client::take(client));
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        if !self.begun.load(Ordering::Relaxed) {
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(inherit_request(roll_back(client)));
            }
            Err(_) => drop(Client::take(client)),
        }
    }
}
