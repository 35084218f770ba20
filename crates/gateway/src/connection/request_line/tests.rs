use proptest::prelude::*;

use super::*;
use BodyLength::{Chunked, Known};

fn lines<S>(stream: S) -> (RequestLines<S>, Arc<Calls>) {
    let calls = Arc::<Calls>::default();
    (RequestLines::new(stream, Arc::clone(&calls), Instant::now(), (Duration::from_secs(60), Duration::MAX)), calls)
}

impl RequestLines<()> {
    /// Returns what is passed on when these bytes come; the rest waits for a report.
    fn feed(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut left = [&self.ahead[..], piece].concat();
        let mut out = Vec::new();
        self.ahead = Bytes::new();
        loop {
            self.ahead = Bytes::from(left);
            if self.ahead.is_empty() || !self.settle() || self.position == Position::Broken {
                return out;
            }
            let bytes = std::mem::take(&mut self.ahead);
            let (end, changed) = self.pass(&bytes);
            out.extend(changed.unwrap_or_else(|| bytes[..end].to_vec()));
            left = bytes[end..].to_vec();
        }
    }
}

/// Returns the output for bytes that come in these pieces; `reports` are the bodies that the HTTP
/// library reports before it asks for each piece.
fn through(pieces: &[&[u8]], reports: &[Option<BodyLength>]) -> String {
    let (mut lines, calls) = lines(());
    let mut out = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        if let Some(Some(body)) = reports.get(at) {
            calls.begins(*body, false);
        }
        out.extend(lines.feed(piece));
    }
    String::from_utf8(out).unwrap()
}

const RAW: &[u8] = b"GET /a?b=\"<>` HTTP/1.1\r\nx: \"<>`\r\n\r\n";
const DONE: &str = "GET /a?b=%22%3C%3E%60 HTTP/1.1\r\nx: \"<>`\r\n\r\n";

#[test]
fn only_the_target_changes() {
    assert_eq!(through(&[RAW], &[]), DONE);
    assert_eq!(through(&[b"\r\n\r\n", RAW], &[]), format!("\r\n\r\n{DONE}"));
    // A backtick may stand in a method
    assert_eq!(through(&[b"A` /` \"\r\n<:>\r\n\r\n"], &[]), "A` /%60 \"\r\n<:>\r\n\r\n");
    // Not a path
    for line in ["CONNECT a\"b:1 HTTP/1.1\r\n", "GET http://a<b/> HTTP/1.1\r\n", "GET  /> HTTP/1.1\r\n"] {
        assert_eq!(through(&[line.as_bytes()], &[]), line);
    }
    // Not a request
    for line in ["\"GET /> HTTP/1.1\r\n\r\n", "GET\t/> HTTP/1.1\r\n\r\n", "<GET /> HTTP/1.1\r\n\r\n"] {
        assert_eq!(through(&[line.as_bytes(), RAW], &[]), format!("{line}{}", RAW.as_utf8()));
    }
}

#[test]
fn of_a_target_beyond_the_limit_as_much_is_passed_on_as_shows_it() {
    let rest = " HTTP/1.1\r\nx: y\r\n\r\n";
    let fits = format!("GET /{}{rest}", "x".repeat(LONGEST_TARGET - 1));
    assert_eq!(through(&[fits.as_bytes()], &[]), fits);
    for (character, encoded) in [("x", "x"), ("<", "%3C")] {
        let long = format!("GET /{}{rest}", character.repeat(300_000));
        let (head, tail) = long.as_bytes().split_at(200_000);
        let passed = through(&[head, &tail[..50_000], &tail[50_000..]], &[]);
        let target = passed.strip_prefix("GET ").and_then(|passed| passed.strip_suffix(rest)).unwrap();
        assert!((LONGEST_TARGET + 1..LONGEST_TARGET + 4).contains(&target.len()), "{}", target.len());
        assert_eq!(target, &format!("/{}", encoded.repeat(30_000 * 3))[..target.len()]);
    }
}

