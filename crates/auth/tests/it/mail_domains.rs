//! Mail domains, looked up at a name server of the test.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use portico_auth::AuthSettings;
use portico_testkit::{GooglePerson, Pkce, TestResponse, TestServer, google_page};
use serde_json::json;
use tokio::net::UdpSocket;

const A: u16 = 1;
const MX: u16 = 15;
const AAAA: u16 = 28;

/// The status and records of a response: type and data.
type Answers = HashMap<(String, u16), (u8, Vec<(u16, Vec<u8>)>)>;

/// A name server that knows a few domains and refuses other queries.
struct NameServer {
    address: SocketAddr,
    responses: Arc<Mutex<Answers>>,
    asked: Arc<Mutex<Vec<(String, u16)>>>,
}

impl NameServer {
    async fn start(responses: Answers) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<_>>> = Arc::default();
        let notes = Arc::clone(&asked);
        let responses = Arc::new(Mutex::new(responses));
        let known = Arc::clone(&responses);
        tokio::spawn(async move {
            let mut query = [0; 600];
            while let Ok((length, from)) = socket.recv_from(&mut query).await {
                let query = &query[..length];
                let (name, kind) = read_question(query);
                notes.lock().unwrap().push((name.clone(), kind));
                let (status, records) = known.lock().unwrap().get(&(name, kind)).cloned().unwrap_or((5, Vec::new()));
                // First a response to another query, which must be ignored
                let mut other = answer(query, 3, &[]);
                other[0] ^= 0xff;
                socket.send_to(&other, from).await.unwrap();
                socket.send_to(&answer(query, status, &records), from).await.unwrap();
            }
        });
        Self { address, responses, asked }
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

fn assert_invalid_address(response: &TestResponse, email: &str) {
    assert_eq!(response.rejection(), (400, "email_address_invalid".into()), "{email}");
    assert_eq!(response.json()["msg"], format!("Email address \"{email}\" is invalid"));
}

#[tokio::test]
async fn a_domain_must_accept_mail_as_far_as_is_known() {
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
        t.visitor(&format!("ada@{domain}")).signs_up().await.expect(200);
    }
    let accounts = t.count("select count(*) from auth.users").await;
    for domain in ["empty.dev", "gone.dev", "nomail.dev"] {
        let email = format!("ada@{domain}");
        for path in ["signup", "otp", "magiclink", "recover", "resend"] {
            let fields = json!({"password": "correct horse", "type": "signup"});
            assert_invalid_address(&t.visitor(&email).posts(path, &fields).await, &email);
        }
        assert_eq!(server.asked(domain)[0], MX);
        assert_eq!(server.asked(domain).iter().filter(|kind| **kind == MX).count(), 1, "the answer is kept");
    }
    assert_eq!(t.count("select count(*) from auth.users").await, accounts);
    // Reserved domains need no name server
    assert_invalid_address(&t.visitor("ada@host.test").signs_up().await, "ada@host.test");
    assert!(server.asked("host.test").is_empty());

    t.execute("update auth.users set email_confirmed_at = now() where email = 'ada@mail.dev'").await;
    let ada = t.visitor("ada@mail.dev").signed_in().await;
    let change = async |email: &str| ada.changes_account(&json!({ "email": email })).await;
    assert_invalid_address(&change("ada@gone.dev").await, "ada@gone.dev");
    change("ada@web.dev").await.expect(422);
    change("lovelace@six.dev").await.expect(200);
}

#[tokio::test]
async fn a_silent_name_server_prevents_no_sign_up() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let t = TestServer::with_auth(|settings| {
        settings.email.extended_validation = true;
        settings.email.name_servers = vec![address];
    })
    .await;
    t.visitor("ada@mail.dev").signs_up().await.expect(200);
    let mut question = [0; 600];
    let (length, _) = silent.recv_from(&mut question).await.unwrap();
    assert_eq!(read_question(&question[..length]), ("mail.dev".to_owned(), MX));
}

