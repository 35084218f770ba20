use proptest::prelude::*;

use super::*;

/// A connection whose bytes come in these pieces; `told` is what the HTTP library says before it asks for each piece.
fn through(pieces: &[&[u8]], told: &[Option<Option<u64>>]) -> String {
    let (mut lines, calls) = RequestLines::new(());
    let mut out = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        if let Some(Some(body)) = told.get(at) {
            calls.begins(*body);
        }
        out.extend(lines.pass(piece).unwrap_or_else(|| piece.to_vec()));
    }
    String::from_utf8(out).unwrap()
}

const RAW: &[u8] = b"GET /a?b=\"<>` HTTP/1.1\r\nx: \"<>`\r\n\r\n";
const DONE: &str = "GET /a?b=%22%3C%3E%60 HTTP/1.1\r\nx: \"<>`\r\n\r\n";
const AS_IT_WAS: &str = "GET /a?b=\"<>` HTTP/1.1\r\nx: \"<>`\r\n\r\n";

#[test]
fn only_the_target_changes() {
    assert_eq!(through(&[RAW], &[]), DONE);
    assert_eq!(through(&[b"\r\n\n", RAW], &[]), format!("\r\n\n{DONE}"));
    // A backtick may stand in a method
    assert_eq!(through(&[b"A` /` \"\n<:>\n\n"], &[]), "A` /%60 \"\n<:>\n\n");
    // Not a path
    for line in ["CONNECT a\"b:1 HTTP/1.1\r\n", "GET http://a<b/> HTTP/1.1\r\n", "GET  /> HTTP/1.1\r\n"] {
        assert_eq!(through(&[line.as_bytes()], &[]), line);
    }
    // Not a request
    for line in ["\"GET /> HTTP/1.1\r\n\r\n", "GET\t/> HTTP/1.1\r\n\r\n", "<GET /> HTTP/1.1\r\n\r\n"] {
        assert_eq!(through(&[line.as_bytes(), RAW], &[]), format!("{line}{AS_IT_WAS}"));
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
    assert_eq!(through(&[RAW, RAW], &[None, Some(Some(0))]), format!("{DONE}{DONE}"));
    let post = [&b"POST /> HTTP/1.1\r\ncontent-length: 6\r\n\r\n\">"[..], b"GET ", b"/>", RAW];
    let told = [None, Some(Some(8)), None, None];
    assert_eq!(through(&post, &told), format!("POST /%3E HTTP/1.1\r\ncontent-length: 6\r\n\r\n\">GET />{DONE}"));
    // With the end of a body comes the next request
    let post = [&b"POST /> HTTP/1.1\r\n\r\n"[..], b"\"\">>GET /> HTTP/1.1\r\n\r\n", RAW];
    let told = [None, Some(Some(4)), Some(Some(0))];
    assert_eq!(through(&post, &told), format!("POST /%3E HTTP/1.1\r\n\r\n\"\">>GET /%3E HTTP/1.1\r\n\r\n{DONE}"));
}

#[test]
fn where_a_request_ends_is_never_guessed() {
    // The library did not say, or could not
    for told in [None, Some(None), Some(Some(u64::MAX))] {
        assert_eq!(through(&[RAW, RAW, RAW], &[None, told, Some(Some(0))]), format!("{DONE}{AS_IT_WAS}{AS_IT_WAS}"));
    }
    // Requests sent ahead
    let two = [RAW, RAW].concat();
    assert_eq!(through(&[&two, RAW], &[None, Some(Some(0))]), format!("{DONE}{AS_IT_WAS}{AS_IT_WAS}"));
}

#[test]
fn what_is_said_about_a_request_sent_ahead_is_not_taken_for_the_first_one_s() {
    let (mut lines, calls) = RequestLines::new(());
    // The second one's body is as long as what came behind the first one's head
    let ahead = b"POST /b HTTP/1.1\r\ncontent-length: 41\r\n\r\n";
    lines.pass(&[b"GET /a HTTP/1.1\r\n\r\n", &ahead[..]].concat());
    calls.begins(Some(0));
    calls.begins(Some(ahead.len() as u64));
    assert!(lines.pass(RAW).is_none());
    assert_eq!(lines.place, Place::Lost);
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

/// The bytes, with each of the four encoded.
fn encode(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| if is_refused(*byte) { encoded(*byte).to_vec() } else { vec![*byte] }).collect()
}

proptest! {
    #[test]
    fn the_head_ends_where_the_library_s_parser_says(bytes in fragments()) {
        let mut place = Place::Start;
        place.follow(&bytes);
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(end)) => {
                prop_assert_eq!(place, Place::Behind { more: (bytes.len() - end) as u64 });
            }
            Ok(httparse::Status::Partial) => {
 let is_past = matches!(place, Place::Behind { .. } | Place::Lost);
 prop_assert!(!is_past);
 }
            // It says no more
            Err(_) => {}
        }
    }

    #[test]
    fn it_does_not_matter_how_the_bytes_are_cut(bytes in fragments(), sizes in prop::collection::vec(1_usize..9, 1..5)) {
        let mut place = Place::Start;
        let whole = place.follow(&bytes).unwrap_or_else(|| bytes.clone());
        let mut in_pieces = Place::Start;
        let out: Vec<u8> = cut(&bytes, &sizes)
            .into_iter()
            .flat_map(|piece| in_pieces.follow(&piece).unwrap_or(piece))
            .collect();
        prop_assert_eq!(out, whole);
        prop_assert_eq!(in_pieces, place);
    }

    #[test]
    fn only_whole_targets_change_and_bodies_stay_as_they_were(
        requests in prop::collection::vec(("[!-~]{0,20}", "[ -~]{0,10}", prop::collection::vec(any::<u8>(), 0..40)), 1..5),
        sizes in prop::collection::vec(1_usize..30, 1..5),
    ) {
        let (mut lines, calls) = RequestLines::new(());
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        for (target, value, body) in &requests {
            let rest = format!(" HTTP/1.1\r\nx: {value}\r\n\r\n").into_bytes();
            let target = format!("/{target}").into_bytes();
            for piece in cut(&[b"PUT ", &target[..], &rest].concat(), &sizes) {
                out.extend(lines.pass(&piece).unwrap_or(piece));
            }
            calls.begins(Some(body.len() as u64));
            for piece in cut(body, &sizes) {
                out.extend(lines.pass(&piece).unwrap_or(piece));
            }
            expected.extend([b"PUT ", &encode(&target)[..], &rest, body].concat());
        }
        prop_assert_eq!(out, expected);
    }

    #[test]
    fn readers_with_little_room_get_everything(target in "[!-~]{0,60}", room in 1_usize..20) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let head = format!("GET /{target} HTTP/1.1\r\n\r\n");
        let (mut lines, _) = RequestLines::new(head.as_bytes());
        let out = runtime.block_on(async {
            let mut out = Vec::new();
            let mut buffer = vec![0; room];
            loop {
                match tokio::io::AsyncReadExt::read(&mut lines, &mut buffer).await.unwrap() {
                    0 => break out,
                    count => out.extend_from_slice(&buffer[..count]),
                }
            }
        });
        let expected = [b"GET ", &encode(format!("/{target}").as_bytes())[..], b" HTTP/1.1\r\n\r\n"].concat();
        prop_assert_eq!(out, expected);
    }
}
