//! Which request is being answered, for lines of the log that are written on its way.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;

use http::Method;
use portico_base::RequestId;

thread_local! {
    /// Set while the request's future is polled on this thread.
    static CURRENT: RefCell<Option<CurrentRequest>> = const { RefCell::new(None) };
}

/// A request that is being answered.
#[derive(Debug, Clone)]
pub struct CurrentRequest {
    /// Its id, as it is answered in `x-request-id`.
    pub id: RequestId,
    /// Its method.
    pub method: Method,
}

/// Calls `tell` with the request that this thread is answering just now, if it is answering one. Tasks that a handler starts
/// belong to no request.
pub fn with_current_request<T>(tell: impl FnOnce(&CurrentRequest) -> T) -> Option<T> {
    CURRENT.with(|current| current.try_borrow().ok()?.as_ref().map(tell))
}

/// Runs `work` as the work for `request`, which is given back.
///
/// A span would do the same, but for several times the price: it is registered, formatted and looked up whether anything is logged or not.
pub(crate) async fn during<T>(request: CurrentRequest, work: impl Future<Output = T>) -> (CurrentRequest, T) {
    let mut work = pin!(work);
    let mut kept = Some(request);
    let result = poll_fn(|context| {
        let _place = Place::take(&mut kept);
        work.as_mut().poll(context)
    })
    .await;
    // It is back in its place whenever nobody polls
    (kept.expect("the request is lent during polls only"), result)
}

/// The thread's place for the current request; what stood there before comes back when this is dropped, also by a panic.
struct Place<'a>(&'a mut Option<CurrentRequest>);

impl<'a> Place<'a> {
    fn take(request: &'a mut Option<CurrentRequest>) -> Self {
        CURRENT.with(|current| std::mem::swap(&mut *current.borrow_mut(), request));
        Self(request)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        CURRENT.with(|current| std::mem::swap(&mut *current.borrow_mut(), self.0));
    }
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
    async fn a_request_is_current_while_it_is_worked_for_and_not_between() {
        assert_eq!(current(), None);
        let outer = during(request("request-1"), async {
            assert_eq!(current().as_deref(), Some("request-1"));
            let ((), other) = tokio::join!(
                async {
                    tokio::task::yield_now().await;
                    assert_eq!(current().as_deref(), Some("request-1"));
                },
                during(request("request-2"), async {
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
