//! The limit of broadcasts: a server on the same socket library that writes the same frames to the
//! same sockets, and does nothing else: no tokens, no permissions, no limits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_websockets::{Config, Message, ServerBuilder};

type Room = Vec<UnboundedSender<Bytes>>;
type Rooms = Arc<Mutex<HashMap<Bytes, Room>>>;

/// The bare server. It ends when this is dropped.
pub struct BareServer {
    address: String,
    _ended: tokio::sync::oneshot::Sender<()>,
}

impl BareServer {
    /// Starts it on two threads, each with its own runtime, as Portico serves sockets.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (ended, mut end) = tokio::sync::oneshot::channel();
        let rooms = Rooms::default();
        let threads: Vec<UnboundedSender<std::net::TcpStream>> = (0..2).map(|_| serve_on_thread(&rooms)).collect();
        tokio::spawn(async move {
            for number in 0_usize.. {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok(Ok(stream)) = accepted.map(|(stream, _)| stream.into_std()) else { return };
                        let _ = threads[number % threads.len()].send(stream);
                    }
                    _ = &mut end => return,
                }
            }
        });
        Ok(Self { address, _ended: ended })
    }

    /// Returns its address.
    pub fn address(&self) -> &str {
        &self.address
    }
}

fn serve_on_thread(rooms: &Rooms) -> UnboundedSender<std::net::TcpStream> {
    let (sender, mut streams) = unbounded_channel::<std::net::TcpStream>();
    let rooms = Arc::clone(rooms);
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            while let Some(stream) = streams.recv().await {
                if let Ok(stream) = TcpStream::from_std(stream) {
                    tokio::spawn(serve(stream, Arc::clone(&rooms)));
                }
            }
        });
    });
    sender
}

async fn serve(stream: TcpStream, rooms: Rooms) {
    let _ = stream.set_nodelay(true);
    let server = ServerBuilder::new().config(Config::default().flush_threshold(64 * 1024));
    let Ok((_, mut socket)) = server.accept(stream).await else { return };
    let (sender, mut frames): (_, UnboundedReceiver<Bytes>) = unbounded_channel();
    let mut waiting = Vec::new();
    loop {
        tokio::select! {
            message = socket.next() => {
                let Some(Ok(message)) = message else { return };
                let is_text = message.is_text();
                let payload = Bytes::from(message.into_payload());
                if is_text {
                    // A join: its topic is the third element
                    let topic = payload.split(|byte| *byte == b'"').nth(5).unwrap_or_default();
                    let topic = Bytes::copy_from_slice(topic);
                    rooms.lock().unwrap_or_else(PoisonError::into_inner).entry(topic).or_default().push(sender.clone());
                    let reply = r#"["1","1","t","phx_reply",{"status":"ok"}]"#;
                    if socket.send(Message::text(reply)).await.is_err() {
                        return;
                    }
                } else {
                    let topic = usize::from(payload[3]);
                    let (start, end) = (9, 9 + topic);
                    let topic = payload.slice(start..end);
                    let mut frame = BytesMut::with_capacity(payload.len());
                    frame.put_slice(&[4, payload[3], 1, 0, 1]);
                    frame.put_slice(&payload[start..]);
                    let frame = frame.freeze();
                    let rooms = rooms.lock().unwrap_or_else(PoisonError::into_inner);
                    for member in rooms.get(&topic).into_iter().flatten().filter(|member| !member.same_channel(&sender)) {
                        let _ = member.send(frame.clone());
                    }
                }
            }
            count = frames.recv_many(&mut waiting, 256) => {
                if count == 0 {
                    return;
                }
                for frame in waiting.drain(..) {
                    if socket.feed(Message::binary(frame)).await.is_err() {
                        return;
                    }
                }
                if socket.flush().await.is_err() {
                    return;
                }
            }
        }
    }
}
