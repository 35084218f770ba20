//! The signed message of a wallet: EIP-4361 for Ethereum, and its counterpart for Solana.

use std::net::IpAddr;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use url::Url;

/// The blockchain of a wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chain {
    /// Ethereum and compatible chains.
    Ethereum,
    /// Solana.
    Solana,
}

impl Chain {
    /// Returns the chain that a request names.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "ethereum" => Some(Self::Ethereum),
            "solana" => Some(Self::Solana),
            _ => None,
        }
    }

    /// Returns the chain's name in requests and identities.
    pub fn id(self) -> &'static str {
        match self {
            Self::Ethereum => "ethereum",
            Self::Solana => "solana",
        }
    }

    /// Returns the chain's name in messages and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ethereum => "Ethereum",
            Self::Solana => "Solana",
        }
    }

    /// Returns the prefix of parse errors.
    fn prefix(self) -> &'static str {
        match self {
            Self::Ethereum => "siwe",
            Self::Solana => "siws",
        }
    }
}

/// A parsed message. Its signature and times are not checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SignInMessage {
    /// The domain that asks for the signature, with its port.
    pub domain: String,
    /// The wallet's address as written.
    pub address: String,
    /// The sentence that the wallet showed.
    pub statement: Option<String>,
    /// The address of the page.
    pub uri: Url,
    /// The network of the chain as written; empty when absent.
    pub chain_id: String,
    /// The time of the signature according to the wallet.
    pub issued_at: OffsetDateTime,
    /// The message is not valid after this time.
    pub expires_at: Option<OffsetDateTime>,
    /// The message is not valid before this time.
    pub not_before: Option<OffsetDateTime>,
}

