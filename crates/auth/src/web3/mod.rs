//! Sign-in with the wallet of a blockchain.

#![allow(dead_code)]

mod message;
mod signature;
