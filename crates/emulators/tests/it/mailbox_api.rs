use portico_emulators::{MailboxEvent, MailboxLimits};
use serde_json::{Value, json};

use crate::support::{MailboxServer, email, mailbox, within};

async fn filled() -> MailboxServer {
    let server = mailbox(MailboxLimits::default()).await;
    let transport = server.mailbox.transport();
    for (to, subject, html) in [
        (
            "ann@example.com",
            "Confirm your email address",
            "<p>Your code</p><p>246813</p><a href=\"https://x.example/?a=1&amp;b=2\">go</a>",
        ),
        ("bob@example.com", "Reset your password", "<p>Hello Bob, the brown fox</p>"),
        ("ann@example.com", "Your sign-in link", "<p>Welcome back</p>"),
    ] {
        transport.send(email(to, subject, html)).await.unwrap();
    }
    server
}

fn subjects(list: &Value) -> Vec<&str> {
    list["messages"].as_array().unwrap().iter().map(|message| message["Subject"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_mail_is_listed_and_read_in_mailpits_words() {
    let server = filled().await;
    let list = server.get("/api/v1/messages").await;
    assert_eq!(subjects(&list), ["Your sign-in link", "Reset your password", "Confirm your email address"]);
    assert_eq!(
        (list["total"].as_u64(), list["unread"].as_u64(), list["count"].as_u64(), list["messages_count"].as_u64()),
        (Some(3), Some(3), Some(3), Some(3))
    );
    let summary = &list["messages"][2];
    assert_eq!(summary["From"], json!({"Name": "Shop", "Address": "shop@example.com"}));
    assert_eq!(summary["To"], json!([{"Name": "", "Address": "ann@example.com"}]));
    assert_eq!(summary["Read"], false);
    assert_eq!(summary["Snippet"], "Your code 246813 go (https://x.example/?a=1&b=2)");
    assert!(summary["Created"].as_str().unwrap().ends_with('Z') && summary["Size"].as_u64().unwrap() > 100);

    let id = summary["ID"].as_str().unwrap();
    let message = server.get(&format!("/api/v1/message/{id}")).await;
    assert_eq!(message["Subject"], "Confirm your email address");
    assert!(message["HTML"].as_str().unwrap().contains("<p>246813</p>"));
    assert!(message["Text"].as_str().unwrap().contains("246813"));
    assert_eq!(message["ReturnPath"], "shop@example.com");
    assert_eq!((&message["Bcc"], &message["Attachments"], &message["Inline"]), (&json!([]), &json!([]), &json!([])));
    assert!(!message["MessageID"].as_str().unwrap().starts_with('<'));
    assert_eq!(server.get("/api/v1/messages").await["unread"], 2, "what was read is no longer unread");

    assert_eq!(server.get("/api/v1/message/latest").await["Subject"], "Your sign-in link");
    let headers = server.get(&format!("/api/v1/message/{id}/headers")).await;
    assert_eq!(headers["Subject"], json!(["Confirm your email address"]));
    assert_eq!(headers["Message-Id"].as_array().unwrap().len(), 1);
    let (status, raw) = server.text(&format!("/api/v1/message/{id}/raw")).await;
    assert!(status == 200 && raw.contains("Subject: Confirm your email address\r\n"));
    assert_eq!(server.text(&format!("/view/{id}.txt")).await.0, 200);
    let view = server.client.get(format!("{}/view/latest.html", server.url)).send().await.unwrap();
    assert!(view.headers()["content-security-policy"].to_str().unwrap().starts_with("sandbox"));
    assert!(view.text().await.unwrap().contains("Welcome back"));
    for path in
        ["/api/v1/message/none", "/api/v1/message/none/raw", "/view/none.html", "/api/v1/message/latest/part/99", "/x"]
    {
        assert_eq!(server.text(path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn lists_come_in_pages() {
    let server = filled().await;
    assert_eq!(subjects(&server.get("/api/v1/messages?limit=1").await), ["Your sign-in link"]);
    let page = server.get("/api/v1/messages?start=1&limit=1").await;
    assert_eq!(subjects(&page), ["Reset your password"]);
    assert_eq!(
        (page["start"].as_u64(), page["count"].as_u64(), page["messages_count"].as_u64()),
        (Some(1), Some(1), Some(3))
    );
    assert_eq!(subjects(&server.get("/api/v1/messages?start=x&limit=-1").await).len(), 3);
    assert!(subjects(&server.get("/api/v1/messages?start=99").await).is_empty());
}

#[tokio::test]
async fn searches_find_by_field_word_and_time() {
    let server = filled().await;
    let table = [
        ("to:ann@example.com", 2),
        ("to:\"ann@example.com\"", 2),
        ("-to:ann@example.com", 1),
        ("!to:ann@example.com", 1),
        ("from:shop", 3),
        ("subject:\"reset your\"", 1),
        ("subject:RESET to:bob", 1),
        ("\"brown fox\"", 1),
        ("brown -fox", 0),
        ("246813", 1),
        ("to:ann subject:link", 1),
        ("addressed:bob@example.com", 1),
        ("cc:ann", 0),
        ("is:unread", 3),
        ("is:read", 0),
        ("is:nonsense", 0),
        ("has:attachment", 0),
        ("larger:1", 3),
        ("smaller:1k", 3),
        ("smaller:20", 0),
        ("after:2020-01-01", 3),
        ("before:2020/01/01", 0),
        ("before:2999-01-01T12:30:00Z", 3),
        ("before:nonsense", 0),
        ("http://nothing", 0),
    ];
    for (query, expected) in table {
        let response =
            server.client.get(format!("{}/api/v1/search", server.url)).query(&[("query", query)]).send().await.unwrap();
        let found: Value = response.json().await.unwrap();
        assert_eq!(found["messages_count"], expected, "{query}");
        assert_eq!(found["total"], 3);
    }
    assert_eq!(server.text("/api/v1/search?query=").await.0, 400);
    assert_eq!(server.text("/api/v1/search").await.0, 400);
}

#[tokio::test]
async fn messages_are_deleted_marked_and_tagged() {
    let server = filled().await;
    let url = |path: &str| format!("{}{path}", server.url);
    let ids: Vec<String> = server.mailbox.messages().iter().map(|mail| mail.id.clone()).collect();

    let put = server.client.put(url("/api/v1/messages")).body(json!({"IDs": [ids[0]], "Read": true}).to_string());
    assert_eq!(put.send().await.unwrap().text().await.unwrap(), "ok");
    assert_eq!(server.get("/api/v1/messages").await["unread"], 2);
    server.client.put(url("/api/v1/messages")).json(&json!({"Read": true})).send().await.unwrap();
    assert_eq!(server.get("/api/v1/messages").await["unread"], 0);

    let tags = json!({"IDs": [ids[1]], "Tags": ["urgent", " Urgent ", "<b>x"]});
    server.client.put(url("/api/v1/tags")).json(&tags).send().await.unwrap();
    assert_eq!(server.get("/api/v1/tags").await, json!(["bx", "urgent"]));
    assert_eq!(server.get("/api/v1/search?query=tag:urgent").await["messages_count"], 1);
    server.client.delete(url("/api/v1/tags/bx")).send().await.unwrap();
    server.client.put(url("/api/v1/tags/urgent")).json(&json!({"Name": "later"})).send().await.unwrap();
    assert_eq!(server.get("/api/v1/tags").await, json!(["later"]));

    let wrong = server.client.delete(url("/api/v1/messages")).body("{\"IDs\": 5}").send().await.unwrap();
    assert_eq!(wrong.status(), 400);
    assert_eq!(server.mailbox.messages().len(), 3, "a request that is not understood deletes nothing");
    server.client.delete(url("/api/v1/messages")).json(&json!({"IDs": [ids[0]]})).send().await.unwrap();
    assert_eq!(server.mailbox.messages().len(), 2);
    assert_eq!(server.client.delete(url("/api/v1/search")).send().await.unwrap().status(), 400);
    server.client.delete(url("/api/v1/search?query=to:bob")).send().await.unwrap();
    assert_eq!(server.mailbox.messages().len(), 1);
    server.client.delete(url("/api/v1/messages")).send().await.unwrap();
    let info = server.get("/api/v1/info").await;
    assert_eq!((info["Messages"].as_u64(), info["RuntimeStats"]["MessagesDeleted"].as_u64()), (Some(0), Some(3)));
}

#[tokio::test]
async fn an_event_reports_each_message_that_arrives() {
    let server = mailbox(MailboxLimits::default()).await;
    let mut response = server.client.get(format!("{}/api/v1/events", server.url)).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    server.mailbox.transport().send(email("ann@example.com", "Hi", "x")).await.unwrap();
    server.mailbox.capture_text("+41790000000", "Your code is 135790", "twilio");
    let mut received = String::new();
    within(async {
        while !received.contains("event: text") {
            received.push_str(&String::from_utf8_lossy(&response.chunk().await.unwrap().unwrap()));
        }
    })
    .await;
    assert!(received.contains("event: mail") && received.contains("\"Subject\":\"Hi\""), "{received}");
}

#[tokio::test]
async fn text_messages_are_listed_apart() {
    let server = mailbox(MailboxLimits { messages: 2, ..MailboxLimits::default() }).await;
    for number in 1..=3 {
        server.mailbox.capture_text("+41790000000", &format!("Your code is 00000{number}"), "twilio");
    }
    let texts = server.get("/portico/v1/texts").await;
    let bodies: Vec<&str> =
        texts["texts"].as_array().unwrap().iter().map(|text| text["body"].as_str().unwrap()).collect();
    assert_eq!(bodies, ["Your code is 000003", "Your code is 000002"]);
    assert_eq!(server.mailbox.texts()[0].code(), Some("000003"));
    assert_eq!(server.get("/api/v1/messages").await["total"], 0);
    server.client.delete(format!("{}/portico/v1/texts", server.url)).send().await.unwrap();
    assert!(server.mailbox.texts().is_empty());
}

#[tokio::test]
async fn pages_of_this_machine_and_of_the_projects_site_may_read() {
    let server = mailbox(MailboxLimits::default()).await;
    for origin in
        ["http://localhost:3000", "http://127.0.0.1:54321", "http://app.localhost", "https://shop.example.com"]
    {
        let preflight = server
            .client
            .request(reqwest::Method::OPTIONS, format!("{}/api/v1/messages", server.url))
            .header("origin", origin)
            .header("access-control-request-method", "DELETE")
            .send()
            .await
            .unwrap();
        assert_eq!(preflight.status(), 204, "{origin}");
        assert_eq!(preflight.headers()["access-control-allow-origin"], origin);
        assert!(preflight.headers()["access-control-allow-methods"].to_str().unwrap().contains("DELETE"));
        let read =
            server.client.get(format!("{}/api/v1/messages", server.url)).header("origin", origin).send().await.unwrap();
        assert_eq!(
            (read.status().as_u16(), &read.headers()["access-control-allow-origin"]),
            (200, &origin.parse().unwrap())
        );
        assert_eq!(read.headers()["vary"], "Origin");
    }
    let program = server.client.get(format!("{}/api/v1/messages", server.url)).send().await.unwrap();
    assert_eq!(program.status(), 200);
    assert!(!program.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn pages_of_other_websites_never_read() {
    let server = filled().await;
    for path in
        ["/api/v1/messages", "/api/v1/message/latest", "/api/v1/events", "/view/latest.html", "/portico/v1/texts"]
    {
        for (header, value) in [
            ("origin", "https://evil.example"),
            ("origin", "http://shop.example.com"),
            ("origin", "null"),
            // A name of theirs that leads here: to its pages, the mailbox is of their own origin
            ("host", "evil.example"),
            ("host", "localhost.evil.example:54324"),
        ] {
            let answer = server.client.get(format!("{}{path}", server.url)).header(header, value).send().await.unwrap();
            assert_eq!(answer.status(), 403, "{path} for {header} {value}");
            assert!(!answer.headers().contains_key("access-control-allow-origin"));
        }
    }
    let deletion =
        server.client.delete(format!("{}/api/v1/messages", server.url)).header("origin", "https://evil.example");
    assert_eq!(deletion.send().await.unwrap().status(), 403);
    assert_eq!(server.mailbox.messages().len(), 3);
    for host in ["localhost:54324", "[::1]:54324", "Mail.Localhost", "shop.example.com"] {
        let answer =
            server.client.get(format!("{}/api/v1/messages", server.url)).header("host", host).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{host}");
    }
}

#[tokio::test]
async fn the_oldest_mails_make_place() {
    let server = mailbox(MailboxLimits { messages: 2, bytes: 1 << 20, message_bytes: 200_000 }).await;
    let transport = server.mailbox.transport();
    for subject in ["one", "two", "three"] {
        transport.send(email("ann@example.com", subject, "x")).await.unwrap();
    }
    let kept =
        |server: &MailboxServer| server.mailbox.messages().iter().map(|mail| mail.subject.clone()).collect::<Vec<_>>();
    assert_eq!(kept(&server), ["three", "two"]);
    assert!(transport.send(email("ann@example.com", "huge", &"x".repeat(300_000))).await.is_err());

    let server = mailbox(MailboxLimits { messages: 100, bytes: 300_000, message_bytes: 200_000 }).await;
    for subject in ["one", "two", "three", "four"] {
        server.mailbox.transport().send(email("ann@example.com", subject, &"word ".repeat(8_000))).await.unwrap();
    }
    assert_eq!(kept(&server)[0], "four");
    assert!(kept(&server).len() < 4);
}

#[tokio::test]
async fn waiting_ends_with_the_mail_that_was_meant() {
    let server = mailbox(MailboxLimits::default()).await;
    let waiting = tokio::spawn({
        let mailbox = server.mailbox.clone();
        async move { mailbox.wait_for(|mail| mail.is_to("Ann@Example.com")).await }
    });
    let mut events = server.mailbox.subscribe();
    let transport = server.mailbox.transport();
    transport.send(email("bob@example.com", "not this", "x")).await.unwrap();
    transport
        .send(email(
            "ann@example.com",
            "this",
            "<p>Code</p><p>246813</p><a href=\"https://x.example/?a=1&amp;b=2\">go</a>",
        ))
        .await
        .unwrap();
    let mail = within(waiting).await.unwrap();
    assert_eq!(mail.subject, "this");
    assert_eq!(mail.code(), Some("246813"));
    assert_eq!(mail.link().as_deref(), Some("https://x.example/?a=1&b=2"));
    assert!(matches!(within(events.recv()).await.unwrap(), MailboxEvent::Mail(_)));
    server.mailbox.clear();
    assert!(server.mailbox.messages().is_empty());
}
