//! The delivery of emails when the mail server fails, and bodies that are fetched.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::response::IntoResponse as _;
use futures_util::future::BoxFuture;
use portico_auth::settings::TemplateSettings;
use portico_mail::{Email, MailKind, SendError, Transport};
use portico_testkit::TestServer;
use serde_json::json;
use tokio::sync::watch;

use crate::local_server::serve;

/// Rejects the first emails and accepts later ones.
struct Moody {
    refusals: AtomicUsize,
    error: SendError,
    taken: watch::Sender<Vec<Email>>,
}

impl Transport for Moody {
    fn send(&self, email: Email) -> BoxFuture<'_, Result<(), SendError>> {
        let refuse = self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if !refuse {
            self.taken.send_modify(|taken| taken.push(email));
        }
        let response = if refuse { Err(self.error.clone()) } else { Ok(()) };
        Box::pin(async { response })
    }
}

async fn server_with(refusals: usize, error: SendError) -> (TestServer, watch::Receiver<Vec<Email>>) {
    let (taken, mails) = watch::channel(Vec::new());
    let transport = Arc::new(Moody { refusals: AtomicUsize::new(refusals), error, taken });
    (TestServer::with(|settings| settings.mail = Some(transport)).await, mails)
}

#[tokio::test]
async fn a_mail_stays_in_the_outbox_while_the_mail_server_is_unavailable() {
    let (t, mut mails) = server_with(1, SendError::Temporary("busy".into())).await;
    let body = json!({"email": "ada@example.com", "password": "correct-horse"});
    t.post("/auth/v1/signup").json(&body).send().await.expect(200);
    let arrived = mails.wait_for(|mails| !mails.is_empty());
    let arrived = tokio::time::timeout(Duration::from_secs(60), arrived).await;
    let arrived = arrived.expect("it is sent again").expect("the server lives").clone();
    assert_eq!(arrived[0].to().as_str(), "ada@example.com");
    assert_eq!(arrived.len(), 1);
}

#[tokio::test]
async fn an_empty_outbox_is_left_alone() {
    let (t, mut mails) = server_with(0, SendError::Temporary(String::new())).await;
    let body = json!({"email": "ada@example.com", "password": "correct-horse"});
    t.post("/auth/v1/signup").json(&body).send().await.expect(200);
    mails.wait_for(|mails| !mails.is_empty()).await.expect("the server lives");
    t.execute(
        "create function public.is_asked_for() returns bool language plpgsql as $$
         begin
           lock table portico.mail_outbox in access exclusive mode;
           perform pg_sleep(0.3);
           return exists (select from pg_locks where relation = 'portico.mail_outbox'::regclass and not granted);
         end $$",
    )
    .await;
    // The delivery of the email may end during the first looks
    for _ in 0..20 {
        if !t.query("select public.is_asked_for()").await[0].get::<_, bool>(0) {
            return;
        }
    }
    panic!("the server asks for mails again and again");
}

#[tokio::test]
async fn a_rolled_back_mail_is_never_sent() {
    let (t, mails) = server_with(0, SendError::Temporary(String::new())).await;
    t.execute(
        "create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
         create constraint trigger refuse after insert on auth.users deferrable initially deferred
           for each row execute function public.refuse();",
    )
    .await;
    let body = json!({"email": "ada@example.com", "password": "correct-horse"});
    t.post("/auth/v1/signup").json(&body).send().await.expect(500);
    t.execute("drop trigger refuse on auth.users").await;
    let body = json!({"email": "eve@example.com", "password": "correct-horse"});
    t.post("/auth/v1/signup").json(&body).send().await.expect(200);
    let mut mails = mails;
    let waiting = mails.wait_for(|mails| !mails.is_empty());
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it arrives").expect("it lives");
    assert!(mails.borrow().iter().all(|mail| mail.to().as_str() == "eve@example.com"));
}

#[tokio::test]
async fn a_mail_that_a_crashed_server_claimed_is_sent() {
    let t = TestServer::start().await;
    t.execute(
        "insert into portico.mail_outbox (kind, recipient, subject, html)
         values ('confirmation', 'left@example.com', 'Hello', '<p>x</p>')",
    )
    .await;
    let body = json!({"email": "ada@example.com", "password": "correct-horse"});
    t.post("/auth/v1/signup").json(&body).send().await.expect(200);
    assert_eq!(t.mail_to("left@example.com").await.subject().as_str(), "Hello");
}

