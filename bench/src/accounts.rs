//! Measures the requests of the account service, each against the same statements by `pgbench` or
//! the same hash without a server.

use std::borrow::Cow;
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::client::{BenchResponse, Calls, Done, End, PATIENCE, request};
use crate::limits;
use crate::people::{self, CODE, PASSWORD, Person};
use crate::report::Report;
use crate::rounds::compare;
use crate::server::{Server, Subject, folder};

const PORT: u16 = 55_331;
/// The number of accounts: as many as the widest measurement has connections.
const PEOPLE: usize = 64;
const ROUND: Duration = Duration::from_secs(3);
/// The cost of new passwords.
const BCRYPT_COST: u32 = 10;

/// Measures every request.
pub async fn measure(report: &mut Report) -> Result<()> {
    let folder = folder(PORT, "")?;
    let server = Server::start(folder.path(), PORT).await?;
    let outcome = measure_on(&server, folder.path(), report).await;
    server.stop(folder.path()).await?;
    outcome
}

async fn measure_on(server: &Server, folder: &Path, report: &mut Report) -> Result<()> {
    let bench = Bench::new(server, folder)?;
    let callers = people::sign_up(&bench.subject.address, &bench.subject.key, "caller", PEOPLE).await?;
    people::sign_up(&bench.subject.address, &bench.subject.key, "limit", PEOPLE).await?;
    bench.settle().await?;
    bench.user(&callers, report).await?;
    bench.refresh(callers, report).await?;
    bench.verify(report).await?;
    bench.password(report).await?;
    bench.sign_up(report).await?;
    let mib = server.resident()? as f64 / 1024.0 / 1024.0;
    report.row("Resident memory after all that", format!("{mib:.1} MiB"), String::new(), String::new());
    Ok(())
}

struct Bench {
    subject: Subject,
    threads: usize,
    run: Cell<u64>,
}

impl Bench {
    fn new(server: &Server, folder: &Path) -> Result<Self> {
        Ok(Self {
            subject: Subject::of(server, folder, PORT)?,
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            // With this offset, numbers have twelve digits from the first
            run: Cell::new(10),
        })
    }

    /// Analyses the tables, as on a server that has run for a while. Without it, plans that
    /// PostgreSQL made for tables of a few rows stay in use until autovacuum runs, and that moment
    /// decides the result.
    async fn settle(&self) -> Result<()> {
        let postgres = self.subject.postgres.connect().await?;
        let tables = "auth.users, auth.identities, auth.sessions, auth.refresh_tokens, auth.one_time_tokens";
        let vacuum = format!("vacuum analyze {tables}, auth.mfa_amr_claims, auth.mfa_factors");
        Ok(tokio::time::timeout(PATIENCE, postgres.batch_execute(&vacuum)).await??)
    }

    /// Returns a number that no other run has.
    fn next_run(&self) -> u64 {
        self.run.replace(self.run.get() + 1)
    }

    async fn pgbench(&self, script: &str, clients: usize, end: End) -> Result<Done> {
        limits::pgbench(&self.subject.postgres, script, clients, end, self.next_run()).await
    }

    async fn user(&self, callers: &[Person], report: &mut Report) -> Result<()> {
        let calls = Arc::new(User(callers.iter().map(|person| self.user_request(person)).collect()));
        let end = End::After(ROUND);
        for connections in [4, 16] {
            let found = compare(
                self.subject.watch,
                async || self.subject.load(connections, end, &calls).await,
                async || self.pgbench(include_str!("scripts/user.sql"), connections, end).await,
            )
            .await?;
            let what = format!("`GET /auth/v1/user`, {connections} connections");
            found.rates(report, &what, "pgbench", "");
            found.processor(report, &what);
        }
        Ok(())
    }

    fn user_request(&self, person: &Person) -> Vec<u8> {
        let bearer = format!("Bearer {}", person.access_token);
        request("GET", "/auth/v1/user", &[("apikey", &self.subject.key), ("authorization", &bearer)], "")
    }

    async fn refresh(&self, callers: Vec<Person>, report: &mut Report) -> Result<()> {
        let tokens = callers.into_iter().map(|person| Mutex::new(person.refresh_token)).collect();
        let calls = Arc::new(Refresh { key: self.subject.key.clone(), tokens });
        let end = End::After(ROUND);
        for connections in [2, 16, 64] {
            self.settle().await?;
            let found = compare(
                self.subject.watch,
                async || self.subject.load(connections, end, &calls).await,
                async || self.pgbench(include_str!("scripts/refresh.sql"), connections, end).await,
            )
            .await?;
            let what = format!("`grant_type=refresh_token`, {connections} connections");
            found.rates(report, &what, "pgbench", "");
            found.processor(report, &what);
        }
        Ok(())
    }

