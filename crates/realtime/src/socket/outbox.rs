//! The outbox of a socket: what waits to be written to one client, and what its task has to do.
//!
//! Everything that sends to a client puts frames here, from any thread; the task of the socket
//! takes them out. The outbox is bounded, and so are all together: a client that does not read is
//! disconnected instead of filling the memory.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::runtime::Handle;

use super::deferred_wakes::DeferredWakes;
use super::end::SocketEnd;
use super::frame::Frame;
use super::frame_memory::FrameMemory;
use crate::error::Shutdown;
use crate::ids::ChannelId;
use crate::settings::RealtimeLimits;

/// Work for the task of a socket, apart from writing frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SocketCommand {
    /// Ends a channel: a `system` error and `phx_close`.
    ShutDown(ChannelId, Shutdown),
    /// Checks the tokens of the channels: a key may have been revoked. A socket whose own token is
    /// void ends its channels at once, and is closed after this time.
    CheckTokens { close_after: Duration },
    /// Announces the end to the channels, and closes the socket after the frames that wait.
    Disconnect(SocketEnd),
}

/// The frames and commands that wait for one client.
#[derive(Debug)]
pub(crate) struct Outbox {
    waiting: Mutex<OutboxContent>,
    waker: AtomicWaker,
    /// The runtime of the socket's task.
    runtime: Option<Handle>,
    max_bytes: usize,
    max_frames: usize,
    /// Counts the frames of all sockets.
    memory: Arc<FrameMemory>,
    /// The bytes that the channels of the socket track. The presence counts them.
    pub tracked_bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct OutboxContent {
    frames: VecDeque<Frame>,
    commands: Vec<SocketCommand>,
    bytes: usize,
    /// The client does not read at the moment.
    blocked: bool,
    /// The client was too slow, or the socket has ended.
    closed: bool,
}

/// The next piece of work of a socket's task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OutboxItem {
    Frame(Frame),
    Command(SocketCommand),
    /// Nothing waits.
    Empty,
    /// The client does not read: the connection is to be dropped.
    Overflowed,
}

impl Outbox {
    /// Returns an empty outbox of a socket whose task runs on the current runtime. Its frames count
    /// in `memory`.
    pub fn new(limits: &RealtimeLimits, memory: &Arc<FrameMemory>) -> Self {
        Self {
            waiting: Mutex::default(),
            waker: AtomicWaker::new(),
            runtime: Handle::try_current().ok(),
            max_bytes: limits.max_waiting_bytes,
            max_frames: limits.max_waiting_frames,
            memory: Arc::clone(memory),
            tracked_bytes: AtomicUsize::new(0),
        }
    }

    /// Returns the memory that the frames count in.
    pub fn memory(&self) -> &Arc<FrameMemory> {
        &self.memory
    }

    /// Adds a frame, which its maker has counted in the [`memory`](Self::memory). The first one is
    /// always accepted; one that exceeds the bounds closes the outbox.
    pub fn push(&self, frame: Frame) {
        self.push_within(frame, 1);
    }

    /// Adds frames like [`push`](Self::push), but leaves the wake-up of the task to `wakes`.
    pub fn push_all(&self, frames: &[Frame], wakes: &mut DeferredWakes) {
        let mut waiting = self.waiting();
        let mut wakes_task = false;
        for frame in frames {
            wakes_task |= self.put(&mut waiting, frame.clone(), 1);
        }
        drop(waiting);
        if !wakes_task {
            return;
        }
        match &self.runtime {
            Some(runtime) => self.waker.take().into_iter().for_each(|waker| wakes.add(runtime, waker)),
            None => self.waker.wake(),
        }
    }

    /// Adds a frame for this client alone, and counts it.
    pub fn push_own(&self, frame: Frame) {
        self.push(self.memory.count(frame));
    }

    /// Adds a frame that the client itself has caused, and counts it. It may exceed the bounds of
    /// the frames that others send, which the client did not ask for, but not twice these bounds:
    /// joins whose permissions were being checked are answered also while the client does not read.
    pub fn push_reply(&self, frame: Frame) {
        self.push_within(self.memory.count(frame), 2);
    }

    fn push_within(&self, frame: Frame, factor: usize) {
        let wakes_task = self.put(&mut self.waiting(), frame, factor);
        if wakes_task {
            self.waker.wake();
        }
    }

