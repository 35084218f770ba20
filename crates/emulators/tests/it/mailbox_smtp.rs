use portico_emulators::{MailboxLimits, SmtpListener};
use portico_mail::{SmtpSettings, SmtpTransport, Transport};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::support::{MailboxServer, email, mailbox, within};

async fn listening(limits: MailboxLimits) -> (MailboxServer, SmtpListener, u16) {
    let server = mailbox(limits).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let handle = server.mailbox.listen_smtp(listener);
    (server, handle, port)
}

/// Says each line, and gives the last line of each response.
async fn talk(port: u16, lines: &[&str]) -> Vec<String> {
    let mut socket = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    let mut answers = vec![answer(&mut socket).await];
    for line in lines {
        socket.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
        answers.push(answer(&mut socket).await);
    }
    answers
}

async fn answer(socket: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        within(socket.read_line(&mut line)).await.unwrap();
        if line.as_bytes().get(3) != Some(&b'-') {
            return line.trim_end().to_owned();
        }
    }
}

#[tokio::test]
async fn any_program_can_send_mail_here() {
    let (server, _listener, port) = listening(MailboxLimits::default()).await;
    let settings = SmtpSettings {
        user: Some("any".into()),
        password: Some("thing".into()),
        ..SmtpSettings::new("127.0.0.1", port)
    };
    let transport = SmtpTransport::new(&settings).unwrap();
    transport.check().await.unwrap();
    transport.send(email("ann@example.com", "Grüße", "<p>über SMTP</p>\n.\n..two")).await.unwrap();
    let mail = within(server.mailbox.wait_for(|mail| mail.is_to("ann@example.com"))).await;
    assert_eq!((mail.subject.as_str(), mail.return_path.as_str()), ("Grüße", "shop@example.com"));
    assert!(mail.html.contains("über SMTP") && mail.html.replace("\r\n", "\n").contains("\n.\n..two"), "{}", mail.html);
}

#[tokio::test]
async fn attachments_and_blind_copies_are_kept() {
    let (server, _listener, port) = listening(MailboxLimits::default()).await;
    let message = "From: a@example.com\r\nTo: b@example.com\r\nSubject: files\r\nMIME-Version: 1.0\r\n\
        X-Tags: one, two\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/plain\r\n\r\nhello\r\n\
        --x\r\nContent-Type: application/pdf; name=\"a.pdf\"\r\nContent-Disposition: attachment; filename=\"a.pdf\"\r\n\
        Content-Transfer-Encoding: base64\r\n\r\nJVBERg==\r\n--x--\r\n.";
    let answers = talk(
        port,
        &[
            "EHLO me",
            "MAIL FROM:<a@example.com> SIZE=10",
            "RCPT TO:<b@example.com>",
            "RCPT TO:<c@example.com>",
            "DATA",
            message,
            "QUIT",
        ],
    )
    .await;
    assert!(
        answers
            .iter()
            .zip(["220", "250", "250", "250", "250", "354", "250", "221"])
            .all(|(said, code)| said.starts_with(code)),
        "{answers:?}"
    );
    let message = server.get("/api/v1/message/latest").await;
    assert_eq!(message["Bcc"], json!([{"Name": "", "Address": "c@example.com"}]));
    assert_eq!(message["Tags"], json!(["one", "two"]));
    let attachment = &message["Attachments"][0];
    assert_eq!(
        (&attachment["FileName"], &attachment["ContentType"], &attachment["Size"]),
        (&json!("a.pdf"), &json!("application/pdf"), &json!(4))
    );
    let path = format!("/api/v1/message/latest/part/{}", attachment["PartID"].as_str().unwrap());
    assert_eq!(server.text(&path).await, (200, "%PDF".to_owned()));
    assert_eq!(server.get("/api/v1/search?query=has:attachment").await["messages_count"], 1);
    assert_eq!(server.get("/api/v1/messages").await["messages"][0]["Attachments"], 1);
}

#[tokio::test]
async fn commands_out_of_order_and_mails_too_large_are_rejected() {
    let (server, _listener, port) = listening(MailboxLimits { message_bytes: 1_000, ..MailboxLimits::default() }).await;
    let long = "x".repeat(5_000);
    let body = format!("{}\r\n.", "word\r\n".repeat(500));
    let answers = talk(
        port,
        &[
            "RCPT TO:<b@example.com>",
            "MAIL nonsense",
            "MAIL FROM:<>",
            "RCPT TO:<>",
            "DATA",
            &long,
            "WHAT",
            "VRFY x",
            "RSET",
            "NOOP",
            "MAIL FROM:<a@example.com>",
            "RCPT TO: b@example.com",
            "DATA",
            &body,
            "AUTH LOGIN",
            "dXNlcg==",
            "cGFzcw==",
        ],
    )
    .await;
    let codes: Vec<&str> = answers.iter().map(|answer| &answer[..3]).collect();
    assert_eq!(
        codes,
        [
            "220", "503", "501", "250", "501", "503", "500", "502", "252", "250", "250", "250", "250", "354", "552",
            "334", "334", "235"
        ]
    );
    assert!(server.mailbox.messages().is_empty());
}

#[tokio::test]
async fn commands_may_come_all_at_once() {
    let (server, _listener, port) = listening(MailboxLimits::default()).await;
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    socket
        .write_all(b"HELO x\r\nMAIL FROM:<a@b.ch>\r\nRCPT TO:<c@d.ch>\r\nDATA\r\nSubject: piped\n\nbody\n.\nQUIT\r\n")
        .await
        .unwrap();
    let mut said = String::new();
    within(socket.read_to_string(&mut said)).await.unwrap();
    assert!(said.ends_with("221 2.0.0 Bye\r\n"), "{said}");
    assert_eq!(server.mailbox.messages()[0].subject, "piped");
}

#[tokio::test]
async fn the_port_closes_with_its_handle() {
    let (_server, listener, port) = listening(MailboxLimits::default()).await;
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    drop(listener);
    let mut said = String::new();
    // Either side of the greeting, the connection ends
    let _ = within(socket.read_to_string(&mut said)).await;
    within(async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
