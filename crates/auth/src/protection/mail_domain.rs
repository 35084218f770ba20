//! Whether a domain takes mail (auth-core 15.3): it has a mail server (MX), or at least an address (A, AAAA). Domains whose mail
//! goes to a blocked server, such as those of throw-away addresses, count as taking none.
//!
//! A small resolver of our own: one question to the machine's name servers over UDP. The system's resolver tells addresses
//! only. What it can not find out counts as yes: a name server that is down must not keep people out. Answers are not
//! signed; somebody who forges one makes an address pass or fail the check, and gains no account.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use portico_base::random;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;

/// A request does not wait longer for all questions about a domain.
const PATIENCE: Duration = Duration::from_secs(4);
/// One name server does not make it wait longer.
const PER_SERVER: Duration = Duration::from_millis(1500);
/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(300);
/// Domains remembered at most.
const MAX_KNOWN: usize = 4096;
/// Questions at the same time.
const MAX_QUESTIONS: usize = 64;
/// Name servers asked one after the other, as system resolvers do.
const MAX_SERVERS: usize = 3;
/// No answer over UDP is larger without being asked to.
const MAX_ANSWER: usize = 4096;
const HEADER: usize = 12;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    A = 1,
    Mx = 15,
    Aaaa = 28,
}

/// What a name server says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reply {
    /// There are such records. Of mail servers, their names in lower case.
    Some(Vec<String>),
    /// There is one that says that there is nothing: "no mail here" (RFC 7505).
    Null,
    /// There are none.
    None,
    /// There is no such domain.
    NoDomain,
}

/// Asks, and remembers for a while.
pub(crate) struct MailDomains {
    /// Empty: those of the machine, read each time since they change with its network.
    servers: Vec<SocketAddr>,
    /// Names of mail servers, in lower case, without a dot at the end.
    blocked: Vec<String>,
    known: Mutex<HashMap<String, (Instant, bool)>>,
    questions: Semaphore,
}

impl MailDomains {
    pub(crate) fn new(servers: Vec<SocketAddr>, blocked: &[String]) -> Self {
        let blocked = blocked.iter().map(|name| plain_name(name)).collect();
        Self { servers, blocked, known: Mutex::default(), questions: Semaphore::new(MAX_QUESTIONS) }
    }

    /// Whether `domain` takes mail, as far as can be found out.
    pub(crate) async fn takes_mail(&self, domain: &str) -> bool {
        // International names as name servers know them; an address in the place of a name needs no look-up
        let Ok(url::Host::Domain(domain)) = url::Host::parse(domain) else { return true };
        if let Some(known) = self.known(&domain) {
            return known;
        }
        let Ok(Some(verdict)) = tokio::time::timeout(PATIENCE, self.look_up(&domain)).await else {
            tracing::warn!("Name servers do not tell whether a domain takes mail; an address passes unchecked");
            return true;
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.retain(|_, (at, _)| at.elapsed() < KEPT);
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
        }
        known.insert(domain, (Instant::now(), verdict));
        verdict
    }

    /// Whether `domain` was found to take no mail. Asks nobody, so that it can be used where nothing may wait.
    pub(crate) fn is_known_to_take_none(&self, domain: &str) -> bool {
        matches!(url::Host::parse(domain), Ok(url::Host::Domain(domain)) if self.known(&domain) == Some(false))
    }

    fn known(&self, domain: &str) -> Option<bool> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(domain).filter(|(at, _)| at.elapsed() < KEPT).map(|(_, verdict)| *verdict)
    }

    /// `None`: nobody knows.
    async fn look_up(&self, domain: &str) -> Option<bool> {
        let _permit = self.questions.acquire().await.ok()?;
        match self.ask(domain, Kind::Mx).await? {
            Reply::Some(servers) => Some(!servers.iter().any(|server| self.blocks(server))),
            Reply::Null | Reply::NoDomain => Some(false),
            Reply::None => {
                let (v4, v6) = tokio::join!(self.ask(domain, Kind::A), self.ask(domain, Kind::Aaaa));
                if matches!(v4, Some(Reply::Some(_))) || matches!(v6, Some(Reply::Some(_))) {
                    return Some(true);
                }
                v4.and(v6).map(|_| false)
            }
        }
    }

    /// Whether this is a blocked server, or one below its name.
    fn blocks(&self, server: &str) -> bool {
        self.blocked.iter().any(|blocked| {
            server.strip_suffix(blocked.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    }

    async fn ask(&self, domain: &str, kind: Kind) -> Option<Reply> {
        let servers = if self.servers.is_empty() { servers_of_machine() } else { self.servers.clone() };
        for server in servers.into_iter().take(MAX_SERVERS) {
            match tokio::time::timeout(PER_SERVER, ask(server, domain, kind)).await {
                Ok(Ok(Some(reply))) => return Some(reply),
                Ok(Ok(None)) => tracing::debug!(%server, "The name server has no answer"),
                Ok(Err(error)) => tracing::debug!(%server, %error, "The name server can not be asked"),
                Err(_) => tracing::debug!(%server, "The name server does not answer in time"),
            }
        }
        None
    }
}

fn servers_of_machine() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = servers_in(&text);
    // As resolv.conf(5) has it
    if servers.is_empty() { vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 53))] } else { servers }
}

