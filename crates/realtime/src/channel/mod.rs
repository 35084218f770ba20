//! Channels: the messages of a client on them, and their state.
//!
//! - `channels`: the channels of one socket, and the order of their messages
//! - `join`, `broadcast`, `presence`, `tokens`: the messages by kind, and `reply` the answers
//! - `join_payload`: the payload of `phx_join`
//! - `joined`: one channel
//! - `work`: what a channel waits for, such as the policies: it runs beside the socket, and the
//!   channel's later messages wait for it

mod broadcast;
mod channels;
mod join;
mod join_payload;
mod joined;
mod presence;
mod reply;
#[cfg(test)]
mod tests;
mod tokens;
mod work;

pub(crate) use channels::SocketChannels;
