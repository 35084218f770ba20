//! The stored password of an account, and its comparison.

use crate::error::AuthError;
use crate::model::User;
use crate::password::Passwords;
use crate::protection::column_encryption::{ColumnKeys, DecryptedColumn};

/// Returns the hash of the password of an account. `None`: there is none, or it cannot be
/// decrypted, which is logged.
pub(crate) fn stored_password(columns: &ColumnKeys, user: &User) -> Option<DecryptedColumn> {
    match columns.decrypt(user.id.0, &user.encrypted_password) {
        Ok(opened) => Some(opened).filter(|opened| !opened.text.is_empty()),
        Err(error) => {
            tracing::error!(user.id = %user.id, error = %error, "the password of an account could not be decrypted");
            None
        }
    }
}

impl Passwords {
    /// Compares a password with that of an account; takes as long for an account without one.
    ///
    /// # Errors
    /// 429 when the queue is full.
    pub(crate) async fn is_password_of(
        &self,
        columns: &ColumnKeys,
        user: &User,
        password: &str,
    ) -> Result<bool, AuthError> {
        let stored = stored_password(columns, user);
        Ok(self.compare(password, stored.as_ref().map(|stored| stored.text.as_str())).await?.matches)
    }
}