fn servers_in(text: &str) -> Vec<SocketAddr> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver")?.split_whitespace().next())
        .filter_map(|address| address.parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, 53))
        .collect()
}

/// `None`: the server answered that it can not say, or something that is no answer.
async fn ask(server: SocketAddr, domain: &str, kind: Kind) -> std::io::Result<Option<Reply>> {
    let id = random::bytes::<2>();
    let Some(question) = question(domain, kind) else { return Ok(Some(Reply::NoDomain)) };
    let local: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // A port of its own for each question: with the id, two secrets that a forger has to guess
    let socket = UdpSocket::bind(SocketAddr::new(local, 0)).await?;
    socket.connect(server).await?;
    let recursion_desired = [1, 0];
    let counts = [0, 1, 0, 0, 0, 0, 0, 0];
    socket.send(&[&id[..], &recursion_desired, &counts, &question].concat()).await?;
    let mut answer = vec![0; MAX_ANSWER];
    loop {
        let length = socket.recv(&mut answer).await?;
        let answer = &answer[..length];
        // What belongs to another question is passed over, until the time is up
        if answer.starts_with(&id) && is_about(answer, &question) {
            return Ok(read_answer(answer, HEADER + question.len(), kind));
        }
    }
}

/// The question's bytes. `None`: no domain can have this name.
fn question(domain: &str, kind: Kind) -> Option<Vec<u8>> {
    let domain = domain.trim_end_matches('.');
    if domain.is_empty() || domain.len() > 253 {
        return None;
    }
    let mut bytes = Vec::with_capacity(domain.len() + 6);
    for label in domain.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        bytes.push(length);
        bytes.extend_from_slice(label.as_bytes());
    }
    let internet = 1;
    bytes.extend_from_slice(&[0, 0, kind as u8, 0, internet]);
    Some(bytes)
}

/// Whether it is an answer, and repeats the question.
fn is_about(answer: &[u8], question: &[u8]) -> bool {
    let is_answer = answer.get(2).is_some_and(|flags| flags & 0x80 != 0);
    is_answer
        && answer.get(HEADER..HEADER + question.len()).is_some_and(|repeated| repeated.eq_ignore_ascii_case(question))
}

fn read_answer(answer: &[u8], records: usize, kind: Kind) -> Option<Reply> {
    match answer.get(3)? & 0x0f {
        0 => {}
        3 => return Some(Reply::NoDomain),
        _ => return None,
    }
    let mut at = records;
    let (mut servers, mut is_null, mut is_found) = (Vec::new(), false, false);
    for _ in 0..number(answer, 6)? {
        at = end_of_name(answer, at)?;
        let found = number(answer, at)?;
        let length = usize::from(number(answer, at + 8)?);
        let data = answer.get(at + 10..at + 10 + length)?;
        at += 10 + length;
        if found != kind as u16 {
            // On the way there may be other names of the domain
            continue;
        }
        // The root as the mail server: there is none
        if kind == Kind::Mx && data.get(2) == Some(&0) {
            is_null = true;
            continue;
        }
        is_found = true;
        if kind == Kind::Mx {
            // Behind the preference
            servers.extend(name_at(answer, at - length + 2));
        }
    }
    let reply = match (is_found, is_null) {
        (true, _) => Reply::Some(servers),
        (false, true) => Reply::Null,
        (false, false) => Reply::None,
    };
    let is_truncated = answer.get(2)? & 0x02 != 0;
    // A truncated answer without a record says nothing
    (reply != Reply::None || !is_truncated).then_some(reply)
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// Where the name that begins at `at` ends; a reference to another place is its end.
fn end_of_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at)? {
            0 => return Some(at + 1),
            length if length & 0xc0 == 0xc0 => return Some(at + 2),
            length if length & 0xc0 == 0 => at += 1 + usize::from(*length),
            _ => return None,
        }
    }
}

/// The name at this place, in lower case. `None`: what stands there is no name.
fn name_at(bytes: &[u8], mut at: usize) -> Option<String> {
    let mut name = String::new();
    let mut jumps = 0;
    loop {
        match *bytes.get(at)? {
            0 => return Some(name),
            length if length & 0xc0 == 0xc0 => {
                // The rest of the name stands elsewhere. Names have at most 127 labels, so more references lead in a circle
                jumps += 1;
                at = usize::from(number(bytes, at)? & 0x3fff);
                if jumps > 127 {
                    return None;
                }
            }
            length if length & 0xc0 == 0 => {
                let label = bytes.get(at + 1..at + 1 + usize::from(length))?;
                if !name.is_empty() {
                    name.push('.');
                }
                name.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
                if name.len() > 2 * 253 {
                    return None;
                }
                at += 1 + usize::from(length);
            }
            _ => return None,
        }
    }
}

