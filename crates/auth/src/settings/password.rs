//! Passwords: their rules, and how they are hashed.

use std::time::Duration;

/// Rules for and hashing of passwords.
#[derive(Debug, Clone)]
pub struct PasswordSettings {
    /// Fewest bytes; at least 6.
    pub min_length: usize,
    /// Each set must have one hit.
    pub required_characters: Vec<String>,
    /// Ask whether a password is known from a breach.
    pub breach_check: Option<BreachCheckSettings>,
    /// Cost of new bcrypt hashes, 4 to 14. The contract's is 10.
    pub bcrypt_cost: u32,
    /// Hashes computed at the same time; `None`: one per processor.
    pub hashing_threads: Option<usize>,
    /// Requests that may wait for a hash; more are answered with 429.
    pub hashing_queue: usize,
}

/// The k-anonymity range API of breached passwords.
#[derive(Debug, Clone)]
pub struct BreachCheckSettings {
    /// Base of the API; five hexadecimal digits are appended.
    pub url: String,
    /// When the API does not answer: refuse the password (true) or accept it.
    pub fail_closed: bool,
    /// How we introduce ourselves.
    pub user_agent: String,
    /// How long to wait.
    pub timeout: Duration,
}

impl Default for PasswordSettings {
    fn default() -> Self {
        Self {
            min_length: 6,
            required_characters: Vec::new(),
            breach_check: None,
            bcrypt_cost: 10,
            hashing_threads: None,
            hashing_queue: 256,
        }
    }
}

impl Default for BreachCheckSettings {
    fn default() -> Self {
        Self {
            url: "https://api.pwnedpasswords.com/range/".into(),
            fail_closed: false,
            user_agent: "https://github.com/portico".into(),
            timeout: Duration::from_secs(5),
        }
    }
}
