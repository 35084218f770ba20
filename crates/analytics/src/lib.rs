//! The built-in collector of product events
