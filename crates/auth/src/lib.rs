//! Accounts: everything under /auth/v1