#[test]
fn the_next_request_begins_where_the_library_says_the_last_one_ends() {
    assert_eq!(through(&[RAW, RAW], &[None, Some(Known(0))]), format!("{DONE}{DONE}"));
    let post = [&b"POST /> HTTP/1.1\r\ncontent-length: 6\r\n\r\n\">"[..], b"GET ", b"/>", RAW];
    let reports = [None, Some(Known(8)), None, None];
    assert_eq!(through(&post, &reports), format!("POST /%3E HTTP/1.1\r\ncontent-length: 6\r\n\r\n\">GET />{DONE}"));
    // With the end of a body comes the next request
    let post = [&b"POST /> HTTP/1.1\r\n\r\n"[..], b"\"\">>GET /> HTTP/1.1\r\n\r\n", RAW];
    let reports = [None, Some(Known(4)), Some(Known(0))];
    assert_eq!(through(&post, &reports), format!("POST /%3E HTTP/1.1\r\n\r\n\"\">>GET /%3E HTTP/1.1\r\n\r\n{DONE}"));
    // Also of one in chunks
    let post = [&b"POST /> HTTP/1.1\r\n\r\n"[..], b"7\r\nGET />>\r", b"\n0\r\n\r\nGET /> HTTP/1.1\r\n\r\n"];
    let reports = [None, Some(Chunked), None];
    assert_eq!(
        through(&post, &reports),
        "POST /%3E HTTP/1.1\r\n\r\n7\r\nGET />>\r\n0\r\n\r\nGET /%3E HTTP/1.1\r\n\r\n"
    );
}

#[test]
fn the_end_of_a_request_is_never_guessed() {
    // Nothing passes behind a head before the library has said what it is, whether it came with the
    // head or later. The third request here begins with the body of the second
    let two = [RAW, RAW].concat();
    assert_eq!(through(&[&two], &[]), DONE);
    assert_eq!(through(&[RAW, RAW], &[]), DONE);
    assert_eq!(through(&[&two, RAW, b"x"], &[None, Some(Known(0)), Some(Known(1))]), format!("{DONE}{DONE}{DONE}"));
    // A malformed chunked body ends the connection
    assert_eq!(through(&[RAW, b"3\n", RAW], &[None, Some(Chunked), None]), DONE);
}

#[test]
fn a_bare_line_feed_makes_the_library_reject_the_head() {
    for (head, passed) in [
        ("GET / HTTP/1.1\nx: y\r\n\r\n", "GET / HTTP/1.1\0x: y\r\n\r\n"),
        ("GET /\n\n", "GET /\0\n"),
        ("GET / HTTP/1.1\r\nx: y\n\r\n", "GET / HTTP/1.1\r\nx: y\0\r\n"),
        ("GET / HTTP/1.1\r\nx\ny: z\r\n\r\n", "GET / HTTP/1.1\r\nx\0y: z\r\n\r\n"),
        ("GET / HTTP/1.1\r\nx: y\r\n\n", "GET / HTTP/1.1\r\nx: y\r\n\0"),
        ("\nGET / HTTP/1.1\r\n\r\n", "\0GET / HTTP/1.1\r\n\r\n"),
    ] {
        let pieces: Vec<_> = head.as_bytes().chunks(1).collect();
        for pieces in [&[head.as_bytes()][..], &pieces] {
            let out = through(pieces, &[]);
            assert_eq!(out, passed, "{head:?}");
            let mut headers = [httparse::EMPTY_HEADER; 32];
            assert!(httparse::Request::new(&mut headers).parse(out.as_bytes()).is_err(), "{head:?}");
        }
        // Behind every kind of body
        for (body, bytes) in [(Known(0), &b""[..]), (Known(2), b"\n\n"), (Chunked, b"1\r\n\n\r\n0\r\n\r\n")] {
            let out = through(&[RAW, bytes, head.as_bytes()], &[None, Some(body), None]);
            assert_eq!(out, format!("{DONE}{}{passed}", bytes.as_utf8()), "{head:?}");
        }
    }
}