    /// Adds a frame, or closes the outbox if more than `factor` times the bounds would wait.
    /// Returns true if the task has to be woken.
    fn put(&self, waiting: &mut OutboxContent, frame: Frame, factor: usize) -> bool {
        if waiting.closed {
            return false;
        }
        let bytes = waiting.bytes.saturating_add(frame.len());
        let (max_bytes, max_frames) = (self.max_bytes.saturating_mul(factor), self.max_frames.saturating_mul(factor));
        let is_beyond = !waiting.frames.is_empty() && (bytes > max_bytes || waiting.frames.len() >= max_frames);
        if is_beyond || waiting.blocked && self.memory.is_exceeded() {
            waiting.close();
            return true;
        }
        waiting.bytes = bytes;
        waiting.frames.push_back(frame);
        // The task was woken for the frame before
        waiting.frames.len() == 1
    }

    /// Adds a command, which is carried out before the frames that wait.
    pub fn command(&self, command: SocketCommand) {
        let mut waiting = self.waiting();
        if waiting.closed || waiting.commands.contains(&command) {
            return;
        }
        waiting.commands.push(command);
        drop(waiting);
        self.waker.wake();
    }

    /// Takes the next piece of work. When there is none, `waker` is woken by the next one.
    pub fn next(&self, waker: &Waker) -> OutboxItem {
        let taken = self.waiting().take();
        if taken != OutboxItem::Empty {
            return taken;
        }
        self.waker.register(waker);
        // Between the first look and the registration something may have come
        self.waiting().take()
    }

    /// Like [`next`](Self::next), but without frames: for a client that does not read at the
    /// moment.
    pub fn next_command(&self, waker: &Waker) -> OutboxItem {
        self.waker.register(waker);
        let mut waiting = self.waiting();
        waiting.blocked = true;
        if waiting.closed {
            OutboxItem::Overflowed
        } else if waiting.commands.is_empty() {
            OutboxItem::Empty
        } else {
            OutboxItem::Command(waiting.commands.remove(0))
        }
    }

    /// Takes all frames, for a last write before the socket is closed.
    pub fn take_frames(&self) -> VecDeque<Frame> {
        let mut waiting = self.waiting();
        waiting.bytes = 0;
        std::mem::take(&mut waiting.frames)
    }

    /// Drops what waits, and everything that comes later.
    pub fn close(&self) {
        self.waiting().close();
    }

    fn waiting(&self) -> MutexGuard<'_, OutboxContent> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutboxContent {
    fn take(&mut self) -> OutboxItem {
        if self.closed {
            return OutboxItem::Overflowed;
        }
        self.blocked = false;
        if !self.commands.is_empty() {
            return OutboxItem::Command(self.commands.remove(0));
        }
        match self.frames.pop_front() {
            Some(frame) => {
                self.bytes -= frame.len();
                if self.frames.is_empty() && self.frames.capacity() > 64 {
                    self.frames = VecDeque::new();
                }
                OutboxItem::Frame(frame)
            }
            None => OutboxItem::Empty,
        }
    }

