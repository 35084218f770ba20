//! Malformed and malicious input.

use portico_testkit::TestServer;
use serde_json::json;

use crate::bad_input::all_rows;

#[tokio::test]
async fn bodies_that_are_not_json_objects_are_rejected() {
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
            let response = t.post(&format!("/auth/v1/{path}")).body(body.to_vec()).send().await;
            assert_eq!(response.rejection(), (400, "bad_json".into()), "{path} {response:?}");
        }
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
}

#[tokio::test]
async fn a_body_is_read_with_any_content_type() {
    let t = TestServer::start().await;
    let body = json!({"email": "a@example.com", "password": "correct-horse"}).to_string();
    t.post("/auth/v1/signup").header("content-type", "text/plain").body(body).send().await.expect(200);
}

#[tokio::test]
async fn a_body_over_one_mebibyte_is_rejected() {
    let t = TestServer::start().await;
    let body = format!(r#"{{"email":"{}"}}"#, "a".repeat(1_100_000));
    let response = t.post("/auth/v1/signup").body(body).send().await.expect(413);
    assert_eq!(response.rejection().1, "request_entity_too_large");
}

#[tokio::test]
async fn addresses_that_inject_headers_are_rejected() {
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
            let response = t.post(&format!("/auth/v1/{path}")).json(&body).send().await;
            assert_eq!(response.rejection(), (400, "validation_failed".into()), "{path} {address:?}");
        }
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    assert!(t.mails().is_empty());
}

