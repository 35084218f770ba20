//! Resumable uploads: the protocol TUS 1.0.0 with `creation`, `creation-with-upload`,
//! `creation-defer-length`, `termination` and `expiration`.
//!
//! An offset that a response names is durable. The last offset is recorded only after the commit,
//! so that a client that resumes never takes an upload for complete that has no object.
//!
//! Every request tests the permission under the caller's role as an upload does ([`upload::permit`]
//! of `object`), and the commit is that of every upload. An upload belongs to the user who created
//! it. What is unfinished is kept in [`unfinished`].
//!
//! [`upload::permit`]: crate::object::upload::permit
//! [`unfinished`]: crate::unfinished

mod headers;
mod id;
mod metadata;
mod receive;
mod response;
mod routes;
mod session;
mod target;

pub(crate) use self::routes::respond;
pub(crate) use self::target::ResumableTarget;