#[test]
fn an_upgrade_is_decided_before_more_is_looked_at() {
    for (is_granted, expected) in [(true, RAW.as_utf8()), (false, DONE)] {
        for body in [0, 3] {
            let (mut lines, calls) = lines(());
            assert_eq!(lines.feed(RAW).as_utf8(), DONE);
            let _in_flight = calls.begins(Known(body), true);
            let sent = [&b"\">\n"[..usize::try_from(body).unwrap()], RAW].concat();
            assert_eq!(lines.feed(&sent).len() as u64, body);
            calls.decide_upgrade(is_granted);
            assert_eq!(lines.feed(b"").as_utf8(), expected);
        }
    }
}

#[test]
fn a_connection_stands_for_what_has_arrived_on_it() {
    let (mut lines, calls) = lines(());
    assert_eq!(calls.standing(), ConnectionStanding::Unfinished);
    lines.feed(&RAW[..10]);
    assert_eq!(calls.standing(), ConnectionStanding::Unfinished);
    lines.feed(&RAW[10..]);
    let in_flight = calls.begins(Known(0), false);
    assert_eq!(calls.standing(), ConnectionStanding::Busy);
    drop(in_flight);
    assert_eq!((calls.standing(), calls.at_rest()), (ConnectionStanding::Idle, Some(1)));
    calls.set_blocked(true);
    assert_eq!((calls.standing(), calls.at_rest()), (ConnectionStanding::Busy, None));
    calls.set_blocked(false);
    lines.feed(&RAW[..1]);
    assert_eq!((calls.standing(), calls.at_rest()), (ConnectionStanding::Unfinished, None));
    // A body that is still to come
    lines.feed(&RAW[1..]);
    drop(calls.begins(Known(2), false));
    assert_eq!((calls.standing(), calls.at_rest()), (ConnectionStanding::Unfinished, None));
    lines.feed(b"x");
    assert_eq!((calls.standing(), calls.at_rest()), (ConnectionStanding::Unfinished, None));
    lines.feed(b"y");
    assert_eq!((calls.standing(), calls.at_rest()), (ConnectionStanding::Idle, Some(2)));
}

#[tokio::test(start_paused = true)]
async fn a_head_has_to_arrive_in_time_however_slowly_it_goes_on() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let limit = Duration::from_secs(10);
    let second = Duration::from_secs(1);
    for first in [&b""[..], RAW] {
        let (mut client, server) = tokio::io::duplex(1024);
        let calls = Arc::<Calls>::default();
        let mut lines = RequestLines::new(server, Arc::clone(&calls), Instant::now(), (limit, Duration::MAX));
        let mut buffer = vec![0; 1024];
        if !first.is_empty() {
            // Between two requests there is no limit
            client.write_all(first).await.unwrap();
            assert_ne!(lines.read(&mut buffer).await.unwrap(), 0);
            drop(calls.begins(Known(0), false));
            assert!(tokio::time::timeout(limit * 100, lines.read(&mut buffer)).await.is_err());
        }
        let began = Instant::now();
        let trickle = async {
            for byte in b"\r\nGET / HTTP/1.1\r\n".iter().cycle().take(40) {
                client.write_all(&[*byte]).await.unwrap();
                tokio::time::sleep(second).await;
            }
        };
        let read = async { while lines.read(&mut buffer).await.is_ok() {} };
        tokio::select! {
            () = trickle => {}
            () = read => {}
        }
        assert_eq!(began.elapsed(), limit);
        assert!(lines.is_cut_off());
    }
}

trait AsUtf8 {
    fn as_utf8(&self) -> &str;
}

impl AsUtf8 for [u8] {
    fn as_utf8(&self) -> &str {
        std::str::from_utf8(self).unwrap()
    }
}

/// Pieces of heads, likely to be near what matters.
fn fragments() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        4 => prop::sample::select(vec![
            &b"GET /"[..], b"POST /a", b" HTTP/1.1\r\n", b" HTTP/1.0\n", b"\r\n", b"\n", b"\r", b" ", b"a: b\r\n", b"content-length: 3\r\n", b"\"",
            b"<", b">", b"`", b"*", b"http://x/", b":", b"%", b"\xc3\xa9",
        ]).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ];
    prop::collection::vec(fragment, 0..16).prop_map(|fragments| fragments.concat())
}

