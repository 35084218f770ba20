//! Measures thumbnails per second as a ratio to the image library in a bare loop.
//!
//! The limit decodes, scales and encodes with the same codecs and the same filter on as many
//! threads, without limits, checks, orientation, colours and the queue. Neither side has an HTTP
//! request: the subject is `portico_images::Renderer`, as the storage service calls it.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::{ImageFormat, RgbImage};
use portico_images::{
    OutputFormat, RenderSource, Renderer, RendererSettings, RequestedFormat, ResultCache, Transformation,
};

use crate::report::{Report, median};
use crate::rounds::practises;

const ROUNDS: usize = 5;
/// The time of each round.
const ROUND: Duration = Duration::from_secs(3);
const QUALITY: u8 = 80;

/// One kind of thumbnail.
struct Thumbnail {
    what: &'static str,
    source: Bytes,
    width: u32,
    height: u32,
    requested: RequestedFormat,
}

/// Compares the usual thumbnails, then results from the cache.
pub async fn measure(report: &mut Report) -> Result<()> {
    let threads = std::thread::available_parallelism()?.get();
    for thumbnail in thumbnails()? {
        let thumbnail = Arc::new(thumbnail);
        let settings = RendererSettings { workers: threads, ..RendererSettings::default() };
        let renderer = Renderer::new(settings, None);
        let first = render(&renderer, &thumbnail, "first").await?;
        ensure!(first == bare(&thumbnail)?.len(), "subject and limit do not write the same file");
        let subject = async || subject(&renderer, &thumbnail, threads).await;
        let limit = async || limit(&thumbnail, threads).await;
        compare(report, thumbnail.what, "bare loop", subject, limit).await?;
    }
    measure_cache(report, threads).await
}

/// Compares results from the cache with reading the same file.
async fn measure_cache(report: &mut Report, threads: usize) -> Result<()> {
    let thumbnail = Arc::new(thumbnails()?.swap_remove(0));
    let folder = tempfile::tempdir()?;
    let renderer = Renderer::new(RendererSettings::default(), Some(ResultCache::open(folder.path(), 1 << 30)?));
    render(&renderer, &thumbnail, "kept").await?;
    let file = std::fs::read_dir(folder.path())?.next().context("the result is kept")??.path();
    let subject = async || {
        repeat(threads, async || {
            render(&renderer, &thumbnail, "kept").await?;
            Ok(())
        })
        .await
    };
    let limit = async || {
        repeat(threads, async || {
            let file = file.clone();
            black_box(tokio::task::spawn_blocking(move || std::fs::read(file)).await??);
            Ok(())
        })
        .await
    };
    compare(report, "a thumbnail from the cache", "reading the file", subject, limit).await
}

/// Runs an operation again and again in as many tasks as there are threads. Returns the rate.
async fn repeat(tasks: usize, operation: impl AsyncFn() -> Result<()>) -> Result<f64> {
    let (started, calls) = (Instant::now(), AtomicU64::new(0));
    let one = async || {
        while started.elapsed() < ROUND {
            operation().await?;
            calls.fetch_add(1, Ordering::Relaxed);
        }
        anyhow::Ok(())
    };
    futures_util::future::try_join_all((0..tasks).map(|_| one())).await?;
    Ok(calls.into_inner() as f64 / started.elapsed().as_secs_f64())
}

async fn subject(renderer: &Renderer, thumbnail: &Thumbnail, threads: usize) -> Result<f64> {
    let number = AtomicU64::new(0);
    // Equal requests at one time are rendered once, so each has a version of its own
    let next = || number.fetch_add(1, Ordering::Relaxed).to_string();
    repeat(threads, async || render(renderer, thumbnail, &next()).await.map(drop)).await
}

async fn limit(thumbnail: &Arc<Thumbnail>, threads: usize) -> Result<f64> {
    let started = Instant::now();
    let loops = (0..threads).map(|_| {
        let thumbnail = thumbnail.clone();
        tokio::task::spawn_blocking(move || {
            let mut calls = 0_u64;
            while started.elapsed() < ROUND {
                black_box(bare(&thumbnail)?);
                calls += 1;
            }
            anyhow::Ok(calls)
        })
    });
    let mut calls = 0;
    for each in loops.collect::<Vec<_>>() {
        calls += each.await??;
    }
    Ok(calls as f64 / started.elapsed().as_secs_f64())
}

/// Renders with Portico. Returns the length of the file.
async fn render(renderer: &Renderer, thumbnail: &Thumbnail, version: &str) -> Result<usize> {
    let (width, height) = (thumbnail.width.to_string(), thumbnail.height.to_string());
    let quality = QUALITY.to_string();
    let transformation = Transformation::parse(|name| match name {
        "width" => Some(&width),
        "height" => Some(&height),
        "quality" => Some(&quality),
        _ => None,
    })?;
    let source = thumbnail.source.clone();
    let load = move |_| std::future::ready(Ok(source));
    let image = renderer.render(&RenderSource::new(version), &transformation, thumbnail.requested, load).await?;
    ensure!(matches!(image.format, OutputFormat::Jpeg | OutputFormat::WebP | OutputFormat::Avif));
    Ok(image.bytes.len())
}

