//! A whole server with the schema of some scenarios, few database connections, and a record of
//! every request.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portico_database::scratch::PoolerMode;
use portico_rest::RestSettings;
use portico_rest::config::RestConfig;
use portico_testkit::{TestResponse, TestServer};

use crate::caller::Caller;
use crate::remote;
use crate::scenario::{Probe, Scenario};

/// The request context as an expression of PostgreSQL's own functions and `auth.uid()` only.
const INLINE: &str = "(('w(' || coalesce(nullif(current_setting('role', true), ''), '-')
  || '|' || coalesce(nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub', '-')
  || '|' || coalesce(auth.uid()::text, '-')
  || '|' || coalesce(nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'jti', '-')
  || '|' || coalesce(nullif(current_setting('request.method', true), ''), '-')
  || '|' || coalesce(nullif(current_setting('request.path', true), ''), '-')
  || '|' || coalesce(nullif(current_setting('request.headers', true), '')::jsonb ->> 'x-mark', '-')
  || '|' || coalesce(nullif(current_setting('request.cookies', true), '')::jsonb ->> 'mark', '-') || ')'))";

/// The timeout of events that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// The running server. Dropping it stops the server and removes the database.
pub struct IsolationServer {
    server: TestServer,
    /// The scenarios whose schema exists.
    pub scenarios: Vec<Scenario>,
    next_mark: AtomicU64,
    /// The context of every request, by its mark; `None` for requests that leave state, which see
    /// that state.
    contexts: Mutex<HashMap<String, Option<String>>>,
    /// Tables, and the marks that one of their rows must have.
    writes: Mutex<Vec<(&'static str, String)>>,
}

impl Deref for IsolationServer {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.server
    }
}

/// A request that was sent, and its response.
pub struct SentRequest {
    /// The request's mark.
    pub mark: String,
    /// The context that SQL must see.
    pub context: String,
    /// The response; `None` if the connection was lost.
    pub response: Option<TestResponse>,
}

impl IsolationServer {
    /// Starts a server with `connections` database connections.
    pub async fn open(connections: usize, scenarios: Vec<Scenario>) -> Self {
        Self::with(connections, scenarios, |_| {}).await
    }

    /// Starts a server with other settings of the data API.
    pub async fn with(connections: usize, scenarios: Vec<Scenario>, change: impl FnOnce(&mut RestConfig)) -> Self {
        let mut config = RestConfig { schemas: vec!["public".into()], ..RestConfig::default() };
        change(&mut config);
        Self::on(connections, scenarios, config, None).await
    }

    /// Starts a server that reaches the database through a connection pooler.
    pub async fn behind_pooler(connections: usize, scenarios: Vec<Scenario>, mode: PoolerMode) -> Self {
        // No change of the schema is announced there
        let schema_poll = Some(Duration::from_millis(100));
        let config = RestConfig { schemas: vec!["public".into()], schema_poll, ..RestConfig::default() };
        Self::on(connections, scenarios, config, Some(mode)).await
    }

    async fn on(connections: usize, scenarios: Vec<Scenario>, config: RestConfig, pooler: Option<PoolerMode>) -> Self {
        let server = TestServer::with(|settings| {
            settings.rest = Some(RestSettings { config, connections, ..RestSettings::default() });
            settings.pooler = pooler;
        })
        .await;
        server.execute(&sql(include_str!("base.sql"))).await;
        for scenario in &scenarios {
            let mut superuser_sql = format!("reset role; {}", scenario.superuser_sql);
            if superuser_sql.contains("{remote_port}") {
                superuser_sql = superuser_sql.replace("{remote_port}", &remote::port().await.to_string());
            }
            run(&server, scenario, &superuser_sql).await;
            run(&server, scenario, &format!("set role postgres; {}", scenario.sql)).await;
        }
        server
            .execute(
                "set role postgres;
                 grant usage on schema public to anon, authenticated, service_role;
                 grant all on all tables in schema public, decoy, private to anon, authenticated, service_role;
                 grant all on all sequences in schema public to anon, authenticated, service_role;
                 grant execute on all functions in schema public, private, decoy to anon, authenticated, service_role;
                 create view public.last_of_schema as select 1 as one;
                 grant select on public.last_of_schema to anon;
                 reset role; notify pgrst, 'reload config'; notify pgrst",
            )
            .await;
        let stage = Self {
            server,
            scenarios,
            next_mark: AtomicU64::new(0),
            contexts: Mutex::default(),
            writes: Mutex::default(),
        };
        stage.catch_up().await;
        // Behind a pooler the server finds the schema by itself
        let loaded = async { while stage.get("/rest/v1/last_of_schema").send().await.status != 200 {} };
        tokio::time::timeout(PATIENCE, loaded).await.expect("the server reads the schema");
        stage
    }

    /// Waits until the server has the current schema: an unknown name makes it reload.
    pub async fn catch_up(&self) {
        self.get("/rest/v1/not_there").send().await.expect(404);
    }

    /// Closes all connections of the data API, so that the next request runs on a fresh one.
    pub async fn renew_connections(&self) {
        if let Some(pooler) = self.pooler() {
            // One whose sessions were killed would lend them nevertheless
            return pooler.close_idle_sessions();
        }
        // A wait inside of the function would take a tenth of a second
        let backends = "from pg_stat_activity where datname = current_database() and usename = 'authenticator'";
        while self.count(&format!("select count(pg_terminate_backend(pid)) {backends}")).await > 0 {}
    }

