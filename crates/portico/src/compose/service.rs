//! A service as the composition sees it: routes, periodic work, and the work before the database is
//! closed.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use portico_base::Clock;
use portico_database::Database;
use portico_gateway::{AccessRules, BoxedResponse, GatewayBuilder, GatewayHeaders};
use portico_tokens::CurrentKeys;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

/// The shared foundation of all services.
#[derive(Clone)]
pub struct Foundation {
    /// The connections to the database.
    pub database: Database,
    /// The keys that sign and verify tokens, and the API keys.
    pub keys: CurrentKeys,
    /// The clock.
    pub clock: Clock,
}

type BoxedFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
type CloseAction = Box<dyn FnOnce() -> BoxedFuture + Send + Sync>;
type MountAction = Box<dyn FnOnce(GatewayBuilder) -> GatewayBuilder + Send>;

/// One service of a server: a value that [`super::Server`] mounts, runs and closes without knowing
/// which service it is.
#[derive(Default)]
pub struct Service {
    mounts: Vec<MountAction>,
    periodic: Vec<BoxedFuture>,
    closing: Vec<CloseAction>,
}

impl Service {
    /// Returns a service without routes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves the paths below `prefix` (`"/auth/v1"`) with `router`, which sees paths without the
    /// prefix.
    #[must_use]
    pub fn mount(mut self, prefix: &'static str, router: Router, access: AccessRules) -> Self {
        self.mounts.push(Box::new(move |gateway| gateway.mount(prefix, router, access)));
        self
    }

    /// Like [`mount`](Self::mount), but with a function in place of a router: for a service on the
    /// hot path that has no routes to choose from.
    #[must_use]
    pub fn mount_function(
        mut self,
        prefix: &'static str,
        respond: impl Fn(Request, GatewayHeaders) -> BoxedResponse + Send + Sync + 'static,
        access: AccessRules,
    ) -> Self {
        self.mounts.push(Box::new(move |gateway| gateway.mount_service(prefix, respond, access)));
        self
    }

    /// Runs `task` every `period`, for the first time a whole period after the start, so that the
    /// start is not slowed down. A run that takes longer than the period delays the next one.
    #[must_use]
    pub fn every<F>(mut self, period: Duration, mut task: impl FnMut() -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        self.periodic.push(Box::pin(async move {
            let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                task().await;
            }
        }));
        self
    }

    /// Runs `task`, which does not end, from the start of the server on.
    #[must_use]
    pub fn run(mut self, task: impl Future<Output = ()> + Send + 'static) -> Self {
        self.periodic.push(Box::pin(task));
        self
    }

    /// Runs `work` after the last request, before the database is closed.
    #[must_use]
    pub fn before_close<F>(mut self, work: impl FnOnce() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.closing.push(Box::new(move || Box::pin(work())));
        self
    }

    /// Adds the routes to a gateway, and returns the rest of the service.
    pub(super) fn mount_on(self, gateway: GatewayBuilder) -> (GatewayBuilder, ServiceWork) {
        let Self { mounts, periodic, closing } = self;
        let gateway = mounts.into_iter().fold(gateway, |gateway, mount| mount(gateway));
        (gateway, ServiceWork { periodic, closing })
    }
}

/// The work of a [`Service`] whose routes are mounted.
pub(super) struct ServiceWork {
    periodic: Vec<BoxedFuture>,
    closing: Vec<CloseAction>,
}

/// The running work of a server's services. The periodic tasks end when this is dropped.
#[derive(Default)]
pub(super) struct Upkeep {
    tasks: Vec<JoinHandle<()>>,
    closing: Vec<CloseAction>,
}

impl Upkeep {
    /// Starts the periodic tasks of a service.
    pub(super) fn start(&mut self, work: ServiceWork) {
        self.tasks.extend(work.periodic.into_iter().map(tokio::spawn));
        self.closing.extend(work.closing);
    }

    /// Ends the periodic tasks and runs the work of [`Service::before_close`], in the order of the
    /// services.
    pub(super) async fn close(mut self) {
        self.abort_tasks();
        for work in std::mem::take(&mut self.closing) {
            work().await;
        }
    }

    fn abort_tasks(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.abort_tasks();
    }
}

/// Returns a stand-in for a service that this version does not have: every path below `prefix`
/// responds with `rejection`.
///
/// The responses are those of the real service for a feature that is turned off, in JSON with a
/// code: client libraries read such a body, and an application can distinguish it from a wrong
/// address.
#[must_use]
pub(super) fn unavailable(prefix: &'static str, rejection: fn() -> Response) -> Service {
    // Without a limit a long body is rejected for the same reason as a short one, not for its
    // length
    let access = AccessRules::keyed().body_limit(usize::MAX);
    Service::new().mount(prefix, Router::new().fallback(async move || rejection()), access)
}

/// Returns an error response with a JSON body.
pub(super) fn json_error(status: StatusCode, body: &Value) -> Response {
    (status, axum::Json(body)).into_response()
}