/// Renders with the libraries alone: the middle of the picture, scaled and encoded.
fn bare(thumbnail: &Thumbnail) -> Result<Vec<u8>> {
    let picture = image::load_from_memory(&thumbnail.source)?.into_rgb8();
    let (width, height) = (thumbnail.width, thumbnail.height);
    let (source_width, source_height) = (f64::from(picture.width()), f64::from(picture.height()));
    let scale = (f64::from(width) / source_width).max(f64::from(height) / source_height);
    let region = (f64::from(width) / scale, f64::from(height) / scale);
    // The renderer crops at whole pixels of the scaled picture
    let margin = |length: f64, kept: u32| ((length * scale - f64::from(kept)) / 2.0).round().max(0.0) / scale;
    let (left, top) = (margin(source_width, width), margin(source_height, height));
    let source = ImageRef::new(picture.width(), picture.height(), picture.as_raw(), PixelType::U8x3)?;
    let mut result = Image::new(width, height, PixelType::U8x3);
    let options = ResizeOptions::new()
        .crop(left, top, region.0, region.1)
        .resize_alg(ResizeAlg::Convolution(FilterType::Lanczos3));
    Resizer::new().resize(&source, &mut result, &options)?;
    let pixels = result.into_vec();
    let mut file = Vec::new();
    match thumbnail.requested {
        RequestedFormat::WebP => {
            let mut config = webp::WebPConfig::new().map_err(|()| anyhow::anyhow!("no configuration"))?;
            config.quality = f32::from(QUALITY);
            let encoder = webp::Encoder::from_rgb(&pixels, width, height);
            let encoded = encoder.encode_advanced(&config).map_err(|error| anyhow::anyhow!("{error:?}"))?;
            file.extend_from_slice(&encoded);
        }
        RequestedFormat::Avif => {
            use image::ImageEncoder as _;
            image::codecs::avif::AvifEncoder::new_with_speed_quality(&mut file, 10, QUALITY)
                .with_num_threads(Some(1))
                .write_image(&pixels, width, height, image::ExtendedColorType::Rgb8)?;
        }
        _ => {
            let encoder = jpeg_encoder::Encoder::new(&mut file, QUALITY);
            encoder.encode(&pixels, width.try_into()?, height.try_into()?, jpeg_encoder::ColorType::Rgb)?;
        }
    }
    Ok(file)
}

/// Returns the usual kinds: avatars and previews of photos, and pictures of screens.
fn thumbnails() -> Result<Vec<Thumbnail>> {
    let photo = encoded(4000, 3000, ImageFormat::Jpeg)?;
    let screen = encoded(1920, 1080, ImageFormat::Png)?;
    let picture = |what, source: &Bytes, width, height, requested| Thumbnail {
        what,
        source: source.clone(),
        width,
        height,
        requested,
    };
    Ok(vec![
        picture("JPEG of 12 megapixels to WebP of 256 × 256", &photo, 256, 256, RequestedFormat::WebP),
        picture("JPEG of 12 megapixels to JPEG of 1200 × 900", &photo, 1200, 900, RequestedFormat::Origin),
        picture("PNG of 2 megapixels to WebP of 480 × 270", &screen, 480, 270, RequestedFormat::WebP),
        picture("PNG of 2 megapixels to AVIF of 480 × 270", &screen, 480, 270, RequestedFormat::Avif),
    ])
}

/// Encodes a picture with gradients and some detail everywhere.
fn encoded(width: u32, height: u32, format: ImageFormat) -> Result<Bytes> {
    let picture = RgbImage::from_fn(width, height, |x, y| {
        let detail = (x.wrapping_mul(2_654_435_761) ^ y.wrapping_mul(40_503)).rotate_right(9) as u8 % 16;
        image::Rgb([(x * 240 / width) as u8 + detail, (y * 240 / height) as u8 + detail, 128 + detail])
    });
    let mut file = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut file, format)?;
    Ok(file.into_inner().into())
}

/// Runs subject and limit in turns and reports the medians.
async fn compare(
    report: &mut Report,
    what: &str,
    limit_name: &str,
    subject: impl AsyncFn() -> Result<f64>,
    limit: impl AsyncFn() -> Result<f64>,
) -> Result<()> {
    subject().await?;
    if practises() {
        return Ok(());
    }
    limit().await?;
    let (mut subjects, mut limits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (own, best) = (subject().await?, limit().await?);
        subjects.push(own);
        limits.push(best);
        ratios.push(own / best);
    }
    report.row(
        what,
        format!("{:.1}/s", median(subjects)),
        format!("{limit_name}: {:.1}/s", median(limits)),
        format!("{:.2}", median(ratios)),
    );
    Ok(())
}