    /// Returns a unique mark. Marks have one length, so that none is a part of another.
    pub fn new_mark(&self, caller: &Caller) -> String {
        format!("m-{}-{:07}", caller.name, self.next_mark.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a probe.
    pub async fn send(&self, probe: &Probe, caller: &Caller) -> SentRequest {
        self.send_with(probe, caller, None).await
    }

    /// Sends a probe that leaves state in the session. Its own rows show that state.
    pub async fn send_leaving(&self, probe: &Probe, caller: &Caller, leaves: &str) -> SentRequest {
        self.send_with(probe, caller, Some(leaves)).await
    }

    async fn send_with(&self, probe: &Probe, caller: &Caller, leaves: Option<&str>) -> SentRequest {
        let mark = self.new_mark(caller);
        let context = caller.context(probe.method, &probe.path(), &mark, probe.user);
        self.contexts.lock().unwrap().insert(mark.clone(), leaves.is_none().then(|| context.clone()));
        let filled = |text: &str| fill(text, caller, &mark, &context);
        if let Some(before) = probe.before {
            self.execute(&filled(before)).await;
        }
        let request = self.request(probe.method.parse().unwrap(), &format!("/rest/v1/{}", filled(probe.resource)));
        let mut request = caller.sign(&self.server, request, &mark);
        for (name, value) in &probe.headers {
            request = request.header(name, &filled(value));
        }
        if let Some(body) = probe.body {
            if !probe.headers.iter().any(|(name, _)| *name == "content-type") {
                request = request.header("content-type", "application/json");
            }
            request = request.body(filled(body));
        }
        if let Some(leaves) = leaves {
            request = request.header("x-leave", leaves);
        }
        let response = request.try_send().await.ok();
        // A request that leaves state may have disabled its own triggers
        if let (Some(table), Some(response), None) = (probe.writes, &response, leaves)
            && (200..300).contains(&response.status)
        {
            self.writes.lock().unwrap().push((table, mark.clone()));
        }
        SentRequest { mark, context, response }
    }

    /// Removes the written rows; their requests are not verified any more.
    pub async fn forget_rows(&self) {
        let tables = self
            .query(
                "select c.oid::regclass::text from pg_class as c join pg_attribute as a on a.attrelid = c.oid
                  where c.relkind in ('r', 'p') and c.relpersistence = 'p' and not c.relispartition
                    and c.relnamespace = 'public'::regnamespace and a.attname = 'mark' and not a.attisdropped",
            )
            .await;
        self.execute("set session_replication_role = replica").await;
        for table in tables.iter().map(|row| row.get::<_, String>(0)) {
            self.execute(&format!("delete from {table} where mark is not null")).await;
        }
        self.execute("reset session_replication_role").await;
        // A request of a disconnected client may still write
        self.contexts.lock().unwrap().values_mut().for_each(|context| *context = None);
        self.writes.lock().unwrap().clear();
    }

    /// Compares every written row with its request, in all tables with columns `mark` and `who`.
    /// Returns a description of each row that is wrong or missing.
    pub async fn wrong_rows(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let contexts = self.contexts.lock().unwrap().clone();
        let tables = self
            .query(
                "select c.oid::regclass::text from pg_class as c
                  where c.relkind in ('r', 'p') and c.relpersistence = 'p' and not c.relispartition
                    and c.relnamespace = 'public'::regnamespace
                    and 2 = (select count(*) from pg_attribute as a
                              where a.attrelid = c.oid and a.attname in ('mark', 'who') and not a.attisdropped)",
            )
            .await;
        for table in tables.iter().map(|row| row.get::<_, String>(0)) {
            for row in self.query(&format!("select mark, who::text from {table} where mark is not null")).await {
                let (mark, who): (String, Option<String>) = (row.get(0), row.get(1));
                let expected = contexts.get(&mark);
                if expected == Some(&None) {
                    continue;
                }
                if who.is_none() || expected != Some(&who) {
                    wrong.push(format!("{table}: the row of {mark:?} records {who:?}, not {expected:?}"));
                }
            }
        }
        let writes = self.writes.lock().unwrap().clone();
        let mut by_table: HashMap<&str, Vec<String>> = HashMap::new();
        for (table, mark) in writes {
            by_table.entry(table).or_default().push(mark);
        }
        for (table, marks) in by_table {
            let sql = format!(
                "select mark from unnest($1::text[]) as mark where mark not in (select mark from {table} where mark is not null)"
            );
            for row in self.query_with(&sql, &[&marks]).await {
                let mark = row.get::<_, String>(0);
                wrong.push(format!(
                    "{table}: the row of {mark:?} is missing; its context was {:?}",
                    contexts.get(&mark)
                ));
            }
        }
        wrong
    }
}

async fn run(server: &TestServer, scenario: &Scenario, text: &str) {
    if let Err(error) = server.admin().batch_execute(&sql(text)).await {
        panic!("{}: {error:?}", scenario.name);
    }
}

/// Inserts the expression of the request context into a piece of SQL.
pub fn sql(text: &str) -> String {
    text.replace("{inline}", INLINE)
}

/// Replaces the names in braces.
pub fn fill(text: &str, caller: &Caller, mark: &str, context: &str) -> String {
    text.replace("{mark}", mark)
        .replace("{context}", context)
        .replace("{sub}", caller.subject_text())
        .replace("{role}", caller.role)
        .replace("{name}", caller.name)
}
