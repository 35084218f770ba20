//! Addresses of domains that take no mail (auth-core 15.3), with a name server that the test plays.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use portico_testkit::{Answer, TestServer};
use serde_json::{Value, json};
use tokio::net::UdpSocket;

const A: u16 = 1;
const MX: u16 = 15;
const AAAA: u16 = 28;

/// A status and the records of one answer: type and data.
type Answers = HashMap<(String, u16), (u8, Vec<(u16, Vec<u8>)>)>;

/// A name server that knows a few domains. Whatever else it is asked it refuses.
struct NameServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, u16)>>>,
}

impl NameServer {
    async fn start(answers: Answers) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<_>>> = Arc::default();
        let notes = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut query = [0; 600];
            while let Ok((length, from)) = socket.recv_from(&mut query).await {
                let query = &query[..length];
                let (name, kind) = read_question(query);
                notes.lock().unwrap().push((name.clone(), kind));
                let (status, records) = answers.get(&(name, kind)).cloned().unwrap_or((5, Vec::new()));
                // An answer to another question first: it must be passed over
                let mut other = answer(query, 3, &[]);
                other[0] ^= 0xff;
                socket.send_to(&other, from).await.unwrap();
                socket.send_to(&answer(query, status, &records), from).await.unwrap();
            }
        });
        Self { address, asked }
    }

    fn asked(&self, name: &str) -> Vec<u16> {
        self.asked.lock().unwrap().iter().filter(|(asked, _)| asked == name).map(|(_, kind)| *kind).collect()
    }
}

fn read_question(query: &[u8]) -> (String, u16) {
    let (mut at, mut labels) = (12, Vec::new());
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8(query[at + 1..end].to_vec()).unwrap());
        at = end;
    }
    (labels.join("."), u16::from_be_bytes([query[at + 1], query[at + 2]]))
}

fn answer(query: &[u8], status: u8, records: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = query.to_vec();
    bytes[2..4].copy_from_slice(&[0x81, 0x80 | status]);
    bytes[7] = u8::try_from(records.len()).unwrap();
    for (kind, data) in records {
        bytes.extend_from_slice(&[0xc0, 12]);
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0, 1, 0, 0, 0, 60, 0, u8::try_from(data.len()).unwrap()]);
        bytes.extend_from_slice(data);
    }
    bytes
}

async fn post(t: &TestServer, path: &str, email: &str) -> Answer {
    let body = json!({"email": email, "password": "correct-horse", "type": "signup"});
    t.post(&format!("/auth/v1/{path}")).json(&body).send().await
}

fn refused(answer: &Answer, email: &str) {
    assert_eq!(answer.refusal(), (400, "email_address_invalid".into()), "{email}");
    assert_eq!(answer.json()["msg"], format!("Email address \"{email}\" is invalid"));
}

#[tokio::test]
async fn a_domain_must_take_mail_as_far_as_is_known() {
    let mail = || vec![(MX, vec![0, 10, 2, b'm', b'x', 0xc0, 12])];
    let key = |name: &str, kind| (name.to_owned(), kind);
    let none = || (0, Vec::new());
    let server = NameServer::start(HashMap::from([
        (key("mail.dev", MX), (0, mail())),
        (key("xn--bcher-kva.dev", MX), (0, mail())),
        (key("web.dev", MX), none()),
        (key("web.dev", A), (0, vec![(A, vec![192, 0, 2, 1])])),
        (key("web.dev", AAAA), none()),
        (key("six.dev", MX), none()),
        (key("six.dev", A), none()),
        (key("six.dev", AAAA), (0, vec![(AAAA, vec![1; 16])])),
        (key("empty.dev", MX), none()),
        (key("empty.dev", A), none()),
        (key("empty.dev", AAAA), none()),
        (key("gone.dev", MX), (3, Vec::new())),
        (key("nomail.dev", MX), (0, vec![(MX, vec![0, 0, 0])])),
        (key("broken.dev", MX), (2, Vec::new())),
        (key("half.dev", MX), none()),
        (key("half.dev", A), none()),
    ]))
    .await;
    let address = server.address;
    let t = TestServer::with_auth(|settings| {
        settings.email.extended_validation = true;
        settings.email.name_servers = vec![address];
    })
    .await;

    for domain in ["mail.dev", "web.dev", "six.dev", "broken.dev", "half.dev", "refusing.dev"] {
        post(&t, "signup", &format!("ada@{domain}")).await.expect(200);
    }
    let accounts = t.count("select count(*) from auth.users").await;
    for domain in ["empty.dev", "gone.dev", "nomail.dev"] {
        let email = format!("ada@{domain}");
        for path in ["signup", "otp", "magiclink", "recover", "resend"] {
            refused(&post(&t, path, &email).await, &email);
        }
        assert_eq!(server.asked(domain)[0], MX);
        assert_eq!(server.asked(domain).iter().filter(|kind| **kind == MX).count(), 1, "the answer is kept");
    }
    assert_eq!(t.count("select count(*) from auth.users").await, accounts);
    // Reserved domains need no name server
    refused(&post(&t, "signup", "ada@host.test").await, "ada@host.test");
    assert!(server.asked("host.test").is_empty());

    let tokens: Value = {
        t.execute("update auth.users set email_confirmed_at = now() where email = 'ada@mail.dev'").await;
        t.sign_in("ada@mail.dev", "correct-horse").await
    };
    let change = |email: &'static str| {
        let token = tokens["access_token"].as_str().unwrap();
        t.put("/auth/v1/user").bearer(token).json(&json!({ "email": email })).send()
    };
    refused(&change("ada@gone.dev").await, "ada@gone.dev");
    change("ada@web.dev").await.expect(422);
    change("lovelace@six.dev").await.expect(200);
}

#[tokio::test]
async fn nobody_is_kept_out_by_a_name_server_that_is_silent() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let t = TestServer::with_auth(|settings| {
        settings.email.extended_validation = true;
        settings.email.name_servers = vec![address];
    })
    .await;
    post(&t, "signup", "ada@mail.dev").await.expect(200);
    let mut question = [0; 600];
    let (length, _) = silent.recv_from(&mut question).await.unwrap();
    assert_eq!(read_question(&question[..length]), ("mail.dev".to_owned(), MX));
}
