//! Mail domains: checks that a domain accepts email.
//!
//! It does if it has a mail server (MX), or at least an address (A, AAAA). Domains whose email goes
//! to a blocked server, such as those of disposable addresses, count as accepting none.
//!
//! A lookup that fails counts as acceptance: a name server that is down must not prevent sign-ups.
//! Responses are not authenticated. A forged one makes an address pass or fail the check, but gives
//! no access to an account.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts, ServerOrderingStrategy,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::sync::Semaphore;

/// Longest time that a request waits for all lookups of a domain.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(4);
/// Longest time that it waits for one name server.
const SERVER_TIMEOUT: Duration = Duration::from_millis(1500);
/// The lifetime of a cached result.
const CACHE_LIFETIME: Duration = Duration::from_secs(300);
/// Most domains that are cached.
const MAX_CACHED: usize = 4096;
/// Most lookups at the same time.
const MAX_LOOKUPS: usize = 64;
/// Most name servers that are queried, one after the other, as system resolvers do.
const MAX_SERVERS: usize = 3;

/// The records of one type that a domain has.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DnsRecords {
    /// At least one. Of mail servers, their names in lower case.
    Found(Vec<String>),
    /// A mail server record that states "no email here" (RFC 7505).
    NullMx,
    /// None.
    Absent,
    /// The domain does not exist.
    NoDomain,
}

/// Looks up domains, and caches the results.
pub(crate) struct MailDomains {
    /// Empty: those of the machine, read at each lookup since they change with its network.
    servers: Vec<SocketAddr>,
    /// Names of mail servers, in lower case, without a dot at the end.
    blocked: Vec<String>,
    cached: Mutex<HashMap<String, (Instant, bool)>>,
    lookups: Semaphore,
}

impl MailDomains {
    pub(crate) fn new(servers: Vec<SocketAddr>, blocked: &[String]) -> Self {
        let blocked = blocked.iter().map(|name| normalized(name.trim())).collect();
        Self { servers, blocked, cached: Mutex::default(), lookups: Semaphore::new(MAX_LOOKUPS) }
    }

    /// Returns true if `domain` accepts email, or if that cannot be found out.
    pub(crate) async fn accepts_mail(&self, domain: &str) -> bool {
        // International names become ASCII; an IP address in place of a name needs no lookup
        let Ok(url::Host::Domain(domain)) = url::Host::parse(domain) else { return true };
        if let Some(cached) = self.cached(&domain) {
            return cached;
        }
        let Ok(Some(accepts)) = tokio::time::timeout(LOOKUP_TIMEOUT, self.look_up(&domain)).await else {
            tracing::warn!("a mail domain could not be looked up, its address is accepted unchecked");
            return true;
        };
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.len() >= MAX_CACHED {
            cached.retain(|_, (at, _)| at.elapsed() < CACHE_LIFETIME);
            if cached.len() >= MAX_CACHED {
                cached.clear();
            }
        }
        cached.insert(domain, (Instant::now(), accepts));
        accepts
    }

    /// Returns true if a cached lookup found that `domain` accepts no email. Never waits.
    pub(crate) fn is_known_to_reject(&self, domain: &str) -> bool {
        matches!(url::Host::parse(domain), Ok(url::Host::Domain(domain)) if self.cached(&domain) == Some(false))
    }

    fn cached(&self, domain: &str) -> Option<bool> {
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.get(domain).filter(|(at, _)| at.elapsed() < CACHE_LIFETIME).map(|(_, accepts)| *accepts)
    }

    /// Looks up a domain. `None`: no name server gave a usable response.
    async fn look_up(&self, domain: &str) -> Option<bool> {
        let _permit = self.lookups.acquire().await.ok()?;
        // Absolute, so that no search domain is appended
        let Ok(name) = Name::from_ascii(format!("{}.", domain.trim_end_matches('.'))) else { return Some(false) };
        if name.is_root() {
            return Some(false);
        }
        let resolver = self.resolver()?;
        match query(&resolver, &name, RecordType::MX).await? {
            DnsRecords::Found(servers) => Some(!servers.iter().any(|server| self.blocks(server))),
            DnsRecords::NullMx | DnsRecords::NoDomain => Some(false),
            DnsRecords::Absent => {
                let (v4, v6) =
                    tokio::join!(query(&resolver, &name, RecordType::A), query(&resolver, &name, RecordType::AAAA));
                if matches!(v4, Some(DnsRecords::Found(_))) || matches!(v6, Some(DnsRecords::Found(_))) {
                    return Some(true);
                }
                v4.and(v6).map(|_| false)
            }
        }
    }

    /// Returns true if this is a blocked mail server, or one below its name.
    fn blocks(&self, server: &str) -> bool {
        self.blocked.iter().any(|blocked| {
            server.strip_suffix(blocked.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    }

    fn resolver(&self) -> Option<TokioResolver> {
        let servers = if self.servers.is_empty() { system_servers() } else { self.servers.clone() };
        let servers = servers.into_iter().take(MAX_SERVERS).map(name_server).collect();
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options();
        builder.build().inspect_err(|error| tracing::warn!(error = %error, "no resolver for mail domains")).ok()
    }
}

fn options() -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = SERVER_TIMEOUT;
    options.attempts = 0;
    // Longer responses come over TCP
    options.edns0 = false;
    // One after the other, in the configured order
    options.num_concurrent_reqs = 1;
    options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
    // Results are cached here, not responses
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    let with_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    NameServerConfig::new(address.ip(), true, connections.map(with_port).into())
}

/// Returns the machine's name servers.
fn system_servers() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = parse_resolv_conf(&text);
    // The default of resolv.conf(5)
    if servers.is_empty() { vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 53))] } else { servers }
}

