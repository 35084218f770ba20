//! The collector over a real socket and a real database.

#![allow(clippy::unwrap_used)]

mod collect;
mod outage;

use std::time::Duration;

use axum::Extension;
use axum::extract::Request;
use axum::middleware::{self, Next};
use portico_analytics::{Analytics, AnalyticsLimits};
use portico_base::{ClientAddress, Clock, Secret};
use portico_database::{BootstrapSettings, Database, PoolSettings, scratch};
use portico_tokens::{Caller, KeyRing};
use serde_json::json;
use time::OffsetDateTime;
use time::macros::datetime;
use tokio::net::TcpListener;

const NOW: OffsetDateTime = datetime!(2026-05-01 12:00 UTC);

/// The caller that the gateway would determine for this header.
const USER: &str = "x-test-user";

struct Collector {
    url: String,
    http: reqwest::Client,
    analytics: Analytics,
    clock: Clock,
    database: Database,
    name: String,
}

impl Collector {
    async fn start() -> Self {
        Self::start_with(AnalyticsLimits::default()).await
    }

    async fn start_with(limits: AnalyticsLimits) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let admin = scratch::shared_cluster().await.unwrap().endpoint();
        let name = scratch::fresh_name();
        let endpoint = scratch::clone_database(&admin, "template0", &name).await.unwrap();
        let settings =
            PoolSettings { login_connections: 1, wait: Duration::from_millis(100), ..PoolSettings::default() };
        let database = Database::open(&endpoint, settings).unwrap();
        database.bootstrap(&BootstrapSettings::default()).await.unwrap();

        let clock = Clock::movable(NOW);
        let analytics = Analytics::with_limits(database.clone(), clock.clone(), limits);
        let router = analytics
            .router()
            .layer(middleware::from_fn(introduce))
            .layer(Extension(ClientAddress("192.0.2.1".parse().unwrap())));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, http: reqwest::Client::new(), analytics, clock, database, name }
    }

    fn post(&self, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        self.http.post(&self.url).body(body)
    }

    async fn send(&self, body: &str) -> u16 {
        self.post(body.to_owned()).send().await.unwrap().status().as_u16()
    }

    /// Returns the table, one event a line, after the waiting events are written.
    async fn kept(&self) -> Vec<String> {
        assert!(self.analytics.flush().await, "the database takes the events");
        let client = self.database.login_client().await.unwrap();
        let rows = client
            .query(
                "select concat_ws(' ', name, properties::text, coalesce(user_id::text, '-'), coalesce(route, '-'),
                        extract(epoch from $1::timestamptz - occurred_at)::int::text,
                        (received_at = $1::timestamptz)::text)
                   from portico.analytics_events order by id",
                &[&NOW],
            )
            .await
            .unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn end(self) {
        self.database.close().await;
        let admin = scratch::shared_cluster().await.unwrap().endpoint();
        scratch::drop_database(&admin, &self.name).await.unwrap();
    }
}

/// Adds the caller to a request, in place of the gateway.
async fn introduce(mut request: Request, next: Next) -> axum::response::Response {
    if let Some(user) = request.headers().get(USER) {
        let ring = KeyRing::hs256(&Secret::new("a secret for tests only, with 32+ bytes"));
        let token = ring.sign(&json!({ "sub": user.to_str().unwrap(), "role": "authenticated" })).unwrap();
        let token = ring.verify(&token, NOW).unwrap();
        request.extensions_mut().insert(Caller { token: Some(token), ..Caller::default() });
    }
    next.run(request).await
}