/// A message that does not follow the grammar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum MessageError {
    #[error("message needs at least 6 lines")]
    TooFewLines,
    #[error("message first line does not end in \" wants you to sign in with your {0} account:\"")]
    Header(&'static str),
    #[error("domain in first line of message is not valid")]
    Domain,
    #[error("wallet address is not a valid Ethereum address")]
    EthereumAddress,
    #[error("wallet address is not in base58 format")]
    SolanaAddress,
    #[error("third line must be empty")]
    ThirdLine,
    #[error("encountered unparsable line at index {0}")]
    Line(usize),
    #[error("URI is not valid")]
    Uri,
    #[error("URI is not specified")]
    NoUri,
    #[error("Version value is not supported, expected 1 got {0:?}")]
    Version(String),
    #[error("Chain ID is not valid")]
    ChainId,
    #[error("{0} is not a valid ISO8601 timestamp")]
    Timestamp(&'static str),
    #[error("Issued At is not specified")]
    NoIssuedAt,
    #[error("Issued At is after Expiration Time")]
    IssuedAfterExpiration,
    #[error("Not Before is after Expiration Time")]
    NotBeforeAfterExpiration,
    #[error("Resource at position {0} has invalid URI")]
    Resource(usize),
}

impl MessageError {
    /// Returns the text of the response.
    pub fn text(&self, chain: Chain) -> String {
        format!("{}: {self}", chain.prefix())
    }
}

/// The `Key: value` lines of a message.
#[derive(Default)]
struct SignInFields {
    uri: Option<Url>,
    version: String,
    chain_id: String,
    issued_at: Option<OffsetDateTime>,
    expires_at: Option<OffsetDateTime>,
    not_before: Option<OffsetDateTime>,
}

impl SignInMessage {
    /// Parses a message.
    ///
    /// # Errors
    /// [`MessageError`] names the first line that does not follow the grammar.
    pub fn parse(chain: Chain, text: &str) -> Result<Self, MessageError> {
        let lines: Vec<&str> = text.split('\n').collect();
        if lines.len() < 6 {
            return Err(MessageError::TooFewLines);
        }
        let header = format!(" wants you to sign in with your {} account:", chain.name());
        let domain = lines[0].strip_suffix(&header).ok_or(MessageError::Header(chain.name()))?.trim();
        if !is_domain(domain) {
            return Err(MessageError::Domain);
        }
        let address = lines[1].trim();
        match chain {
            Chain::Ethereum if !is_ethereum_address(address) => return Err(MessageError::EthereumAddress),
            Chain::Solana if !is_solana_address(address) => return Err(MessageError::SolanaAddress),
            _ => {}
        }
        if !lines[2].is_empty() {
            return Err(MessageError::ThirdLine);
        }
        let has_statement = !lines[3].is_empty() && lines[4].is_empty();
        let statement = has_statement.then(|| lines[3].to_owned());
        let first = if has_statement { 5 } else { 3 };
        let fields = SignInFields::parse(chain, &lines, first)?;
        let (Some(uri), version) = (fields.uri, fields.version) else {
            return Err(MessageError::NoUri);
        };
        if version != "1" {
            return Err(MessageError::Version(version));
        }
        let issued_at = fields.issued_at.ok_or(MessageError::NoIssuedAt)?;
        if let Some(expires_at) = fields.expires_at {
            if issued_at > expires_at {
                return Err(MessageError::IssuedAfterExpiration);
            }
            if fields.not_before.is_some_and(|not_before| not_before > expires_at) {
                return Err(MessageError::NotBeforeAfterExpiration);
            }
        }
        Ok(Self {
            domain: domain.to_owned(),
            address: address.to_owned(),
            statement,
            uri,
            chain_id: fields.chain_id,
            issued_at,
            expires_at: fields.expires_at,
            not_before: fields.not_before,
        })
    }

    /// Returns true if the message was signed for a page on the same machine.
    pub fn is_local(&self) -> bool {
        self.uri.host_str() == Some("localhost")
    }

    /// Returns the URI's host with the port as the message writes it.
    pub fn uri_authority(&self) -> String {
        let host = self.uri.host_str().unwrap_or_default();
        self.uri.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
}

impl SignInFields {
    /// Reads the lines from index `first` on.
    fn parse(chain: Chain, lines: &[&str], first: usize) -> Result<Self, MessageError> {
        let mut fields = Self::default();
        let mut resources: Option<usize> = None;
        for (index, line) in lines.iter().enumerate().skip(first) {
            let line = line.trim();
            if let (Some(position), Some(uri)) = (resources, line.strip_prefix("- ")) {
                Url::parse(uri.trim()).map_err(|_| MessageError::Resource(position))?;
                resources = Some(position + 1);
                continue;
            }
            resources = None;
            match line {
                "" => continue,
                // The official client writes it without the colon for Solana wallets
                "Resources:" | "Resources" => {
                    resources = Some(0);
                    continue;
                }
                _ => {}
            }
            let (key, value) = line.split_once(':').ok_or(MessageError::Line(index))?;
            fields.set(chain, key.trim(), value.trim())?;
        }
        Ok(fields)
    }

    /// Takes one field. Unknown fields are ignored, as are the nonce and the request id, which
    /// nothing checks.
    fn set(&mut self, chain: Chain, key: &str, value: &str) -> Result<(), MessageError> {
        match key {
            "URI" => self.uri = Some(Url::parse(value).map_err(|_| MessageError::Uri)?),
            "Version" => value.clone_into(&mut self.version),
            "Chain ID" => {
                let is_valid = match chain {
                    Chain::Ethereum => value.parse::<u64>().is_ok_and(|number| number > 0),
                    Chain::Solana => {
                        ["", "solana:mainnet", "solana:devnet", "solana:testnet", "solana:localnet"].contains(&value)
                    }
                };
                if !is_valid {
                    return Err(MessageError::ChainId);
                }
                value.clone_into(&mut self.chain_id);
            }
            "Issued At" => self.issued_at = Some(timestamp("Issued At", value)?),
            "Expiration Time" => self.expires_at = Some(timestamp("Expiration Time", value)?),
            "Not Before" => self.not_before = Some(timestamp("Not Before", value)?),
            _ => {}
        }
        Ok(())
    }
}

fn timestamp(field: &'static str, text: &str) -> Result<OffsetDateTime, MessageError> {
    OffsetDateTime::parse(text, &Rfc3339).map_err(|_| MessageError::Timestamp(field))
}

/// Returns true if a text is `localhost` or a DNS name with an alphabetic top-level domain, with an
/// optional port.
fn is_domain(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    if port.is_some_and(|port| !(1..=5).contains(&port.len()) || !port.bytes().all(|byte| byte.is_ascii_digit())) {
        return false;
    }
    if host == "localhost" {
        return true;
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let Some((rest, top)) = host.rsplit_once('.') else {
        return false;
    };
    host.len() <= 253
        && host.parse::<IpAddr>().is_err()
        && rest.split('.').all(is_label)
        && top.len() >= 2
        && top.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn is_ethereum_address(text: &str) -> bool {
    text.strip_prefix("0x")
        .is_some_and(|digits| digits.len() == 40 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_solana_address(text: &str) -> bool {
    (32..=44).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    const ETHEREUM: &str = "app.example wants you to sign in with your Ethereum account:
0x1111111111111111111111111111111111111111

Sign in to Example

URI: https://app.example/login
Version: 1
Chain ID: 1
Nonce: abcdefgh
Issued At: 2026-01-01T00:00:00Z
Expiration Time: 2026-01-01T01:00:00+00:30
Request ID: 7
Resources:
- https://app.example/terms
- ipfs://bafy

Not Before: 2025-12-31T23:00:00Z";

    #[test]
    fn a_complete_message_is_parsed() {
        let message = SignInMessage::parse(Chain::Ethereum, ETHEREUM).unwrap();
        assert_eq!(message.domain, "app.example");
        assert_eq!(message.address, format!("0x{}", "1".repeat(40)));
        assert_eq!(message.statement.as_deref(), Some("Sign in to Example"));
        assert_eq!(message.uri.as_str(), "https://app.example/login");
        assert_eq!(message.chain_id, "1");
        assert_eq!(message.issued_at, datetime!(2026-01-01 0:00 UTC));
        assert_eq!(message.expires_at, Some(datetime!(2026-01-01 0:30 UTC)));
        assert_eq!(message.not_before, Some(datetime!(2025-12-31 23:00 UTC)));
    }

    #[test]
    fn the_statement_is_optional() {
        let text = ETHEREUM.replace("Sign in to Example\n\n", "");
        assert_eq!(SignInMessage::parse(Chain::Ethereum, &text).unwrap().statement, None);
    }

    #[test]
    fn a_solana_message_has_networks_by_name() {
        let solana = |network: &str| {
            ETHEREUM
                .replace("Ethereum", "Solana")
                .replace(&format!("0x{}", "1".repeat(40)), "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU")
                .replace("Chain ID: 1", &format!("Chain ID: {network}"))
        };
        assert_eq!(SignInMessage::parse(Chain::Solana, &solana("solana:devnet")).unwrap().chain_id, "solana:devnet");
        assert_eq!(SignInMessage::parse(Chain::Solana, &solana("")).unwrap().chain_id, "");
        assert_eq!(SignInMessage::parse(Chain::Solana, &solana("1")), Err(MessageError::ChainId));
        let without_colon = solana("").replace("Resources:", "Resources");
        assert!(SignInMessage::parse(Chain::Solana, &without_colon).is_ok());
    }

    #[test]
    fn each_fault_has_its_text() {
        let parse = |text: &str| SignInMessage::parse(Chain::Ethereum, text).unwrap_err().text(Chain::Ethereum);
        let with = |from: &str, to: &str| {
            assert!(ETHEREUM.contains(from), "{from}");
            parse(&ETHEREUM.replacen(from, to, 1))
        };
        assert_eq!(parse("a\nb\nc"), "siwe: message needs at least 6 lines");
        assert_eq!(
            with("account:", "account"),
            "siwe: message first line does not end in \" wants you to sign in with your Ethereum account:\""
        );
        for domain in
            ["https://app.example", "127.0.0.1", "app", "app.example:", "app.example:123456", "a b.example", ""]
        {
            assert_eq!(
                with("app.example wants", &format!("{domain} wants")),
                "siwe: domain in first line of message is not valid"
            );
        }
        assert_eq!(with("0x1", "0x"), "siwe: wallet address is not a valid Ethereum address");
        assert_eq!(with("\n\nSign", "\nno\nSign"), "siwe: third line must be empty");
        assert_eq!(with("URI: https://app.example/login", "URI: /login"), "siwe: URI is not valid");
        assert_eq!(with("URI: https://app.example/login\n", ""), "siwe: URI is not specified");
        assert_eq!(with("Version: 1", "Version: 2"), "siwe: Version value is not supported, expected 1 got \"2\"");
        assert_eq!(with("Version: 1\n", ""), "siwe: Version value is not supported, expected 1 got \"\"");
        assert_eq!(with("Chain ID: 1", "Chain ID: 0"), "siwe: Chain ID is not valid");
        assert_eq!(with("Issued At: 2026", "Issued At: 26"), "siwe: Issued At is not a valid ISO8601 timestamp");
        assert_eq!(with("Issued At:", "Issued:"), "siwe: Issued At is not specified");
        assert_eq!(
            with("Expiration Time: 2026", "Expiration Time: soon"),
            "siwe: Expiration Time is not a valid ISO8601 timestamp"
        );
        assert_eq!(with("Not Before: 2025", "Not Before: x"), "siwe: Not Before is not a valid ISO8601 timestamp");
        assert_eq!(with("Expiration Time: 2026", "Expiration Time: 2025"), "siwe: Issued At is after Expiration Time");
        assert_eq!(with("Not Before: 2025", "Not Before: 2027"), "siwe: Not Before is after Expiration Time");
        assert_eq!(with("Nonce: abcdefgh", "nonce"), "siwe: encountered unparsable line at index 8");
        assert_eq!(with("- ipfs://bafy", "- bafy"), "siwe: Resource at position 1 has invalid URI");
    }

    #[test]
    fn a_domain_may_be_local_and_have_a_port() {
        for domain in ["localhost", "localhost:3000", "app.example:8443", "a-b.c-d.example"] {
            assert!(is_domain(domain), "{domain}");
        }
        for domain in ["::1", "[::1]", "app.example:0x1", "-a.example", "a..example", "app.123", "user@app.example"] {
            assert!(!is_domain(domain), "{domain}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), rest in any::<String>()) {
            let _ = SignInMessage::parse(Chain::Ethereum, &text);
            let _ = SignInMessage::parse(Chain::Solana, &text);
            let _ = SignInMessage::parse(Chain::Ethereum, &format!("{ETHEREUM}\n{rest}"));
        }
    }
}
