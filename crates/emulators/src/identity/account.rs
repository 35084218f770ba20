//! The people that the emulated provider knows.

use std::{
    io::{ErrorKind, Write},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use portico_base::hash;
use portico_mail::Address;
use serde::{Deserialize, Serialize};

use super::error::IdentityProviderError;

const MOST_ACCOUNTS: usize = 200;
const LONGEST_NAME: usize = 100;
const LARGEST_FILE: u64 = 1 << 20;

/// A person's account with the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Account {
    /// Subject: follows from the address, so that the same person keeps it when the accounts are
    /// forgotten.
    pub sub: String,
    pub name: String,
    pub email: String,
    #[serde(default = "yes")]
    pub email_verified: bool,
}

fn yes() -> bool {
    true
}

impl Account {
    /// Makes an account from the fields of a form.
    ///
    /// # Errors
    ///
    /// A text for the person who filled in the form.
    pub(super) fn new(name: &str, email: &str, email_verified: bool) -> Result<Self, String> {
        let email = Address::parse(email.trim()).map_err(|error| format!("This is not an email address: {error}."))?;
        let email = email.as_str().to_lowercase();
        let name: String = name.trim().chars().filter(|character| !character.is_control()).take(LONGEST_NAME).collect();
        let name = if name.is_empty() { email.split('@').next().unwrap_or_default().to_owned() } else { name };
        Ok(Self { sub: subject(&email), name, email, email_verified })
    }

    pub(super) fn given_name(&self) -> &str {
        self.name.split_whitespace().next().unwrap_or(&self.name)
    }

    pub(super) fn family_name(&self) -> Option<&str> {
        self.name.split_once(char::is_whitespace).map(|(_, family)| family.trim()).filter(|family| !family.is_empty())
    }

    pub(super) fn domain(&self) -> &str {
        self.email.rsplit('@').next().unwrap_or_default()
    }

    /// Returns one or two letters for the picture.
    pub(super) fn initials(&self) -> String {
        let letters = [Some(self.given_name()), self.family_name().and_then(|family| family.split_whitespace().last())];
        letters
            .into_iter()
            .flatten()
            .filter_map(|word| word.chars().next())
            .flat_map(char::to_uppercase)
            .take(3)
            .collect()
    }

    /// Returns a colour of the person's own, as a hue.
    pub(super) fn hue(&self) -> u32 {
        hash::sha256(self.email.as_bytes())[..2].iter().fold(0, |hue, byte| (hue * 256 + u32::from(*byte)) % 360)
    }
}

/// Returns 21 digits that depend on the address, as Google's subjects have.
fn subject(email: &str) -> String {
    let digits =
        hash::sha256(email.as_bytes()).iter().take(20).map(|byte| char::from(b'0' + byte % 10)).collect::<String>();
    format!("1{digits}")
}

/// The accounts in the order in which they were made, kept in a file if there is one.
#[derive(Debug)]
pub(super) struct Accounts {
    list: Vec<Account>,
    file: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct StoredAccounts {
    accounts: Vec<Account>,
}

impl Accounts {
    pub(super) fn load(file: Option<PathBuf>) -> Result<Self, IdentityProviderError> {
        let stored = file.as_deref().map(read).transpose()?.flatten();
        // One account to begin with, so that the first sign-in is one click
        let first = || Account::new("Test User", "test.user@example.com", true).into_iter().collect();
        Ok(Self { list: stored.unwrap_or_else(first), file })
    }

    /// Adds the accounts of people whose address has none. Unlike an account that is added on the
    /// page, it is not saved: the configuration lists it.
    pub(super) fn add_missing(&mut self, people: &[(String, String)]) {
        for (name, email) in people {
            if self.list.len() >= MOST_ACCOUNTS || self.find(email).is_some() {
                continue;
            }
            match Account::new(name, email, true) {
                Ok(account) => self.list.push(account),
                Err(error) => {
                    tracing::warn!(email, error = %error, "a configured person gets no account at the provider")
                }
            }
        }
    }

    pub(super) fn all(&self) -> &[Account] {
        &self.list
    }

    /// Returns the account with this subject or address.
    pub(super) fn find(&self, wanted: &str) -> Option<&Account> {
        self.list.iter().find(|account| account.sub == wanted || account.email.eq_ignore_ascii_case(wanted))
    }

    /// Adds the account, or changes the one with its address.
    ///
    /// # Errors
    ///
    /// A text for the person who filled in the form.
    pub(super) fn put(&mut self, account: Account) -> Result<(), String> {
        let known = self.list.iter().position(|known| known.sub == account.sub);
        match known {
            Some(position) => self.list[position] = account,
            None if self.list.len() == MOST_ACCOUNTS => {
                return Err(format!("There are {MOST_ACCOUNTS} accounts already. Forget one first."));
            }
            None => self.list.push(account),
        }
        self.save()
    }

    /// Removes the account with this subject.
    ///
    /// # Errors
    ///
    /// A text for the person at the page.
    pub(super) fn remove(&mut self, sub: &str) -> Result<(), String> {
        self.list.retain(|account| account.sub != sub);
        self.save()
    }

    fn save(&self) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        write(file, &self.list)
            .map_err(|error| format!("The account could not be saved in {}: {error}.", file.display()))
    }
}

fn read(file: &Path) -> Result<Option<Vec<Account>>, IdentityProviderError> {
    let wrong = |reason: String| IdentityProviderError::Accounts { path: file.to_owned(), reason };
    match std::fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(error.to_string())),
        Ok(metadata) if metadata.len() > LARGEST_FILE => return Err(wrong("it is too large".to_owned())),
        Ok(_) => {}
    }
    let text = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    let stored: StoredAccounts = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(Some(stored.accounts.into_iter().take(MOST_ACCOUNTS).collect()))
}

/// Writes beside the file and renames, so that a crash leaves the old accounts or the new.
fn write(file: &Path, list: &[Account]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let fresh = file.with_extension("json.new");
    let _ = std::fs::remove_file(&fresh);
    let mut out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    out.write_all(&serde_json::to_vec_pretty(&StoredAccounts { accounts: list.to_vec() })?)?;
    out.sync_all()?;
    std::fs::rename(&fresh, file)
}
