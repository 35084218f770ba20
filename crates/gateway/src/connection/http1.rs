//! Serves a connection by HTTP/1.1.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::limits::{HEAD_BUFFER, TimeLimits};
use super::long_request::LongRequests;
use super::request_line::{BodyLength, Calls, ConnectionStanding, RequestInFlight, RequestLines};
use super::serve::Serve;
use super::service::{ConnectionService, ResponseBody};

/// The time for which a client may go on sending after a response that came before the end of the
/// request, so that it can read the response: a connection that is closed while data arrives loses
/// what was sent last (RFC 9112, 9.6).
const LINGER: Duration = Duration::from_secs(10);
/// The same, without a byte arriving.
const LINGER_SILENCE: Duration = Duration::from_secs(2);

/// Serves a connection by HTTP/1.1.
///
/// When it has been idle for a while, the memory that the HTTP library keeps for it (two buffers of
/// 8 KiB, room for a response) is released, and only the socket remains. The library starts again
/// when data arrives; between two requests that makes no difference. It is released as well while a
/// long body is read without it.
pub(super) async fn http1_connection(
    mut stream: RequestLines<TcpStream>,
    service: ConnectionService<impl Serve>,
    mut end: Pin<&mut impl Future<Output = ()>>,
    calls: &Arc<Calls>,
    limits: TimeLimits,
) -> hyper::Result<()> {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(HEAD_BUFFER);
    let long_requests = Arc::new(LongRequests::default());
    loop {
        let respond = {
            let (service, calls, long_requests) = (service.clone(), Arc::clone(calls), Arc::clone(&long_requests));
            hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
                let step = Step::next(request, &service, &calls, &long_requests);
                step.run(service.clone())
            })
        };
        let mut http = Box::new(builder.serve_connection(TokioIo::new(stream), respond).with_upgrades());
        let mut seen = None;
        let long_request = loop {
            tokio::select! {
                biased;
                result = http.as_mut() => {
                    if calls.is_within_request()
                        && let Some(parts) = http.into_parts()
                    {
                        // On the heap, since few connections need it
                        let lingering = Box::pin(linger(parts.io.into_inner()));
                        futures_util::future::select(lingering, end).await;
                    }
                    return result;
                }
                // Changes while the library is polled, in this task
                () = when(|| calls.is_handed_over()) => break long_requests.take(),
                () = end.as_mut() => {
                    if calls.standing() != ConnectionStanding::Busy {
                        return Ok(());
                    }
                    Pin::new(http.as_mut()).graceful_shutdown();
                    return http.await;
                }
                () = tokio::time::sleep(limits.rest) => {}
            }
            let now = calls.at_rest();
            if now.is_some() && now == seen {
                break None;
            }
            seen = now;
        };
        stream = {
            // An upgraded connection belongs to the service that upgraded it
            let Some(parts) = http.into_parts() else { return Ok(()) };
            if long_request.is_some() && !parts.read_buf.is_empty() {
                // Never the case: nothing is passed on to the library behind the head. The length
                // of the body would not count these bytes
                return Ok(());
            }
            let mut stream = parts.io.into_inner();
            stream.unread(parts.read_buf);
            stream
        };
        if let Some(request) = long_request {
            calls.end_hand_over();
            // On the heap, since few connections need it
            let responding = Box::pin(request.respond(stream, service.clone(), Arc::clone(&long_requests)));
            let Some(returned) = responding.await else { return Ok(()) };
            stream = *returned;
        } else if stream.is_used_up() {
            tracing::trace!("a connection is idle: its buffers are released");
            let idle = limits.idle.saturating_sub(limits.rest * 2);
            tokio::select! {
                // The library detects the end of the connection
                readable = tokio::time::timeout(idle, stream.stream().readable()) => match readable {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => return Ok(()),
                },
                () = end.as_mut() => return Ok(()),
            }
        }
    }
}

/// Waits in a task that other parts of it wake.
async fn when(is_so: impl Fn() -> bool) {
    std::future::poll_fn(|_| if is_so() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// The step that follows when the library has read the head of a request.
enum Step {
    /// The service responds.
    Respond { request: hyper::Request<Incoming>, in_flight: RequestInFlight, upgrading: Option<Arc<Calls>> },
    /// The body is read without the library, which is dropped.
    HandOver,
    /// The response to the request that was handed over before is written.
    Write(Response<ResponseBody>),
}

impl Step {
    fn next(
        mut request: hyper::Request<Incoming>,
        service: &ConnectionService<impl Serve>,
        calls: &Arc<Calls>,
        long_requests: &LongRequests,
    ) -> Self {
        if let Some(response) = long_requests.take_response() {
            return Self::Write(response);
        }
        let may_upgrade = request.extensions().get::<OnUpgrade>().is_some();
        let length = body_length(&request);
        let in_flight = calls.begins(length, may_upgrade);
        match length {
            BodyLength::Known(size) if !may_upgrade && long_requests.takes(size, service, &request) => {
                calls.begin_hand_over();
                long_requests.begin(request, size, in_flight);
                Self::HandOver
            }
            _ => {
                if may_upgrade {
                    request.extensions_mut().insert(service.guard.clone());
                }
                Self::Respond { request, in_flight, upgrading: may_upgrade.then(|| Arc::clone(calls)) }
            }
        }
    }

    async fn run(self, service: ConnectionService<impl Serve>) -> Result<Response<ResponseBody>, Infallible> {
        match self {
            Self::Respond { request, in_flight, upgrading } => {
                let response = service.respond(request).await;
                if let Some(calls) = upgrading {
                    calls.decide_upgrade(response.status() == StatusCode::SWITCHING_PROTOCOLS);
                }
                Ok(response.map(|body| ResponseBody { body, _in_flight: in_flight }))
            }
            Self::HandOver => std::future::pending().await,
            Self::Write(response) => Ok(response),
        }
    }
}

/// Reads and discards the rest of a request that has its response already, within bounds.
async fn linger(stream: RequestLines<TcpStream>) {
    if stream.is_cut_off() {
        return;
    }
    let mut stream = stream.into_stream();
    let mut scratch = vec![0; 16 * 1024];
    let read =
        async { while let Ok(Ok(1..)) = tokio::time::timeout(LINGER_SILENCE, stream.read(&mut scratch)).await {} };
    let _ = tokio::time::timeout(LINGER, read).await;
}

/// Returns the length of the request's body on the connection: a body without a length is in chunks
/// (RFC 9112, 6.3).
fn body_length(request: &hyper::Request<Incoming>) -> BodyLength {
    request.body().size_hint().exact().map_or(BodyLength::Chunked, BodyLength::Known)
}
