//! Rendering beside the threads of requests: bounded in threads and in waiting requests, once for
//! equal requests at one time, with results kept on disk.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use portico_base::CappedSemaphore;
use portico_base::{inherit_request, spawn_blocking};
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use crate::render_key::{RenderKey, RenderSource};
use crate::{
    OutputFormat, RenderControl, RenderError, RenderLimits, RenderedImage, RequestedFormat, ResultCache, Transformation,
};

/// The settings of a [`Renderer`].
#[derive(Debug, Clone)]
pub struct RendererSettings {
    /// The bounds of one rendering.
    pub limits: RenderLimits,
    /// The time for one rendering, from the moment at which it is queued.
    pub time_limit: Duration,
    /// Renderings at one time. Each may take [`RenderLimits::max_memory`] and half as much again.
    pub workers: usize,
    /// Renderings that wait for a worker. Further ones are rejected.
    pub queue: usize,
}

impl Default for RendererSettings {
    /// Returns the time limit of the wire contract, and a worker for each core, at most four.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { limits: RenderLimits::default(), time_limit: Duration::from_secs(15), workers: cores.min(4), queue: 64 }
    }
}

/// Renders images. Clones share the workers, the queue and the cache.
///
/// One client has at most half of the places of renderings that wait or run, so that it leaves
/// others room. A request that joins a rendering under way needs no place.
///
/// It does not know who asks: callers decide permission before each call, whether or not a result
/// is kept already.
#[derive(Clone)]
pub struct Renderer {
    shared: Arc<RendererState>,
    client: Arc<str>,
}

struct RendererState {
    settings: RendererSettings,
    cache: Option<ResultCache>,
    workers: Arc<Semaphore>,
    /// Places of renderings that wait or run.
    places: CappedSemaphore,
    /// The renderings under way. An entry without strong references is one that all callers left.
    under_way: Mutex<HashMap<RenderKey, Weak<SharedRendering>>>,
    /// The sources in use: of renderings under way, and of those that all callers left and whose
    /// thread is still busy.
    sources: Mutex<HashMap<u64, SourceUse>>,
    next_id: AtomicU64,
}

/// The use of a source by one rendering.
struct SourceUse {
    name: String,
    /// The source was forgotten since: the result must not be kept.
    forgotten: Arc<AtomicBool>,
}

/// Keeps an entry of [`RendererState::sources`] for as long as a rendering may store its result.
struct SourceGuard {
    state: Arc<RendererState>,
    id: u64,
    forgotten: Arc<AtomicBool>,
}

impl Drop for SourceGuard {
    fn drop(&mut self) {
        self.state.sources().remove(&self.id);
    }
}

/// A rendering to be made, and the client who needs it first.
struct RenderJob {
    key: RenderKey,
    transformation: Transformation,
    requested: RequestedFormat,
    client: Arc<str>,
}

type RenderOutcome = Result<RenderedImage, RenderError>;

/// A rendering under way, held by the callers that wait for it. When the last one drops it, the
/// rendering leaves the queue, or stops at its next step.
struct SharedRendering {
    id: u64,
    key: RenderKey,
    outcome: watch::Receiver<Option<RenderOutcome>>,
    control: RenderControl,
    task: AbortHandle,
    state: Weak<RendererState>,
}

impl Drop for SharedRendering {
    fn drop(&mut self) {
        self.control.cancel();
        self.task.abort();
        if let Some(state) = self.state.upgrade() {
            let mut under_way = state.under_way();
            // Meanwhile another rendering may have the key
            if under_way.get(&self.key).is_some_and(|entry| entry.strong_count() == 0) {
                under_way.remove(&self.key);
            }
        }
    }
}

impl Renderer {
    /// Returns a renderer. Without a cache, each request is computed.
    pub fn new(settings: RendererSettings, cache: Option<ResultCache>) -> Self {
        let workers = settings.workers.max(1);
        let shared = RendererState {
            workers: Arc::new(Semaphore::new(workers)),
            places: CappedSemaphore::new(workers.saturating_add(settings.queue)),
            under_way: Mutex::default(),
            sources: Mutex::default(),
            next_id: AtomicU64::new(0),
            settings,
            cache,
        };
        Self { shared: Arc::new(shared), client: Arc::default() }
    }

    /// Returns this renderer for the requests of one client, which is named by any text that tells
    /// it apart.
    #[must_use]
    pub fn for_client(&self, client: &str) -> Self {
        Self { shared: Arc::clone(&self.shared), client: client.into() }
    }

