//! The renderer: permits, the queue, equal requests, callers that leave, and the cache.

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use image::ImageFormat;
use portico_images::{
    RenderError, RenderSource, RenderedImage, Renderer, RendererSettings, RequestedFormat, ResultCache,
};
use tokio::sync::{Notify, oneshot};

use crate::{corpus, transformation};

fn picture() -> Bytes {
    corpus::encoded(corpus::picture(64, 64), ImageFormat::Png)
}

fn renderer(workers: usize, queue: usize) -> Renderer {
    Renderer::new(RendererSettings { workers, queue, ..RendererSettings::default() }, None)
}

/// Starts a rendering whose source arrives when `source` is sent. Returns once the source is asked
/// for.
async fn start(
    renderer: &Renderer,
    version: &str,
    source: oneshot::Receiver<Bytes>,
) -> tokio::task::JoinHandle<Result<RenderedImage, RenderError>> {
    let (renderer, version) = (renderer.clone(), version.to_owned());
    let loading = Arc::new(Notify::new());
    let started = loading.clone();
    let task = tokio::spawn(async move {
        let load = move |_| {
            loading.notify_one();
            async move { source.await.map_err(|_| RenderError::SourceUnavailable) }
        };
        renderer.render(&RenderSource::new(version), &transformation("width=8"), RequestedFormat::Origin, load).await
    });
    started.notified().await;
    task
}

#[tokio::test]
async fn equal_requests_at_one_time_are_rendered_once() {
    let renderer = renderer(1, 10);
    let (sender, source) = oneshot::channel();
    let first = start(&renderer, "v1", source).await;
    let others = (0..20).map(|_| {
        let renderer = renderer.clone();
        async move {
            let load = |_| async { panic!("the source is read a second time") };
            renderer.render(&RenderSource::new("v1"), &transformation("width=8"), RequestedFormat::Origin, load).await
        }
    });
    let others = tokio::spawn(futures_util::future::join_all(others.collect::<Vec<_>>()));
    // All others have been polled once before the source arrives: this test has one thread
    tokio::task::yield_now().await;
    sender.send(picture()).unwrap();
    let first = first.await.unwrap().unwrap();
    for other in others.await.unwrap() {
        assert_eq!(other.unwrap(), first);
    }
}

#[tokio::test]
async fn other_versions_parameters_and_formats_are_other_results() {
    let folder = tempfile::tempdir().unwrap();
    let cache = ResultCache::open(folder.path(), 1 << 20).unwrap();
    let renderer = Renderer::new(RendererSettings::default(), Some(cache));
    let loads = Arc::new(AtomicUsize::new(0));
    let render = async |version: &str, query: &str, requested| {
        let loads = loads.clone();
        let load = move |_| {
            loads.fetch_add(1, Ordering::Relaxed);
            ready(Ok(picture()))
        };
        renderer.render(&RenderSource::new(version), &transformation(query), requested, load).await.unwrap()
    };
    let first = render("v1", "width=8", RequestedFormat::Origin).await;
    for (version, query, requested) in [
        ("v2", "width=8", RequestedFormat::Origin),
        ("v1", "width=9", RequestedFormat::Origin),
        ("v1", "height=8", RequestedFormat::Origin),
        ("v1", "width=8&resize=contain", RequestedFormat::Origin),
        ("v1", "width=8&quality=50", RequestedFormat::Origin),
        ("v1", "width=8&gravity=no", RequestedFormat::Origin),
        ("v1", "width=8", RequestedFormat::WebP),
    ] {
        let before = loads.load(Ordering::Relaxed);
        render(version, query, requested).await;
        assert_eq!(loads.load(Ordering::Relaxed), before + 1, "{version} {query}");
    }
    let before = loads.load(Ordering::Relaxed);
    assert_eq!(render("v1", "width=8", RequestedFormat::Origin).await, first);
    assert_eq!(loads.load(Ordering::Relaxed), before, "the first result was kept");
}

#[tokio::test]
async fn a_full_queue_rejects_the_next_request_and_recovers() {
    let renderer = renderer(1, 0);
    let (sender, source) = oneshot::channel();
    let first = start(&renderer, "v1", source).await;
    let next = async |version| {
        renderer
            .render(&RenderSource::new(version), &transformation(""), RequestedFormat::Origin, |_| ready(Ok(picture())))
            .await
    };
    assert_eq!(next("v2").await, Err(RenderError::TooManyRequests));
    sender.send(picture()).unwrap();
    first.await.unwrap().unwrap();
    assert!(next("v2").await.is_ok());
}

