//! Development stand-ins: identity provider and mailbox