    fn close(&mut self) {
        *self = Self { closed: true, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn frame(bytes: usize) -> Frame {
        Frame::Binary(Bytes::from(vec![0; bytes]))
    }

    fn outbox() -> Outbox {
        outbox_in(&FrameMemory::new(usize::MAX))
    }

    fn outbox_in(memory: &Arc<FrameMemory>) -> Outbox {
        let limits = RealtimeLimits { max_waiting_bytes: 100, max_waiting_frames: 3, ..RealtimeLimits::default() };
        Outbox::new(&limits, memory)
    }

    #[test]
    fn frames_leave_in_order_and_commands_before_them() {
        let outbox = outbox();
        outbox.push(frame(1));
        outbox.push(frame(2));
        let end = SocketEnd { code: 1012, reason: "" };
        outbox.command(SocketCommand::Disconnect(end.clone()));
        let waker = Waker::noop();
        assert_eq!(outbox.next(waker), OutboxItem::Command(SocketCommand::Disconnect(end)));
        assert_eq!(outbox.next(waker), OutboxItem::Frame(frame(1)));
        assert_eq!(outbox.next(waker), OutboxItem::Frame(frame(2)));
        assert_eq!(outbox.next(waker), OutboxItem::Empty);
    }

    #[test]
    fn a_client_that_does_not_read_is_cut_off() {
        let by_bytes = outbox();
        by_bytes.push(frame(1_000));
        assert_eq!(by_bytes.next(Waker::noop()), OutboxItem::Frame(frame(1_000)), "a frame of any size");
        by_bytes.push(frame(60));
        by_bytes.push(frame(60));
        assert_eq!(by_bytes.next(Waker::noop()), OutboxItem::Overflowed);
        let by_frames = outbox();
        (0..4).for_each(|_| by_frames.push(frame(1)));
        assert_eq!(by_frames.next(Waker::noop()), OutboxItem::Overflowed);
        by_frames.push(frame(1));
        assert_eq!(by_frames.next(Waker::noop()), OutboxItem::Overflowed, "for good");
    }

    #[test]
    fn clients_that_do_not_read_are_cut_off_when_too_much_waits_for_all() {
        let memory = FrameMemory::new(100);
        let [reads, blocked, own] = [outbox_in(&memory), outbox_in(&memory), outbox_in(&memory)];
        assert_eq!(blocked.next_command(Waker::noop()), OutboxItem::Empty);
        let (shared, elsewhere) = (memory.count(frame(20)), memory.count(frame(60)));
        [&reads, &blocked].into_iter().for_each(|outbox| outbox.push(shared.clone()));
        // Shared bytes are there once: 100 wait, and far fewer than that in each outbox
        blocked.push_own(frame(20));
        assert!(!memory.is_exceeded());
        assert_eq!(blocked.next_command(Waker::noop()), OutboxItem::Empty);
        own.push_reply(frame(30));
        assert!(memory.is_exceeded());
        [&reads, &blocked].into_iter().for_each(|outbox| outbox.push(shared.clone()));
        assert_eq!(blocked.next_command(Waker::noop()), OutboxItem::Overflowed);
        assert_eq!(reads.next(Waker::noop()), OutboxItem::Frame(frame(20)));
        drop(elsewhere);
        assert_eq!(own.next(Waker::noop()), OutboxItem::Frame(frame(30)));
    }

    #[test]
    fn a_client_that_reads_again_is_not_cut_off() {
        let memory = FrameMemory::new(100);
        let outbox = outbox_in(&memory);
        assert_eq!(outbox.next_command(Waker::noop()), OutboxItem::Empty);
        assert_eq!(outbox.next(Waker::noop()), OutboxItem::Empty);
        let _elsewhere = memory.count(frame(101));
        outbox.push_own(frame(10));
        assert_eq!(outbox.next(Waker::noop()), OutboxItem::Frame(frame(10)));
    }

    #[test]
    fn replies_may_wait_up_to_twice_the_bounds() {
        let by_bytes = outbox();
        by_bytes.push(frame(100));
        by_bytes.push_reply(frame(100));
        assert_eq!(by_bytes.next(Waker::noop()), OutboxItem::Frame(frame(100)));
        by_bytes.push_reply(frame(100));
        by_bytes.push_reply(frame(1));
        assert_eq!(by_bytes.next(Waker::noop()), OutboxItem::Overflowed);
        let by_frames = outbox();
        (0..6).for_each(|_| by_frames.push_reply(frame(1)));
        assert_eq!(by_frames.next(Waker::noop()), OutboxItem::Frame(frame(1)));
        (0..2).for_each(|_| by_frames.push_reply(frame(1)));
        assert_eq!(by_frames.next(Waker::noop()), OutboxItem::Overflowed);
        let replies_first = outbox();
        (0..4).for_each(|_| replies_first.push_reply(frame(1)));
        replies_first.push(frame(1));
        assert_eq!(replies_first.next(Waker::noop()), OutboxItem::Overflowed, "no room is left for others");
    }

    #[tokio::test]
    async fn the_task_of_a_socket_is_woken_once_when_all_of_its_frames_are_there() {
        let outbox = Arc::new(outbox());
        let reader = Arc::clone(&outbox);
        let task = tokio::spawn(async move {
            std::future::poll_fn(|context| match reader.next(context.waker()) {
                OutboxItem::Empty => std::task::Poll::Pending,
                item => std::task::Poll::Ready(item),
            })
            .await;
            reader.take_frames().len()
        });
        tokio::task::yield_now().await;
        let mut wakes = DeferredWakes::default();
        outbox.push_all(&[frame(1), frame(2)], &mut wakes);
        // The task would run now
        tokio::task::yield_now().await;
        outbox.push_all(&[frame(3)], &mut wakes);
        drop(wakes);
        assert_eq!(task.await.unwrap(), 2, "besides the first one");
    }
}