#[tokio::test]
async fn one_client_leaves_half_of_the_places_to_others() {
    let renderer = renderer(1, 3);
    let (sender, source) = oneshot::channel();
    let first = start(&renderer.for_client("alice"), "v1", source).await;
    let queued = |client: &str, version: String| {
        let renderer = renderer.for_client(client);
        async move {
            let source = RenderSource::new(version);
            renderer.render(&source, &transformation("width=8"), RequestedFormat::Origin, |_| pending()).await
        }
    };
    // One of each client's new renderings gets its second place, or its first two
    let mut waiting = Vec::new();
    for (client, rejected) in [("alice", 2), ("bob", 1), ("carol", 3)] {
        let mut renderings: FuturesUnordered<_> =
            (0..3).map(|n| Box::pin(queued(client, format!("{client} {n}")))).collect();
        for _ in 0..rejected {
            assert_eq!(renderings.next().await, Some(Err(RenderError::TooManyRequests)), "{client}");
        }
        assert_eq!(renderings.len(), 3 - rejected);
        waiting.push(renderings);
    }
    // An equal request needs no place
    let joined = tokio::spawn(queued("alice", "v1".to_owned()));
    tokio::task::yield_now().await;
    sender.send(picture()).unwrap();
    assert_eq!(first.await.unwrap(), joined.await.unwrap());
}

#[tokio::test]
async fn a_drawing_is_sent_as_it_is_and_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let cache = ResultCache::open(folder.path(), 1 << 20).unwrap();
    let renderer = Renderer::new(RendererSettings::default(), Some(cache));
    let drawing = Bytes::from_static(b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>");
    let (source, sent) = (RenderSource::new("v1"), drawing.clone());
    let image = renderer
        .render(&source, &transformation("width=8"), RequestedFormat::Origin, move |_| ready(Ok(sent)))
        .await
        .unwrap();
    assert_eq!(image.bytes, drawing);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_caller_that_leaves_frees_its_place() {
    let renderer = renderer(1, 0);
    let (_sender, source) = oneshot::channel();
    let first = start(&renderer, "v1", source).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    // The place is free as soon as the task of the rendering has ended
    let again = async || {
        loop {
            match renderer
                .render(&RenderSource::new("v1"), &transformation(""), RequestedFormat::Origin, |_| {
                    ready(Ok(picture()))
                })
                .await
            {
                Err(RenderError::TooManyRequests) => tokio::task::yield_now().await,
                outcome => return outcome,
            }
        }
    };
    assert!(again().await.is_ok());
}

#[tokio::test]
async fn a_rendering_goes_on_while_one_caller_waits() {
    let renderer = renderer(1, 0);
    let (sender, source) = oneshot::channel();
    let first = start(&renderer, "v1", source).await;
    let second = {
        let renderer = renderer.clone();
        tokio::spawn(async move {
            renderer
                .render(&RenderSource::new("v1"), &transformation("width=8"), RequestedFormat::Origin, |_| pending())
                .await
        })
    };
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    sender.send(picture()).unwrap();
    assert!(second.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_source_that_does_not_arrive_times_out() {
    let settings = RendererSettings { time_limit: Duration::ZERO, ..RendererSettings::default() };
    let renderer = Renderer::new(settings, None);
    let outcome =
        renderer.render(&RenderSource::new("v1"), &transformation(""), RequestedFormat::Origin, |_| pending()).await;
    assert_eq!(outcome, Err(RenderError::TimedOut));
}

#[tokio::test]
async fn an_error_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let cache = ResultCache::open(folder.path(), 1 << 20).unwrap();
    let settings = RendererSettings { time_limit: Duration::from_secs(60), ..RendererSettings::default() };
    let renderer = Renderer::new(settings, Some(cache));
    let render = async |source: Result<Bytes, RenderError>| {
        renderer
            .render(&RenderSource::new("v1"), &transformation(""), RequestedFormat::Origin, move |_| ready(source))
            .await
    };
    assert_eq!(render(Err(RenderError::SourceUnavailable)).await, Err(RenderError::SourceUnavailable));
    assert_eq!(render(Ok(Bytes::from_static(b"text"))).await, Err(RenderError::InvalidSource));
    assert!(render(Ok(picture())).await.is_ok());
}

#[tokio::test]
async fn a_source_forgotten_while_it_is_rendered_leaves_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let cache = ResultCache::open(folder.path(), 1 << 20).unwrap();
    let renderer = Renderer::new(RendererSettings::default(), Some(cache));
    let (sender, source) = oneshot::channel();
    let rendering = start(&renderer, "v1", source).await;
    renderer.evict(vec!["v1".into()]).await;
    sender.send(picture()).unwrap();
    rendering.await.unwrap().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    let other = RenderSource::new("v2");
    let load = |_| ready(Ok(picture()));
    renderer.render(&other, &transformation(""), RequestedFormat::Origin, load).await.unwrap();
    renderer.evict(vec!["v1".into()]).await;
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "results of others stay");
    renderer.evict(vec!["v2".into()]).await;
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
