//! The request that the running task responds to, so that every line logged on its behalf can name
//! it.

use std::borrow::Cow;
use std::future::Future;
use std::pin::pin;

use tokio::task::JoinHandle;

use crate::RequestId;

tokio::task_local! {
    static CURRENT: CurrentRequest;
}

/// A request in progress.
#[derive(Debug, Clone)]
pub struct CurrentRequest {
    /// Its id, as it is returned in `x-request-id`.
    pub id: RequestId,
    /// The name of its method.
    pub method: Cow<'static, str>,
}

/// Calls `read` with the request that the running task responds to. Returns `None` outside of a
/// request. A task that a handler spawns belongs to the request only through [`inherit_request`].
pub fn with_current_request<T>(read: impl FnOnce(&CurrentRequest) -> T) -> Option<T> {
    CURRENT.try_with(read).ok()
}

/// Runs `work` with `request` as the current one, and returns the request with the result.
///
/// A span would serve the same purpose at several times the cost: the subscriber registers, formats
/// and looks it up even if nothing is logged.
pub async fn with_request<T>(request: CurrentRequest, work: impl Future<Output = T>) -> (CurrentRequest, T) {
    let mut scope = pin!(CURRENT.scope(request, work));
    let result = scope.as_mut().await;
    // It is lent to the task-local only while the future is polled
    (scope.take_value().expect("a completed scope still holds its value"), result)
}

/// Returns `work` as a part of the current request, for a task of its own.
///
/// A task-local does not pass to the tasks that are spawned, so without this their log lines have
/// no request id.
pub fn inherit_request<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let request = with_current_request(CurrentRequest::clone);
    async move {
        match request {
            Some(request) => CURRENT.scope(request, work).await,
            None => work.await,
        }
    }
}

/// Returns `work` as a part of the current request, for another thread: [`inherit_request`] for
/// work that may block.
pub fn inherit_request_blocking<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let request = with_current_request(CurrentRequest::clone);
    move || match request {
        Some(request) => CURRENT.sync_scope(request, work),
        None => work(),
    }
}

/// Runs `work` on a thread that may block, as a part of the current request. Its log lines have the
/// id of the request, as those of a task with [`inherit_request`].
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    #[expect(clippy::disallowed_methods, reason = "the request goes along here")]
    tokio::task::spawn_blocking(inherit_request_blocking(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str) -> CurrentRequest {
        CurrentRequest { id: RequestId::parse(id).expect("an id"), method: "GET".into() }
    }

    fn current() -> Option<String> {
        with_current_request(|current| current.id.to_string())
    }

    #[tokio::test]
    async fn a_request_is_current_only_while_its_future_is_polled() {
        assert_eq!(current(), None);
        let outer = with_request(request("request-1"), async {
            assert_eq!(current().as_deref(), Some("request-1"));
            let ((), other) = tokio::join!(
                async {
                    tokio::task::yield_now().await;
                    assert_eq!(current().as_deref(), Some("request-1"));
                },
                with_request(request("request-2"), async {
                    tokio::task::yield_now().await;
                    current()
                })
            );
            assert_eq!(other.1.as_deref(), Some("request-2"));
            tokio::spawn(async { current() }).await.expect("it does not panic")
        });
        let (given_back, in_a_task) = outer.await;
        assert_eq!((given_back.id.as_str(), in_a_task), ("request-1", None));
        assert_eq!(current(), None);
    }

    #[tokio::test]
    async fn a_spawned_task_inherits_the_request_that_spawns_it() {
        let (sender, in_a_task) = tokio::sync::oneshot::channel();
        with_request(request("request-1"), async {
            tokio::spawn(inherit_request(async {
                tokio::task::yield_now().await;
                sender.send(current())
            }));
        })
        .await;
        assert_eq!(in_a_task.await.unwrap().as_deref(), Some("request-1"), "it outlives the request");
        assert_eq!(tokio::spawn(inherit_request(async { current() })).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_thread_that_may_block_inherits_the_request_that_starts_it() {
        let (_, seen) = with_request(request("request-1"), async { spawn_blocking(current).await }).await;
        assert_eq!(seen.unwrap().as_deref(), Some("request-1"));
        // Perhaps on the same thread
        assert_eq!(spawn_blocking(current).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_task_spawned_while_a_request_is_dropped_inherits_it() {
        struct SpawnOnDrop(tokio::sync::mpsc::UnboundedSender<Option<String>>);
        impl Drop for SpawnOnDrop {
            fn drop(&mut self) {
                let sender = self.0.clone();
                tokio::spawn(inherit_request(async move { sender.send(current()) }));
            }
        }
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let guard = SpawnOnDrop(sender);
        let abandoned = with_request(request("request-1"), async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), abandoned).await.is_err());
        assert_eq!(receiver.recv().await.unwrap().as_deref(), Some("request-1"));
    }
}
