use portico_mail::{Address, Email, HeaderLine, Sender, compose, plain_text};
use proptest::prelude::*;

fn email(subject: &str, name: &str, html: &str) -> Email {
    let sender = Sender::new(name, Address::parse("no-reply@bücher.example").unwrap());
    Email::new(sender, Address::parse("ann@example.com").unwrap(), HeaderLine::flatten(subject), html)
}

fn composed(email: &Email) -> String {
    String::from_utf8(compose(email).unwrap()).unwrap()
}

#[test]
fn a_message_has_both_parts_a_date_and_an_identifier() {
    let mail =
        email("Grüße, und mehr", "Zoë's shop", "<p>Hello <a href=\"https://x.example/?a=1&amp;b=2\">there</a></p>")
            .with_id("6f1a")
            .with_header("X-Tag", "a")
            .unwrap()
            .with_header("X-Tag", "b ü")
            .unwrap();
    let text = composed(&mail);
    for expected in [
        "Message-ID: <6f1a@xn--bcher-kva.example>\r\n",
        "Date: ",
        "To: ann@example.com\r\n",
        "MIME-Version: 1.0\r\n",
        "X-Tag: a\r\n",
        "Auto-Submitted: auto-generated\r\n",
        "Content-Type: multipart/alternative;",
        "Content-Type: text/plain; charset=utf-8\r\n",
        "Content-Type: text/html; charset=utf-8\r\n",
        "Hello there (https://x.example/?a=1&b=2)",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
    assert_eq!(text.matches("X-Tag: ").count(), 2);
    let head = text.split("\r\n\r\n").next().unwrap();
    assert!(head.is_ascii(), "{head}");
    assert_ne!(composed(&email("a", "", "b")), composed(&email("a", "", "b")), "identifiers differ");
}

#[test]
fn nothing_that_a_person_types_adds_a_header() {
    let mail = email("Hi\r\nBcc: eve@example.com\r\n\r\nbody", "Eve\r\nBcc: eve@example.com", "x");
    let text = composed(&mail);
    let head = text.split("\r\n\r\n").next().unwrap();
    assert!(!head.lines().any(|line| line.to_ascii_lowercase().starts_with("bcc")), "{head}");
}

#[test]
fn html_becomes_readable_text() {
    let table = [
        ("<p>one<br>two</p><p>three</p>", "one\ntwo\n\nthree\n"),
        ("<h1>Title</h1>\n  <p>a\n b</p>", "Title\n\na b\n"),
        ("<ul><li>a</li><li>b</li></ul>", "- a\n- b\n"),
        ("<a href=\"https://a.b/c\">here</a>.", "here (https://a.b/c).\n"),
        ("<a href='https://a.b/c'>https://a.b/c</a>", "https://a.b/c\n"),
        ("<a href=mailto:x@y.ch>x@y.ch</a>", "x@y.ch\n"),
        ("<style>p{}</style><script>x<y</script><title>t</title>text", "text\n"),
        ("<div style=\"display: none\">hidden <div>deep</div></div>shown", "shown\n"),
        ("<!-- no -->1 &lt; 2 &amp; 3 &#8364; &copy; &unknown; <3", "1 < 2 & 3 € © &unknown; <3\n"),
        ("<img src=x alt=\"A picture\"> <img src=y>", "A picture\n"),
        ("<p title=\"a > b\">x</p>", "x\n"),
        ("<pre>a\n  b</pre>", "a\n  b\n"),
        ("", ""),
        ("<a href=\"x", ""),
    ];
    for (html, expected) in table {
        assert_eq!(plain_text(html), expected, "{html}");
    }
}

proptest! {
    #[test]
    fn any_html_has_a_text(html in "(<|>|</|&|;|=|\"|'|!--|-->|style|a href|pre|\\PC){0,60}") {
        let _ = plain_text(&html);
    }

    #[test]
    fn plain_text_keeps_the_words(words in "[a-z]{1,8}( [a-z]{1,8}){0,9}") {
        prop_assert_eq!(plain_text(&format!("<p>{words}</p>")), format!("{words}\n"));
    }
}
