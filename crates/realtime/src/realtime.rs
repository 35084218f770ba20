//! The public interface of the service.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use tokio::sync::mpsc;

use crate::broadcast;
use crate::connection::RequestOrigin;
use crate::routes;
use crate::service::{RealtimeFoundation, RealtimeService};
use crate::settings::RealtimeSettings;
use crate::stream::StreamConsumers;

/// The transactions that wait for a consumer of the stream.
const STREAM_QUEUE: usize = 64;

/// The realtime service. Clones share all state.
#[derive(Clone)]
pub struct Realtime {
    service: Arc<RealtimeService>,
}

impl Realtime {
    /// Makes the service, and starts the tasks that deliver what the database sends. Needs a Tokio
    /// runtime.
    #[must_use]
    pub fn new(settings: RealtimeSettings, foundation: RealtimeFoundation) -> Self {
        let (changes_sender, changes) = mpsc::channel(STREAM_QUEUE);
        let (messages_sender, messages) = mpsc::channel(STREAM_QUEUE);
        let consumers = StreamConsumers { changes: changes_sender, messages: messages_sender };
        let database = foundation.database.clone();
        let service = RealtimeService::start(settings, foundation, consumers);
        tokio::spawn(broadcast::database::deliver_messages(database, Arc::downgrade(&service), messages));
        tokio::spawn(service.changes.clone().run(changes));
        Self { service }
    }

    /// Responds to a request below `/realtime/v1`; its path comes without that prefix.
    pub async fn respond(self, request: Request, origin: RequestOrigin) -> Response {
        routes::respond(&self.service, request, origin).await
    }

    /// Maintains averages, and follows the keys. It does not return.
    pub async fn maintain(self) {
        self.service.maintain().await;
    }

    /// Leaves the other servers. Call it before the database is closed.
    pub async fn leave_cluster(&self) {
        self.service.leave_cluster().await;
    }

    /// Closes every socket with the code of a restart, and rejects joins from now on. The closes
    /// are spread over a time, at most `within`, so that the clients do not return in one instant.
    /// Returns the time that is left for them; a further call changes nothing. Needs a Tokio
    /// runtime.
    pub fn close(&self, within: Duration) -> Duration {
        self.service.close(within)
    }

    /// Returns the number of open sockets.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.service.open_sockets()
    }
}
