//! The settings of sign-in with wallets.

use std::time::Duration;

/// The settings of sign-in with the wallets of blockchains.
#[derive(Debug, Clone)]
pub struct Web3Settings {
    /// Permit wallets of Ethereum.
    pub ethereum: bool,
    /// Permit wallets of Solana.
    pub solana: bool,
    /// The longest time between the signature of a message and its use.
    pub max_validity: Duration,
}

impl Default for Web3Settings {
    fn default() -> Self {
        Self { ethereum: false, solana: false, max_validity: Duration::from_secs(600) }
    }
}