fn cut(bytes: &[u8], sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, behind) = rest.split_at((*size).min(rest.len()));
        pieces.push(piece.to_vec());
        rest = behind;
    }
    pieces
}

/// Returns the bytes with each of the four characters encoded.
fn encode(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| if is_rejected(*byte) { encoded(*byte).to_vec() } else { vec![*byte] }).collect()
}

proptest! {
    #[test]
    fn the_head_ends_where_the_library_s_parser_says(bytes in fragments()) {
        let mut position = Position::Start;
        let (end, changed) = position.follow(&bytes);
        let passed = changed.unwrap_or_else(|| bytes[..end].to_vec());
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&passed) {
            Ok(httparse::Status::Complete(whole)) => {
                prop_assert_eq!(position, Position::Behind);
                prop_assert_eq!(whole, passed.len());
            }
            Ok(httparse::Status::Partial) => {
                let is_past = matches!(position, Position::Behind | Position::Rejected);
                prop_assert!(!is_past);
            }
            // It says no more
            Err(_) => {}
        }
    }

    #[test]
    fn no_head_with_a_bare_line_feed_is_taken(bytes in fragments()) {
        let mut position = Position::Start;
        let (end, changed) = position.follow(&bytes);
        let passed = changed.unwrap_or_else(|| bytes[..end].to_vec());
        if position == Position::Behind {
            let lines = passed.split_inclusive(|byte| *byte == b'\n');
            prop_assert!(lines.into_iter().all(|line| line.ends_with(b"\r\n")));
        }
    }

    #[test]
    fn it_does_not_matter_how_the_bytes_are_cut(bytes in fragments(), sizes in prop::collection::vec(1_usize..9, 1..5)) {
        let mut whole = lines(()).0;
        let expected = whole.feed(&bytes);
        let mut in_pieces = lines(()).0;
        let out: Vec<u8> = cut(&bytes, &sizes).into_iter().flat_map(|piece| in_pieces.feed(&piece)).collect();
        prop_assert_eq!(out, expected);
        prop_assert_eq!(in_pieces.position, whole.position);
    }

    #[test]
    fn only_whole_targets_change_and_bodies_stay_as_they_were(
        requests in prop::collection::vec(("[!-~]{0,20}", "[ -~]{0,10}", prop::collection::vec(any::<u8>(), 0..40)), 1..5),
        sizes in prop::collection::vec(1_usize..30, 1..5),
    ) {
        let (mut lines, calls) = lines(());
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        for (target, value, body) in &requests {
            let rest = format!(" HTTP/1.1\r\nx: {value}\r\n\r\n").into_bytes();
            let target = format!("/{target}").into_bytes();
            for piece in cut(&[b"PUT ", &target[..], &rest].concat(), &sizes) {
                out.extend(lines.feed(&piece));
            }
            calls.begins(Known(body.len() as u64), false);
            for piece in cut(body, &sizes) {
                out.extend(lines.feed(&piece));
            }
            expected.extend([b"PUT ", &encode(&target)[..], &rest, body].concat());
        }
        prop_assert_eq!(out, expected);
    }

    #[test]
    fn readers_with_little_room_get_everything(target in "[!-~]{0,60}", room in 1_usize..20) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let head = format!("GET /{target} HTTP/1.1\r\n\r\n");
        let out = runtime.block_on(async {
            let (mut lines, calls) = lines(head.as_bytes());
            let mut out = Vec::new();
            let mut buffer = vec![0; room];
            loop {
                match tokio::io::AsyncReadExt::read(&mut lines, &mut buffer).await.unwrap() {
                    0 => break out,
                    count => out.extend_from_slice(&buffer[..count]),
                }
                if out.ends_with(b"\r\n\r\n") {
                    calls.begins(Known(0), false);
                }
            }
        });
        let expected = [b"GET ", &encode(format!("/{target}").as_bytes())[..], b" HTTP/1.1\r\n\r\n"].concat();
        prop_assert_eq!(out, expected);
    }
}
