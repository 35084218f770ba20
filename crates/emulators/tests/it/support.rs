//! Servers on free ports, and a client that follows nothing by itself.

use std::{future::Future, sync::Once, time::Duration};

use portico_base::{AllowedOrigins, Clock};
use portico_emulators::{Development, IdentityProvider, IdentityProviderSettings, Mailbox, MailboxLimits};
use portico_mail::{Address, Email, HeaderLine, Sender};
use reqwest::{Client, redirect::Policy};
use tokio::net::TcpListener;

pub const CALLBACK: &str = "http://127.0.0.1:54321/auth/v1/callback";

pub fn client() -> Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    });
    Client::builder().redirect(Policy::none()).timeout(Duration::from_secs(60)).build().unwrap()
}

/// Ends a test that waits for what never comes.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.unwrap()
}

pub struct MailboxServer {
    pub mailbox: Mailbox,
    pub url: String,
    pub client: Client,
}

pub async fn mailbox(limits: MailboxLimits) -> MailboxServer {
    let mailbox = Mailbox::new(Development::confirm(), limits);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = mailbox.router(&["https://shop.example.com"]);
    tokio::spawn(async move { axum::serve(listener, router).await });
    MailboxServer { mailbox, url, client: client() }
}

impl MailboxServer {
    pub async fn get(&self, path: &str) -> serde_json::Value {
        let response = self.client.get(format!("{}{path}", self.url)).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    }

    pub async fn text(&self, path: &str) -> (u16, String) {
        let response = self.client.get(format!("{}{path}", self.url)).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }
}

pub fn email(to: &str, subject: &str, html: &str) -> Email {
    let sender = Sender::new("Shop", Address::parse("shop@example.com").unwrap());
    Email::new(sender, Address::parse(to).unwrap(), HeaderLine::flatten(subject), html)
}

pub struct Provider {
    pub issuer: String,
    pub client: Client,
    pub clock: Clock,
}

pub async fn provider(accounts: Option<std::path::PathBuf>) -> Provider {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}/google", listener.local_addr().unwrap());
    let clock = Clock::movable(time::OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap());
    let settings = IdentityProviderSettings { accounts, ..IdentityProviderSettings::google(&issuer, CALLBACK) };
    let provider = IdentityProvider::new(Development::confirm(), settings, clock.clone()).unwrap();
    let router =
        axum::Router::new().nest("/google", provider.router(AllowedOrigins::new(["https://shop.example.com"])));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Provider { issuer, client: client(), clock }
}
