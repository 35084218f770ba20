//! Tests over HTTP, through the whole server.

mod callers;
mod configuration;
mod counts;
mod embeds;
mod functions;
mod graphql;
mod hints;
mod reload;
mod responses;
mod transactions;

use std::ops::Deref;

use portico_rest::RestSettings;
use portico_rest::config::RestConfig;
use portico_testkit::{Request, TestServer};
use serde_json::{Value, json};

/// A running server whose database is the cinema.
pub struct CinemaServer(TestServer);

impl Deref for CinemaServer {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.0
    }
}

/// The id of Ada in `schema.sql`.
pub const FIRST: &str = "00000000-0000-4000-8000-00000000000a";
/// The id of Ben.
pub const SECOND: &str = "00000000-0000-4000-8000-00000000000b";

impl CinemaServer {
    pub async fn open() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut RestConfig)) -> Self {
        let mut config = RestConfig {
            schemas: vec!["public".into(), "archive".into(), "Qu\"oted schéma".into()],
            ..RestConfig::default()
        };
        change(&mut config);
        let server = TestServer::with(|settings| {
            settings.rest = Some(RestSettings { config, connections: 4, ..RestSettings::default() });
        })
        .await;
        server.execute(include_str!("../schema.sql")).await;
        server.execute("reset role; notify pgrst, 'reload config'").await;
        let server = Self(server);
        // An unknown name makes the server process all notifications so far
        server.get("/rest/v1/not_there").send().await.expect(404);
        server
    }

    /// Overrides settings in this database alone: all tests share the roles of the cluster.
    pub async fn configure(&self, settings: &[(&str, &str)]) {
        for (name, value) in settings {
            self.execute(&format!(
                "do $$ begin
                   execute format('alter role authenticator in database %I set pgrst.{name} = %L', current_database(), '{value}');
                 end $$"
            ))
            .await;
        }
        self.execute("notify pgrst, 'reload config'").await;
        self.read("not_there").send().await.expect(404);
    }

    /// Makes a role for requests. It stays: other tests and runs use the same cluster.
    pub async fn role(&self, name: &str) {
        self.execute(&format!(
            "do $$ begin create role {name} nologin; exception when duplicate_object or unique_violation then null; end $$"
        ))
        .await;
    }

    /// Signs a token for the role and the subject.
    pub fn token(&self, role: &str, subject: &str) -> String {
        let now = self.clock().now().unix_timestamp();
        self.sign(&json!({ "role": role, "sub": subject, "exp": now + 3600 }))
    }

    pub fn sign(&self, claims: &Value) -> String {
        self.keys().ring.sign(claims).unwrap()
    }

    /// Makes a `GET` with the publishable key.
    pub fn public(&self, path: &str) -> Request {
        self.get(&format!("/rest/v1{path}")).key(self.api_keys().publishable())
    }

    /// Makes a `GET` with the secret key.
    pub fn secret(&self, path: &str) -> Request {
        self.get(&format!("/rest/v1{path}")).key(self.api_keys().secret())
    }

    pub fn read(&self, resource: &str) -> Request {
        self.get(&format!("/rest/v1/{resource}"))
    }

    pub fn write(&self, method: &str, resource: &str, body: &Value) -> Request {
        let method = method.parse().unwrap();
        self.request(method, &format!("/rest/v1/{resource}")).key(self.api_keys().service_role_jwt()).json(body)
    }

    pub fn call(&self, function: &str, arguments: &Value) -> Request {
        self.post(&format!("/rest/v1/rpc/{function}")).json(arguments)
    }
}
