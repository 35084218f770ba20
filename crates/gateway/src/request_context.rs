//! The request that the running task answers, so that every line logged on its behalf can name it.

use std::future::Future;
use std::pin::pin;

use http::Method;
use portico_base::RequestId;

tokio::task_local! {
    static CURRENT: CurrentRequest;
}

/// A request that is being answered.
#[derive(Debug, Clone)]
pub struct CurrentRequest {
    /// Its id, as it is returned in `x-request-id`.
    pub id: RequestId,
    /// Its method.
    pub method: Method,
}

/// Calls `read` with the request that the running task answers. Returns `None` outside of a
/// request; tasks that a handler spawns belong to no request.
pub fn with_current_request<T>(read: impl FnOnce(&CurrentRequest) -> T) -> Option<T> {
    CURRENT.try_with(read).ok()
}

/// Runs `work` with `request` as the current one, and returns the request with the result.
///
/// A span would serve the same purpose at several times the cost: the subscriber registers, formats
/// and looks it up even if nothing is logged.
pub(crate) async fn with_request<T>(request: CurrentRequest, work: impl Future<Output = T>) -> (CurrentRequest, T) {
    let mut scope = pin!(CURRENT.scope(request, work));
    let result = scope.as_mut().await;
    // It is lent to the task-local only while the future is polled
    (scope.take_value().expect("a completed scope still holds its value"), result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str) -> CurrentRequest {
        CurrentRequest { id: RequestId::parse(id).expect("an id"), method: Method::GET }
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
}