fn parse_resolv_conf(text: &str) -> Vec<SocketAddr> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver")?.split_whitespace().next())
        .filter_map(|address| address.parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, 53))
        .collect()
}

/// Queries the records of a type. `None`: no name server gave a usable response.
async fn query(resolver: &TokioResolver, name: &Name, record_type: RecordType) -> Option<DnsRecords> {
    let lookup = match resolver.lookup(name.clone(), record_type).await {
        Ok(lookup) => lookup,
        Err(error) if error.is_nx_domain() => return Some(DnsRecords::NoDomain),
        Err(error) if error.is_no_records_found() => return Some(DnsRecords::Absent),
        Err(error) => {
            tracing::debug!(error = %error, "a name server gave no usable response");
            return None;
        }
    };
    let (mut servers, mut is_null, mut is_found) = (Vec::new(), false, false);
    for record in lookup.answers().iter().filter(|record| record.record_type() == record_type) {
        match &record.data {
            // The root as the mail server: there is none
            RData::MX(mx) if mx.exchange.is_root() => is_null = true,
            RData::MX(mx) => {
                is_found = true;
                servers.push(normalized(&mx.exchange.to_ascii()));
            }
            _ => is_found = true,
        }
    }
    Some(match (is_found, is_null) {
        (true, _) => DnsRecords::Found(servers),
        (false, true) => DnsRecords::NullMx,
        (false, false) => DnsRecords::Absent,
    })
}

/// Returns the form in which names are compared.
fn normalized(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;

    /// A response to every query: a status, flags, and records of a type and its data.
    type Response = (u8, u8, &'static [(u16, &'static [u8])]);

    /// Starts a name server that gives the same response to every MX query, and to other queries
    /// that there are no records.
    async fn name_server((status, flags, records): Response) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut query = [0; 600];
            while let Ok((length, from)) = socket.recv_from(&mut query).await {
                let query = &query[..length];
                let is_mx = query[length - 3] == 15;
                let (status, flags, records) = if is_mx { (status, flags, records) } else { (0, 0, [].as_slice()) };
                let mut bytes = query.to_vec();
                bytes[2..4].copy_from_slice(&[0x81 | flags, 0x80 | status]);
                bytes[7] = u8::try_from(records.len()).unwrap();
                for (kind, data) in records {
                    bytes.extend_from_slice(&[0xc0, 12]);
                    bytes.extend_from_slice(&kind.to_be_bytes());
                    bytes.extend_from_slice(&[0, 1, 0, 0, 0, 60, 0, u8::try_from(data.len()).unwrap()]);
                    bytes.extend_from_slice(data);
                }
                socket.send_to(&bytes, from).await.unwrap();
            }
        });
        address
    }

    async fn mx(response: Response) -> Option<DnsRecords> {
        let domains = MailDomains::new(vec![name_server(response).await], &[]);
        query(&domains.resolver().unwrap(), &Name::from_ascii("example.com.").unwrap(), RecordType::MX).await
    }

    #[tokio::test]
    async fn responses_are_understood() {
        const MAIL: &[u8] = &[0, 10, 4, b'm', b'a', b'i', b'l', 0xc0, 12];
        const NULL: &[u8] = &[0, 0, 0];
        const ELSEWHERE: &[u8] = b"\x00\x05\x02MX\x04Spam\x00";
        let found = || Some(DnsRecords::Found(vec!["mail.example.com".to_owned()]));
        assert_eq!(mx((0, 0, &[(15, MAIL)])).await, found());
        let both = vec!["mail.example.com".to_owned(), "mx.spam".to_owned()];
        assert_eq!(mx((0, 0, &[(15, MAIL), (15, ELSEWHERE)])).await, Some(DnsRecords::Found(both)));
        assert_eq!(mx((0, 0, &[(15, NULL)])).await, Some(DnsRecords::NullMx));
        assert_eq!(mx((0, 0, &[(15, MAIL), (15, NULL)])).await, found());
        assert_eq!(mx((0, 0, &[])).await, Some(DnsRecords::Absent));
        assert_eq!(mx((0, 2, &[])).await, None, "truncated");
        assert_eq!(mx((3, 0, &[])).await, Some(DnsRecords::NoDomain));
        for failure in [1, 2, 4, 5] {
            assert_eq!(mx((failure, 0, &[])).await, None);
        }
    }

    #[test]
    fn a_blocked_server_blocks_the_names_below_it() {
        let domains = MailDomains::new(Vec::new(), &["Mx.Throwaway.Example.".to_owned(), "one.example".to_owned()]);
        for server in ["mx.throwaway.example", "a.mx.throwaway.example", "one.example"] {
            assert!(domains.blocks(server), "{server}");
        }
        for server in ["throwaway.example", "someone.example", "example", ""] {
            assert!(!domains.blocks(server), "{server}");
        }
    }

    #[tokio::test]
    async fn a_name_that_no_domain_can_have_accepts_no_mail() {
        let domains = MailDomains::new(Vec::new(), &[]);
        for name in ["", "a..b", &"x".repeat(64), &format!("{}example", "x.".repeat(130))] {
            assert_eq!(domains.look_up(name).await, Some(false), "{name}");
        }
    }

    #[test]
    fn name_servers_are_read_from_resolv_conf() {
        let text =
            "# comment\nsearch example.com\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 \nnameserver fe80::1%eth0\n";
        let servers: Vec<String> = parse_resolv_conf(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53"]);
    }
}
