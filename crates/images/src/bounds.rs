//! The bounds of one rendering: sizes that are checked before decoding, and a deadline that is
//! checked between the steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::RenderError;

/// The sizes that one rendering may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderLimits {
    /// Bytes of the source.
    pub max_source_bytes: usize,
    /// Pixels of the source, width by height; for an animation, of all its processed frames
    /// together.
    pub max_pixels: u64,
    /// Frames of an animation that are kept. Later ones are dropped.
    pub max_frames: usize,
    /// Bytes that decoding may allocate.
    pub max_memory: u64,
    /// Pixels of a result in AVIF, whose encoder is slow and cannot be stopped.
    pub max_avif_pixels: u64,
    /// Bytes of the result.
    pub max_output_bytes: usize,
}

impl Default for RenderLimits {
    /// Returns the limits of the wire contract, and bounds that follow from them.
    fn default() -> Self {
        Self {
            max_source_bytes: 25_000_000,
            max_pixels: 50_000_000,
            max_frames: 60,
            // 50 megapixels of 16-bit colour with alpha
            max_memory: 400_000_000,
            // A picture that fills a screen
            max_avif_pixels: 1920 * 1200,
            max_output_bytes: 64 << 20,
        }
    }
}

/// The deadline of a rendering and its cancellation. Clones share the cancellation.
#[derive(Debug, Clone)]
pub struct RenderControl {
    deadline: Instant,
    cancelled: Arc<AtomicBool>,
}

impl RenderControl {
    /// Returns a control whose deadline is `time_limit` from now.
    pub fn with_time_limit(time_limit: Duration) -> Self {
        Self { deadline: Instant::now() + time_limit, cancelled: Arc::default() }
    }

    /// Makes the rendering stop at its next step.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Checks whether to go on.
    ///
    /// # Errors
    /// [`RenderError::TimedOut`] after the deadline or a cancellation.
    pub fn check(&self) -> Result<(), RenderError> {
        if self.cancelled.load(Ordering::Relaxed) || Instant::now() >= self.deadline {
            return Err(RenderError::TimedOut);
        }
        Ok(())
    }
}