/// Starts a server with a name server: mail.dev accepts email, gone.dev does not exist, spam.dev
/// has a blocked mail server.
async fn server_with_name_server(change: impl FnOnce(&mut AuthSettings)) -> (TestServer, NameServer) {
    let key = |name: &str, kind| (name.to_owned(), kind);
    let at = |name: &[u8]| vec![(MX, [&[0, 10], name].concat())];
    let server = NameServer::start(HashMap::from([
        (key("mail.dev", MX), (0, at(b"\x02mx\xc0\x0c"))),
        (key("spam.dev", MX), (0, at(b"\x02IN\x04Spam\x04mail\x00"))),
        (key("gone.dev", MX), (3, Vec::new())),
    ]))
    .await;
    let address = server.address;
    let t = TestServer::with_auth(|settings| {
        settings.email.extended_validation = true;
        settings.email.name_servers = vec![address];
        settings.email.blocked_mail_servers = vec!["spam.mail".into()];
        change(settings);
    })
    .await;
    (t, server)
}

#[tokio::test]
async fn a_domain_of_a_blocked_mail_server_is_rejected() {
    let (t, _server) = server_with_name_server(|_| {}).await;
    assert_invalid_address(&t.visitor("ada@spam.dev").signs_up().await, "ada@spam.dev");
    t.visitor("ada@mail.dev").signs_up().await.expect(200);
}

#[tokio::test]
async fn an_unverified_address_of_a_provider_is_checked_before_it_is_sent_mail() {
    let (t, _server) = server_with_name_server(|_| {}).await;
    let come = async |email: &'static str| {
        let response = t.google().sign_in(GooglePerson::Unverified { name: "Ada", email }).await;
        response.location_query("error_code").unwrap()
    };
    assert_eq!(come("ada@gone.dev").await, "email_address_invalid");
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    assert_eq!(come("ada@mail.dev").await, "provider_email_needs_verification");
    // A confirmed account is sent no email, so its domain is not checked
    t.execute("update auth.users set email = 'ada@gone.dev', email_confirmed_at = now()").await;
    t.execute("update auth.identities set identity_data = identity_data || '{\"email\": \"ada@gone.dev\"}'").await;
    let response = t.google().sign_in(GooglePerson::Unverified { name: "Ada", email: "ada@mail.dev" }).await;
    assert!(response.location_fragment("access_token").is_some(), "{response:?}");
}

#[tokio::test]
async fn the_domain_of_a_pending_link_is_checked_again_at_the_exchange() {
    let (t, server) = server_with_name_server(|settings| {
        settings.manual_linking = true;
        settings.anonymous_users = true;
    })
    .await;
    let pkce = Pkce::new();
    let begun = t.anonymous_member().await.begins_google_link(Some(&pkce)).await.expect(200);
    let url = google_page(&begun);
    // The name server refuses the domain, so that nothing is cached
    let response = t.google().answer(&url, GooglePerson::Unverified { name: "Ada", email: "ada@late.dev" }).await;
    server.responses.lock().unwrap().insert(("late.dev".to_owned(), MX), (3, Vec::new()));
    assert_invalid_address(&t.exchange(&response, &pkce.verifier).await, "ada@late.dev");
    assert_eq!(t.count("select count(*) from auth.identities").await, 0);
}

#[tokio::test]
async fn reauthentication_and_a_resent_change_check_the_domain() {
    let (t, _server) = server_with_name_server(|settings| settings.email.autoconfirm = true).await;
    let ada = t.member("ada@mail.dev").await;
    ada.reauthenticates().await.expect(200);
    t.execute("update auth.users set email = 'ada@gone.dev', reauthentication_sent_at = null").await;
    assert_invalid_address(&ada.reauthenticates().await, "ada@gone.dev");
    let resend = async |email: &str| t.visitor(email).requests_again("email_change").await;
    assert_invalid_address(&resend("ada@gone.dev").await, "ada@gone.dev");
    // The same without an account
    assert_invalid_address(&resend("nobody@gone.dev").await, "nobody@gone.dev");
    resend("nobody@mail.dev").await.expect(200);
}
