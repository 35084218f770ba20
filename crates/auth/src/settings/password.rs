//! The settings of passwords: their rules and their hashes.

use std::time::Duration;

/// The settings of passwords.
#[derive(Debug, Clone)]
pub struct PasswordSettings {
    /// Fewest bytes; at least 6.
    pub min_length: usize,
    /// A password must contain a character of each set.
    pub required_characters: Vec<String>,
    /// The check for breached passwords. `None`: no check.
    pub breach_check: Option<BreachCheckSettings>,
    /// Cost of new bcrypt hashes, 4 to 14. That of GoTrue is 10.
    pub bcrypt_cost: u32,
    /// Hashes that are computed at the same time. `None`: one per processor.
    pub hashing_threads: Option<usize>,
    /// Requests that may wait for a hash. Further ones are rejected with 429.
    pub hashing_queue: usize,
}

/// The k-anonymity range API of breached passwords.
#[derive(Debug, Clone)]
pub struct BreachCheckSettings {
    /// Base of the API; five hexadecimal digits are appended.
    pub url: String,
    /// Rejects the password when the API does not respond; otherwise the password is accepted.
    pub fail_closed: bool,
    /// The `User-Agent` of the requests.
    pub user_agent: String,
    /// Timeout of a request.
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