/// Serves the body of an email, or an error, and counts the requests.
async fn texts(body: Arc<Mutex<Result<String, u16>>>) -> (String, watch::Receiver<usize>) {
    let (asked, count) = watch::channel(0);
    let app = axum::Router::new().fallback(async move || {
        asked.send_modify(|asked| *asked += 1);
        match body.lock().unwrap().clone() {
            Ok(text) => text.into_response(),
            Err(status) => http::StatusCode::from_u16(status).unwrap().into_response(),
        }
    });
    (serve(app).await, count)
}

#[tokio::test]
async fn a_body_from_a_url_is_fetched_again_and_the_last_valid_one_stays_in_use() {
    let body = Arc::new(Mutex::new(Err(503)));
    let (base, mut count) = texts(Arc::clone(&body)).await;
    let t = TestServer::with_auth(|settings| {
        settings.site_url.clone_from(&base);
        settings.email.template_max_age = Duration::from_millis(20);
        settings.email.template_retry = Duration::from_millis(20);
        let own = TemplateSettings { body_url: Some("/recovery.html".into()), ..TemplateSettings::default() };
        settings.email.templates.insert(MailKind::Recovery, own);
    })
    .await;
    t.account("ada@example.com", "correct-horse").await;
    // A body is fetched again when the last one is in use: after two more requests the new one is
    // in use, or rejected
    let mut mail_with = async |new: Result<String, u16>| {
        *body.lock().unwrap() = new;
        let seen = *count.borrow_and_update();
        let read = tokio::time::timeout(Duration::from_secs(60), count.wait_for(|count| *count >= seen + 3)).await;
        read.expect("it is read again").expect("the stand-in lives");
        let before = t.mails_to("ada@example.com").len();
        t.post("/auth/v1/recover").json(&json!({"email": "ada@example.com"})).send().await.expect(200);
        t.nth_mail_to("ada@example.com", before).await.html().to_owned()
    };
    let built_in = mail_with(Err(503)).await;
    assert!(built_in.contains("/auth/v1/verify?token="), "{built_in}");
    assert_eq!(mail_with(Ok("<p>One {{ .Email }}</p>".into())).await, "<p>One ada@example.com</p>");
    assert_eq!(mail_with(Err(404)).await, "<p>One ada@example.com</p>");
    assert_eq!(mail_with(Ok("{{ if }}".into())).await, "<p>One ada@example.com</p>");
    assert_eq!(mail_with(Ok("x".repeat(1_000_001))).await, "<p>One ada@example.com</p>");
    assert_eq!(mail_with(Ok("x".repeat(3_000_000))).await, "<p>One ada@example.com</p>");
    assert_eq!(mail_with(Ok("<p>Two</p>".into())).await, "<p>Two</p>");
}

#[tokio::test]
async fn a_body_is_not_fetched_from_a_private_network() {
    let (base, count) = texts(Arc::new(Mutex::new(Ok("<p>inside</p>".into())))).await;
    let (good, mut good_count) = texts(Arc::new(Mutex::new(Ok("<p>good</p>".into())))).await;
    let t = TestServer::with_auth(|settings| {
        settings.allow_insecure_loopback_providers = false;
        settings.email.template_retry = Duration::from_millis(5);
        let own = TemplateSettings { body_url: Some(base), ..TemplateSettings::default() };
        settings.email.templates.insert(MailKind::Recovery, own);
    })
    .await;
    // A second server may fetch it: after several requests of it, the first one would have fetched
    // it too
    let other = TestServer::with_auth(|settings| {
        settings.email.template_max_age = Duration::from_millis(5);
        let own = TemplateSettings { body_url: Some(good), ..TemplateSettings::default() };
        settings.email.templates.insert(MailKind::Recovery, own);
    })
    .await;
    let read = tokio::time::timeout(Duration::from_secs(60), good_count.wait_for(|count| *count >= 5)).await;
    read.expect("it is read").expect("the stand-in lives");
    assert_eq!(*count.borrow(), 0);
    t.account("ada@example.com", "correct-horse").await;
    t.post("/auth/v1/recover").json(&json!({"email": "ada@example.com"})).send().await.expect(200);
    assert!(t.nth_mail_to("ada@example.com", 1).await.html().contains("/auth/v1/verify?token="));
    drop(other);
}