/// As [`name_at`] reads names.
fn plain_name(name: &str) -> String {
    name.trim().trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An answer to [`question`] with these records: a type and its data.
    fn answer(question: &[u8], code: u8, flags: u8, records: &[(u16, &[u8])]) -> Vec<u8> {
        let count = u8::try_from(records.len()).unwrap();
        let mut bytes = vec![7, 7, 0x80 | flags, code, 0, 1, 0, count, 0, 0, 0, 0];
        bytes.extend_from_slice(question);
        for (kind, data) in records {
            bytes.extend_from_slice(&[0xc0, 12]);
            bytes.extend_from_slice(&kind.to_be_bytes());
            bytes.extend_from_slice(&[0, 1, 0, 0, 0, 60, 0, u8::try_from(data.len()).unwrap()]);
            bytes.extend_from_slice(data);
        }
        bytes
    }

    fn read(code: u8, flags: u8, records: &[(u16, &[u8])], kind: Kind) -> Option<Reply> {
        let question = question("example.com", kind).unwrap();
        let bytes = answer(&question, code, flags, records);
        assert!(is_about(&bytes, &question));
        read_answer(&bytes, HEADER + question.len(), kind)
    }

    #[test]
    fn answers_are_understood() {
        let mail: &[u8] = &[0, 10, 4, b'm', b'a', b'i', b'l', 0xc0, 12];
        let nobody: &[u8] = &[0, 0, 0];
        let alias: &[u8] = &[0xc0, 12];
        let server = || Some(Reply::Some(vec!["mail.example.com".to_owned()]));
        assert_eq!(read(0, 0, &[(15, mail)], Kind::Mx), server());
        assert_eq!(read(0, 0, &[(5, alias), (15, mail)], Kind::Mx), server());
        let elsewhere: &[u8] = b"\x00\x05\x02MX\x04Spam\x00";
        let both = vec!["mail.example.com".to_owned(), "mx.spam".to_owned()];
        assert_eq!(read(0, 0, &[(15, mail), (15, elsewhere)], Kind::Mx), Some(Reply::Some(both)));
        // A name that leads back to itself
        let circle: &[u8] = &[0, 10, 0xc0, 43];
        assert_eq!(read(0, 0, &[(15, circle)], Kind::Mx), Some(Reply::Some(Vec::new())));
        assert_eq!(read(0, 0, &[(15, nobody)], Kind::Mx), Some(Reply::Null));
        assert_eq!(read(0, 0, &[(15, mail), (15, nobody)], Kind::Mx), server());
        assert_eq!(read(0, 0, &[(5, alias)], Kind::Mx), Some(Reply::None));
        assert_eq!(read(0, 0, &[], Kind::Mx), Some(Reply::None));
        assert_eq!(read(0, 2, &[], Kind::Mx), None, "truncated");
        assert_eq!(read(0, 0, &[(1, &[192, 0, 2, 1])], Kind::A), Some(Reply::Some(Vec::new())));
        assert_eq!(read(3, 0, &[], Kind::A), Some(Reply::NoDomain));
        for failure in [1, 2, 4, 5] {
            assert_eq!(read(failure, 0, &[], Kind::A), None);
        }
    }

    #[test]
    fn a_blocked_server_blocks_what_is_below_its_name() {
        let domains = MailDomains::new(Vec::new(), &["Mx.Throwaway.Example.".to_owned(), "one.example".to_owned()]);
        for server in ["mx.throwaway.example", "a.mx.throwaway.example", "one.example"] {
            assert!(domains.blocks(server), "{server}");
        }
        for server in ["throwaway.example", "someone.example", "example", ""] {
            assert!(!domains.blocks(server), "{server}");
        }
    }

    #[test]
    fn names_that_no_domain_has() {
        for name in ["", "a..b", &"x".repeat(64), &format!("{}.example", "x.".repeat(130))] {
            assert_eq!(question(name, Kind::Mx), None, "{name}");
        }
        assert_eq!(question("a.example.", Kind::A).unwrap(), b"\x01a\x07example\0\0\x01\0\x01");
    }

    #[test]
    fn name_servers_of_a_machine() {
        let text =
            "# comment\nsearch example.com\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 \nnameserver fe80::1%eth0\n";
        let servers: Vec<String> = servers_in(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53"]);
    }

    proptest! {
        #[test]
        fn no_answer_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), records in 0usize..220) {
            let _ = read_answer(&bytes, records, Kind::Mx);
            let _ = end_of_name(&bytes, records);
            let _ = name_at(&bytes, records);
            let _ = is_about(&bytes, b"question");
        }
    }
}
