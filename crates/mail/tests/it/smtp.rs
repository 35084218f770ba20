//! Delivery to a mail server of the test's own, with the responses that a test sets.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use portico_mail::{Address, Email, HeaderLine, SendError, Sender, SmtpSettings, SmtpTls, SmtpTransport, Transport};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
};

/// A server with a fixed answer to the recipient, which records the commands that it receives.
struct FakeServer {
    port: u16,
    received: Arc<Mutex<Vec<String>>>,
}

impl FakeServer {
    async fn start(features: &'static str, answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&received);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    let (read, mut write) = socket.into_split();
                    let mut lines = BufReader::new(read).lines();
                    write.write_all(b"220 fake\r\n").await.unwrap();
                    let mut in_data = false;
                    while let Ok(Some(line)) = lines.next_line().await {
                        log.lock().unwrap().push(line.clone());
                        let reply = match line.split(' ').next().unwrap() {
                            "." if in_data => {
                                in_data = false;
                                "250 taken\r\n".to_owned()
                            }
                            _ if in_data => continue,
                            "EHLO" => format!("250-fake\r\n{features}250 8BITMIME\r\n"),
                            "RCPT" => format!("{answer}\r\n"),
                            "DATA" => {
                                in_data = true;
                                "354 go on\r\n".to_owned()
                            }
                            "AUTH" => "535 no\r\n".to_owned(),
                            _ => "250 ok\r\n".to_owned(),
                        };
                        if write.write_all(reply.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { port, received }
    }

    fn settings(&self) -> SmtpSettings {
        SmtpSettings { timeout: Duration::from_secs(30), ..SmtpSettings::new("127.0.0.1", self.port) }
    }

    async fn send(&self, settings: SmtpSettings) -> Result<(), SendError> {
        SmtpTransport::new(&settings).unwrap().send(email()).await
    }
}

fn email() -> Email {
    let sender = Sender::new("Shop", Address::parse("shop@example.com").unwrap());
    Email::new(sender, Address::parse("ann@example.com").unwrap(), HeaderLine::flatten("Hi"), "<p>Hi</p>\n.\nQUIT")
}

#[tokio::test]
async fn a_mail_is_delivered_and_the_connection_is_used_again() {
    let server = FakeServer::start("", "250 ok").await;
    let transport = SmtpTransport::new(&server.settings()).unwrap();
    transport.send(email()).await.unwrap();
    // The connection is put back by a task of its own, which runs when this one gives way
    tokio::task::yield_now().await;
    transport.send(email()).await.unwrap();
    let received = server.received.lock().unwrap().join("\n");
    assert_eq!(received.matches("MAIL FROM:<shop@example.com>").count(), 2, "{received}");
    assert_eq!(received.matches("RCPT TO:<ann@example.com>").count(), 2, "{received}");
    assert_eq!(received.matches("EHLO").count(), 1, "{received}");
    assert_eq!(
        received.matches("\nQUIT").count(),
        received.matches("\n..\nQUIT").count(),
        "the body is no command: {received}"
    );
    transport.check().await.unwrap();
}

#[tokio::test]
async fn a_temporary_failure_is_distinguished_from_a_permanent_one() {
    let busy = FakeServer::start("", "451 later ann@example.com").await;
    let error = busy.send(busy.settings()).await.unwrap_err();
    assert!(error.is_temporary() && !error.to_string().contains("ann"), "{error}");

    let refusing = FakeServer::start("", "550 no such ann@example.com").await;
    let error = refusing.send(refusing.settings()).await.unwrap_err();
    assert!(
        !error.is_temporary() && error.to_string().contains("550") && !error.to_string().contains("ann"),
        "{error}"
    );

    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let settings = SmtpSettings::new("127.0.0.1", closed);
    assert!(SmtpTransport::new(&settings).unwrap().send(email()).await.unwrap_err().is_temporary());
}

#[tokio::test]
async fn a_refused_login_leaves_the_mail_for_later() {
    let server = FakeServer::start("250-AUTH PLAIN LOGIN\r\n", "250 ok").await;
    let settings = SmtpSettings { user: Some("u".into()), password: Some("p".into()), ..server.settings() };
    assert!(server.send(settings).await.unwrap_err().is_temporary());
    assert!(!server.received.lock().unwrap().iter().any(|line| line.starts_with("MAIL")));
}

#[tokio::test]
async fn without_the_required_protection_nothing_is_sent() {
    let server = FakeServer::start("250-AUTH PLAIN\r\n", "250 ok").await;
    for tls in [SmtpTls::Required, SmtpTls::Implicit] {
        let settings = SmtpSettings { tls, timeout: Duration::from_secs(2), ..server.settings() };
        assert!(server.send(settings).await.unwrap_err().is_temporary());
    }
    // "localhost." is this machine too, but not by a name that we trust a password to
    let settings = SmtpSettings {
        host: "localhost.".into(),
        user: Some("u".into()),
        password: Some("p".into()),
        ..server.settings()
    };
    assert!(server.send(settings).await.is_err());
    assert!(!server.received.lock().unwrap().iter().any(|line| line.starts_with("MAIL") || line.starts_with("AUTH")));
}