    async fn verify(&self, report: &mut Report) -> Result<()> {
        const CONNECTIONS: usize = 16;
        const CALLS: u64 = 150;
        let postgres = self.subject.postgres.connect().await?;
        let end = End::Calls(CALLS);
        let found = compare(
            self.subject.watch,
            async || {
                let run = self.next_run();
                people::insert(&postgres, run, CONNECTIONS, CALLS).await?;
                self.subject.load(CONNECTIONS, end, &Arc::new(Verify { key: self.subject.key.clone(), run })).await
            },
            async || {
                let run = self.next_run();
                people::insert(&postgres, run, CONNECTIONS, CALLS).await?;
                limits::pgbench(&self.subject.postgres, include_str!("scripts/verify.sql"), CONNECTIONS, end, run).await
            },
        )
        .await?;
        found.rates(report, &format!("`POST /verify` with a code, {CONNECTIONS} connections"), "pgbench", "");
        Ok(())
    }

    async fn password(&self, report: &mut Report) -> Result<()> {
        const CONNECTIONS: usize = 8;
        let calls = Arc::new(Password { key: self.subject.key.clone() });
        let end = End::After(ROUND);
        let found = compare(
            self.subject.watch,
            async || self.subject.load(CONNECTIONS, end, &calls).await,
            async || self.bcrypt().await,
        )
        .await?;
        let what = format!("`grant_type=password`, {CONNECTIONS} connections");
        found.rates(report, &what, &format!("bcrypt on {} threads", self.threads), "0.9");
        Ok(())
    }

    async fn bcrypt(&self) -> Result<Done> {
        let threads = self.threads;
        let per_second = tokio::task::spawn_blocking(move || limits::bcrypt(BCRYPT_COST, threads, ROUND)).await??;
        Ok(Done { calls: 0, per_second })
    }

    async fn sign_up(&self, report: &mut Report) -> Result<()> {
        const CONNECTIONS: usize = 8;
        self.settle().await?;
        let calls = Arc::new(SignUp { key: self.subject.key.clone(), run: self.next_run(), next: AtomicU64::new(0) });
        let end = End::After(ROUND);
        let found = compare(
            self.subject.watch,
            async || self.subject.load(CONNECTIONS, end, &calls).await,
            async || {
                let statements = self.pgbench(include_str!("scripts/sign_up.sql"), CONNECTIONS, end).await?;
                let hashes = self.bcrypt().await?;
                // One after the other on the same processors: the times add up
                let per_second = 1.0 / (1.0 / statements.per_second + 1.0 / hashes.per_second);
                Ok(Done { calls: 0, per_second })
            },
        )
        .await?;
        found.rates(report, &format!("`POST /signup`, {CONNECTIONS} connections"), "bcrypt, then pgbench", "");
        Ok(())
    }
}

/// A load in which each connection requests its own account.
struct User(Vec<Vec<u8>>);

impl Calls for User {
    fn request(&self, connection: usize, _call: u64) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.0[connection])
    }
}

/// A load in which each connection refreshes its own session, token after token.
struct Refresh {
    key: String,
    tokens: Vec<Mutex<String>>,
}

impl Calls for Refresh {
    fn request(&self, connection: usize, _call: u64) -> Cow<'_, [u8]> {
        let token = self.tokens[connection].lock().unwrap_or_else(PoisonError::into_inner);
        let body = format!(r#"{{"refresh_token":"{token}"}}"#);
        let path = "/auth/v1/token?grant_type=refresh_token";
        Cow::Owned(request("POST", path, &[("apikey", &self.key)], &body))
    }

    fn answered(&self, connection: usize, answer: &BenchResponse) -> Result<()> {
        let token = answer.text("refresh_token").context("a refresh token")?;
        token.clone_into(&mut self.tokens[connection].lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}

/// A load in which every account verifies its code once.
struct Verify {
    key: String,
    run: u64,
}

impl Calls for Verify {
    fn request(&self, connection: usize, call: u64) -> Cow<'_, [u8]> {
        let number = people::number(self.run, connection, call);
        let body = format!(r#"{{"type":"email","email":"{number}@example.com","token":"{CODE}"}}"#);
        Cow::Owned(request("POST", "/auth/v1/verify", &[("apikey", &self.key)], &body))
    }
}

/// A load in which each connection signs in to its own account.
struct Password {
    key: String,
}

impl Calls for Password {
    fn request(&self, connection: usize, _call: u64) -> Cow<'_, [u8]> {
        let body = format!(r#"{{"email":"caller-{connection}@example.com","password":"{PASSWORD}"}}"#);
        Cow::Owned(request("POST", "/auth/v1/token?grant_type=password", &[("apikey", &self.key)], &body))
    }
}

/// A load in which every request is a sign-up.
struct SignUp {
    key: String,
    run: u64,
    next: AtomicU64,
}

impl Calls for SignUp {
    fn request(&self, _connection: usize, _call: u64) -> Cow<'_, [u8]> {
        let number = people::number(self.run, 0, self.next.fetch_add(1, Ordering::Relaxed));
        Cow::Owned(people::sign_up_request(&self.key, &format!("{number}@example.com")))
    }
}
