//! `auth.users`.
//!
//! Every update names only the columns that change and `updated_at`, so that triggers of
//! applications (`after update of email`) see what they expect.

tables! {
    mod account;
    mod administration;
    mod anonymous;
    mod contacts;
    mod lookup;
    mod ownership;
}

pub use account::*;
pub use administration::*;
pub use anonymous::*;
pub use contacts::*;
pub use lookup::*;
pub use ownership::*;