#[tokio::test]
async fn user_input_stays_text_in_mails() {
    let t = TestServer::with_auth(|settings| {
        let template = portico_auth::settings::TemplateSettings {
            subject: Some("Hello {{ .Data.name }}".into()),
            body: Some("<p>{{ .Data.name }}</p><a href=\"{{ .ConfirmationURL }}\">x</a>".into()),
            ..Default::default()
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
async fn unknown_paths_and_methods_are_rejected() {
    let t = TestServer::start().await;
    let missing = t.get("/auth/v1/nothing").send().await.expect(404);
    assert!(missing.text().starts_with("404 page not found"));
    let method = t.delete("/auth/v1/signup").send().await.expect(405);
    assert!(method.body.is_empty());
}

#[tokio::test]
async fn health_and_settings_are_public() {
    let t = TestServer::start().await;
    let health = t.get("/auth/v1/health").send().await.expect(200).json();
    assert_eq!(health["name"], "GoTrue");
    let settings = t.get("/auth/v1/settings").send().await.expect(200).json();
    assert_eq!((&settings["external"]["email"], &settings["external"]["github"]), (&json!(true), &json!(false)));
    assert_eq!(settings["mailer_autoconfirm"], false);
}

/// Method, path, body, and the expected error.
type Sent<'a> = (&'a str, &'a str, Vec<u8>, (u16, &'a str));

#[tokio::test]
async fn rejected_requests_store_nothing() {
    let t = TestServer::with_auth(|settings| {
        settings.sms.enabled = true;
        settings.anonymous_users = true;
    })
    .await;
    let tokens = t.signed_in("ada@example.com", "correct-horse").await;
    let bearer = tokens["access_token"].as_str().unwrap();
    let large = json!({"a": "x".repeat(1_000_000)});
    let deep = format!(r#"{{"data":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000));
    let before = all_rows(&t).await;
    let mails = t.mails().len();

    let mut bodies = Vec::new();
    for address in
        ["a@example.com\r\nBcc: eve@example.com", "a\u{7f}@example.com", "ad\u{0430}@example.com", "a@b\u{200d}.org"]
    {
        bodies.extend([
            ("POST", "signup", json!({"email": address, "password": "correct-horse"}), (400, "validation_failed")),
            ("POST", "otp", json!({"email": address}), (400, "validation_failed")),
            ("POST", "otp", json!({"email": address, "create_user": false}), (422, "otp_disabled")),
            ("POST", "magiclink", json!({"email": address}), (400, "validation_failed")),
            ("POST", "recover", json!({"email": address}), (400, "validation_failed")),
            ("POST", "resend", json!({"type": "signup", "email": address}), (400, "validation_failed")),
            ("POST", "resend", json!({"type": "email_change", "email": address}), (400, "validation_failed")),
            ("POST", "verify", json!({"type": "email", "email": address, "token": "1"}), (422, "validation_failed")),
            (
                "POST",
                "token?grant_type=password",
                json!({"email": address, "password": "x"}),
                (400, "invalid_credentials"),
            ),
            ("PUT", "user", json!({"email": address}), (400, "validation_failed")),
        ]);
    }
    for phone in ["1555000\r\n1111", "+1555\u{200b}0001111", "१५५५०००११११", "1555000111111111", "0155500011"]
    {
        bodies.extend([
            ("POST", "signup", json!({"phone": phone, "password": "correct-horse"}), (400, "validation_failed")),
            ("POST", "otp", json!({"phone": phone}), (400, "validation_failed")),
            ("POST", "resend", json!({"type": "sms", "phone": phone}), (400, "validation_failed")),
            ("POST", "verify", json!({"type": "sms", "phone": phone, "token": "1"}), (400, "validation_failed")),
            ("PUT", "user", json!({"phone": phone}), (400, "validation_failed")),
        ]);
    }
    let too_large = (422, "validation_failed");
    bodies.extend([
        ("POST", "signup", json!({"data": large}), too_large),
        ("POST", "signup", json!({"email": "a@example.com", "password": "correct-horse", "data": large}), too_large),
        ("POST", "signup", json!({"phone": "15550001111", "password": "correct-horse", "data": large}), too_large),
        ("POST", "otp", json!({"email": "a@example.com", "data": large}), too_large),
        ("POST", "otp", json!({"phone": "15550001111", "data": large}), too_large),
        ("POST", "magiclink", json!({"email": "a@example.com", "data": large}), too_large),
        ("PUT", "user", json!({"data": large}), too_large),
    ]);
    let mut sent: Vec<Sent<'_>> = bodies
        .into_iter()
        .map(|(method, path, body, refusal)| (method, path, body.to_string().into(), refusal))
        .collect();
    for path in ["signup", "otp", "magiclink", "recover", "resend", "verify", "token?grant_type=password"] {
        sent.push(("POST", path, deep.clone().into(), (400, "bad_json")));
        sent.push(("POST", path, br#"{"email":"\ud800@example.com"}"#.to_vec(), (400, "bad_json")));
        sent.push(("POST", path, vec![b' '; 1_100_000], (413, "request_entity_too_large")));
    }
    sent.push(("PUT", "user", deep.into(), (400, "bad_json")));
    for (method, path, body, refusal) in sent {
        let request = t.request(method.parse().unwrap(), &format!("/auth/v1/{path}")).bearer(bearer);
        let shown = String::from_utf8_lossy(&body[..body.len().min(100)]).into_owned();
        let response = request.body(body).send().await;
        assert_eq!(response.rejection(), (refusal.0, refusal.1.to_owned()), "{method} {path} {shown} {response:?}");
    }
    assert_eq!(all_rows(&t).await, before);
    assert_eq!(t.mails().len(), mails);
}

#[tokio::test]
async fn a_target_with_line_breaks_redirects_to_the_site() {
    let t = TestServer::with_auth(|settings| settings.site_url = "https://app.example.com".into()).await;
    for (number, target) in [
        "https://app.example.com/%0d%0aSet-Cookie:%20a=b",
        "https://app.example.com/\r\nSet-Cookie: a=b",
        "https://app.example.com\r\n.evil.example",
        "https://app.example.com/\u{0}",
        "https://app.example.com\\@evil.example/",
    ]
    .iter()
    .enumerate()
    {
        let address = format!("a{number}@example.com");
        let encoded: String = form_urlencoded::byte_serialize(target.as_bytes()).collect();
        let body = json!({"email": address, "password": "correct-horse"});
        t.post(&format!("/auth/v1/signup?redirect_to={encoded}")).json(&body).send().await.expect(200);
        let mail = t.mail_to(&address).await;
        let landed = t.get(portico_testkit::link_in(mail.html()).as_str()).send().await.expect(303);
        assert!(landed.header("set-cookie").is_none());
        let location = landed.header("location").unwrap();
        assert!(!location.contains(['\r', '\n', '\0', '\\']), "{location}");
        assert_eq!(landed.location().host_str(), Some("app.example.com"), "{location}");
        // Also at the end of a link that is not valid
        let link = format!("/auth/v1/verify?type=signup&token=abc&redirect_to={encoded}");
        let landed = t.get(&link).send().await.expect(303);
        assert_eq!(landed.location().host_str(), Some("app.example.com"));
        let authorize = format!("/auth/v1/authorize?provider=google&redirect_to={encoded}");
        let response = t.get(&authorize).send().await;
        assert!([302, 303, 400].contains(&response.status), "{response:?}");
    }
}