    /// Returns the result of `transformation` on a source: from the cache, from a rendering that is
    /// under way, or from a new one, for which `load` reads the source. Dropping the future gives
    /// the rendering up, if no other caller waits for it.
    ///
    /// # Errors
    /// Any [`RenderError`]; [`RenderError::TooManyRequests`] if the queue is full, or the client
    /// has its part of it.
    pub async fn render<F>(
        &self,
        source: &RenderSource,
        transformation: &Transformation,
        requested: RequestedFormat,
        load: impl FnOnce(usize) -> F + Send + 'static,
    ) -> Result<RenderedImage, RenderError>
    where
        F: Future<Output = Result<Bytes, RenderError>> + Send + 'static,
    {
        let key = RenderKey::new(source, transformation, requested);
        let rendering = {
            let mut under_way = self.shared.under_way();
            match under_way.get(&key).and_then(Weak::upgrade) {
                Some(rendering) => rendering,
                None => {
                    let job = RenderJob {
                        key: key.clone(),
                        transformation: transformation.clone(),
                        requested,
                        client: Arc::clone(&self.client),
                    };
                    let rendering = self.start(job, load);
                    under_way.insert(key, Arc::downgrade(&rendering));
                    rendering
                }
            }
        };
        let mut outcome = rendering.outcome.clone();
        let outcome = match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            // The task ended without an outcome: it panicked, or the program ends
            Err(_) => None,
        };
        outcome.unwrap_or(Err(RenderError::Internal))
    }

    /// Removes the results of sources that no longer exist, by their names. A rendering under way
    /// is finished for its callers, and not kept. Call it once the bytes are gone, so that no new
    /// rendering can begin.
    pub async fn evict(&self, names: Vec<String>) {
        {
            let sources = self.shared.sources();
            for source in sources.values().filter(|source| names.contains(&source.name)) {
                source.forgotten.store(true, Ordering::SeqCst);
            }
        }
        let state = self.shared.clone();
        let removal = spawn_blocking(move || {
            if let Some(cache) = &state.cache {
                names.iter().for_each(|name| cache.evict_source(name));
            }
        });
        if let Err(error) = removal.await {
            tracing::error!(error = %error, "the results of deleted images could not be removed");
        }
    }

    /// Starts a rendering in a task of its own, which ends when all its callers are gone.
    fn start<F>(&self, job: RenderJob, load: impl FnOnce(usize) -> F + Send + 'static) -> Arc<SharedRendering>
    where
        F: Future<Output = Result<Bytes, RenderError>> + Send + 'static,
    {
        let (sender, outcome) = watch::channel(None);
        let control = RenderControl::with_time_limit(self.shared.settings.time_limit);
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let state = self.shared.clone();
        let (key, task_key, task_control) = (job.key.clone(), job.key.clone(), control.clone());
        let task = tokio::spawn(inherit_request(async move {
            let work = state.clone().produce(job, task_control, load);
            let outcome = tokio::time::timeout(state.settings.time_limit, work).await;
            // From here on, a new request starts anew, or finds the result in the cache
            state.remove(&task_key, id);
            sender.send_replace(Some(outcome.unwrap_or(Err(RenderError::TimedOut))));
        }));
        let (task, state) = (task.abort_handle(), Arc::downgrade(&self.shared));
        Arc::new(SharedRendering { id, key, outcome, control, task, state })
    }
}

impl RendererState {
    /// Looks into the cache, waits for a worker, reads the source and renders.
    async fn produce<F>(
        self: Arc<Self>,
        job: RenderJob,
        control: RenderControl,
        load: impl FnOnce(usize) -> F + Send + 'static,
    ) -> RenderOutcome
    where
        F: Future<Output = Result<Bytes, RenderError>> + Send + 'static,
    {
        let RenderJob { key, transformation, requested, client } = job;
        let guard = self.clone().use_source(key.source());
        let (state, cached_key) = (self.clone(), key.clone());
        let cached = spawn_blocking(move || state.cache.as_ref().and_then(|cache| cache.read(&cached_key)));
        if let Some(image) = cached.await.map_err(|_| RenderError::Internal)? {
            return Ok(image);
        }
        let place = self.places.try_acquire(&client).ok_or(RenderError::TooManyRequests)?;
        let worker = self.workers.clone().acquire_owned().await.map_err(|_| RenderError::Internal)?;
        // With a worker at hand, so that sources do not pile up in memory
        let source = load(self.settings.limits.max_source_bytes).await?;
        let rendering = spawn_blocking(move || {
            let image = crate::render(&source, &transformation, requested, &self.settings.limits, &control);
            // An SVG is its source, which is as quickly read as a result
            if let (Some(cache), Ok(image)) = (&self.cache, &image)
                && image.format != OutputFormat::Svg
                && !guard.forgotten.load(Ordering::SeqCst)
            {
                cache.store(&key, image);
                // Forgotten meanwhile, possibly before the result was stored
                if guard.forgotten.load(Ordering::SeqCst) {
                    cache.evict_source(key.source());
                }
            }
            // Held by the thread: it may go on for a while after its callers are gone
            drop((guard, worker, place));
            image
        });
        rendering.await.map_err(|_| RenderError::Internal)?
    }

    /// Records the use of a source until the guard is dropped.
    fn use_source(self: Arc<Self>, name: &str) -> SourceGuard {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let forgotten = Arc::new(AtomicBool::new(false));
        self.sources().insert(id, SourceUse { name: name.to_owned(), forgotten: forgotten.clone() });
        SourceGuard { state: self, id, forgotten }
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<u64, SourceUse>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a rendering that has ended from those under way.
    fn remove(&self, key: &RenderKey, id: u64) {
        let mut under_way = self.under_way();
        let rendering = under_way.get(key).and_then(Weak::upgrade);
        if rendering.as_ref().is_some_and(|rendering| rendering.id == id) {
            under_way.remove(key);
        }
        // Dropping a rendering takes the lock
        drop(under_way);
        drop(rendering);
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<RenderKey, Weak<SharedRendering>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
