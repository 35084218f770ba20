//! Mails arrive, whatever the mail server does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use portico_mail::{Email, SendError, Transport};
use portico_testkit::TestServer;
use serde_json::json;
use tokio::sync::watch;

/// Refuses the first mails, then takes them.
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
        let answer = if refuse { Err(self.error.clone()) } else { Ok(()) };
        Box::pin(async { answer })
    }
}

async fn server_with(refusals: usize, error: SendError) -> (TestServer, watch::Receiver<Vec<Email>>) {
    let (taken, mails) = watch::channel(Vec::new());
    let transport = Arc::new(Moody { refusals: AtomicUsize::new(refusals), error, taken });
    (TestServer::with(|settings| settings.mail = Some(transport)).await, mails)
}

#[tokio::test]
async fn a_mail_is_kept_while_the_mail_server_is_away() {
    let (t, mut mails) = server_with(1, SendError::Temporary("busy".into())).await;
    let body = json!({"email": "ada@example.com", "password": "correct-horse"});
    t.post("/auth/v1/signup").json(&body).send().await.expect(200);
    let arrived = mails.wait_for(|mails| !mails.is_empty());
    let arrived = tokio::time::timeout(std::time::Duration::from_secs(60), arrived).await;
    let arrived = arrived.expect("it is sent again").expect("the server lives").clone();
    assert_eq!(arrived[0].to().as_str(), "ada@example.com");
    assert_eq!(arrived.len(), 1);
}

#[tokio::test]
async fn what_was_rolled_back_is_never_sent() {
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
    tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await.expect("it arrives").expect("it lives");
    assert!(mails.borrow().iter().all(|mail| mail.to().as_str() == "eve@example.com"));
}

#[tokio::test]
async fn a_mail_that_a_crashed_server_left_behind_is_sent() {
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
