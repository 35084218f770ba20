//! One WebSocket, as the rest of the crate sees it.
//!
//! - `frame`: frames of both protocol versions from bytes and to bytes, without any state
//! - `close_spread`: the times at which many sockets are closed
//! - `head` and `end`: its properties from the handshake, and the reason why the server closes it
//! - `outbox`: the frames that wait for one client, shared with all that send to it
//! - `deferred_wakes`: wake-ups of the tasks of many sockets, made together
//! - `frame_memory`: the memory of the frames that wait for all clients together

mod close_spread;
mod deferred_wakes;
mod end;
pub(crate) mod frame;
mod frame_memory;
mod head;
pub(crate) mod outbox;

pub(crate) use close_spread::CloseSpread;
pub(crate) use deferred_wakes::DeferredWakes;
pub(crate) use end::SocketEnd;
pub(crate) use frame_memory::FrameMemory;
pub(crate) use head::SocketHead;
