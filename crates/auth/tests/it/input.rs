//! What nobody should send.

use portico_testkit::TestServer;
use serde_json::json;

#[tokio::test]
async fn bodies_that_are_no_json_object() {
    let t = TestServer::start().await;
    let deep = format!(r#"{{"email":"a@example.com","data":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
    for body in [
        &b""[..],
        b"{",
        b"[]",
        b"{\"email\":5}",
        b"{\"email\":\"\xff\xfe\"}",
        b"{\"email\":\"a\\u0000@example.com\",\"password\":\"correct-horse\"}",
        b"email=a%40example.com",
        deep.as_bytes(),
    ] {
        for path in ["signup", "otp", "recover", "resend", "verify", "magiclink"] {
            let answer = t.post(&format!("/auth/v1/{path}")).body(body.to_vec()).send().await;
            assert_eq!(answer.refusal(), (400, "bad_json".into()), "{path} {answer:?}");
        }
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
}

#[tokio::test]
async fn a_body_is_read_whatever_its_content_type() {
    let t = TestServer::start().await;
    let body = json!({"email": "a@example.com", "password": "correct-horse"}).to_string();
    t.post("/auth/v1/signup").header("content-type", "text/plain").body(body).send().await.expect(200);
}

#[tokio::test]
async fn a_body_over_a_mebibyte_is_refused() {
    let t = TestServer::start().await;
    let body = format!(r#"{{"email":"{}"}}"#, "a".repeat(1_100_000));
    let answer = t.post("/auth/v1/signup").body(body).send().await.expect(413);
    assert_eq!(answer.refusal().1, "request_entity_too_large");
}

#[tokio::test]
async fn addresses_that_smuggle_something() {
    let t = TestServer::start().await;
    for address in [
        "a@example.com\r\nBcc: eve@example.com",
        "a@example.com, eve@example.com",
        "a\u{200b}@example.com",
        "\u{202e}a@example.com",
        "p\u{0430}ypal@example.com",
        "a@ex\u{0430}mple.com",
        "<a@example.com>",
    ] {
        for (path, body) in [
            ("signup", json!({"email": address, "password": "correct-horse"})),
            ("otp", json!({"email": address})),
            ("recover", json!({"email": address})),
        ] {
            let answer = t.post(&format!("/auth/v1/{path}")).json(&body).send().await;
            assert_eq!(answer.refusal(), (400, "validation_failed".into()), "{path} {address:?}");
        }
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    assert!(t.mails().is_empty());
}

#[tokio::test]
async fn what_a_person_writes_stays_text_in_mails() {
    let t = TestServer::with_auth(|settings| {
        let template = portico_auth::settings::TemplateSettings {
            subject: Some("Hello {{ .Data.name }}".into()),
            body: Some("<p>{{ .Data.name }}</p><a href=\"{{ .ConfirmationURL }}\">x</a>".into()),
            body_file: None,
        };
        settings.email.templates.insert(portico_mail::MailKind::Confirmation, template);
    })
    .await;
    let name = "<script>alert(1)</script>\r\nBcc: eve@example.com";
    let body = json!({"email": "a@example.com", "password": "correct-horse", "data": {"name": name}});
    t.post("/auth/v1/signup").json(&body).send().await.expect(200);
    let mail = t.mail_to("a@example.com").await;
    assert!(!mail.html().contains("<script>"));
    assert!(!mail.subject().as_str().contains(['\r', '\n']));
    assert_eq!(mail.headers().count(), 0);
}

#[tokio::test]
async fn unknown_paths_and_methods() {
    let t = TestServer::start().await;
    let missing = t.get("/auth/v1/nothing").send().await.expect(404);
    assert!(missing.text().starts_with("404 page not found"));
    let method = t.delete("/auth/v1/signup").send().await.expect(405);
    assert!(method.body.is_empty());
}

#[tokio::test]
async fn information() {
    let t = TestServer::start().await;
    let health = t.get("/auth/v1/health").send().await.expect(200).json();
    assert_eq!(health["name"], "GoTrue");
    let settings = t.get("/auth/v1/settings").send().await.expect(200).json();
    assert_eq!((&settings["external"]["email"], &settings["external"]["github"]), (&json!(true), &json!(false)));
    assert_eq!(settings["mailer_autoconfirm"], false);
}
