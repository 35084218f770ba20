//! The errors of rendering, with the texts of the wire contract.

/// The reasons for which an image is not rendered.
///
/// `Display` is the message that clients see; the status is in [`RenderError::status`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The source is no image, is damaged, or has a format that is not decoded here.
    #[error("The source image is invalid or unsupported for rendering")]
    InvalidSource,
    /// The source has more pixels than [`crate::RenderLimits::max_pixels`], or would take more
    /// memory than [`crate::RenderLimits::max_memory`].
    #[error("The source image resolution is too large to process")]
    ResolutionTooLarge,
    /// The source has more bytes than [`crate::RenderLimits::max_source_bytes`].
    #[error("The source image file is too large to process")]
    FileTooLarge,
    /// The frames of an animation have more pixels in sum than are processed.
    #[error("The source image frame resolution is too large to process")]
    FrameResolutionTooLarge,
    /// The result has more pixels or bytes than its format may have.
    #[error("The requested image resolution is too large to process")]
    ResultTooLarge,
    /// The deadline passed before the result was complete.
    #[error("Image request timed out")]
    TimedOut,
    /// The queue is full.
    #[error("Too many requests")]
    TooManyRequests,
    /// The bytes of the source could not be read.
    #[error("Unable to download source image")]
    SourceUnavailable,
    /// A fault of this program. The reason was logged.
    #[error("Internal error")]
    Internal,
}

impl RenderError {
    /// Returns the logical HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::InvalidSource
            | Self::ResolutionTooLarge
            | Self::FileTooLarge
            | Self::FrameResolutionTooLarge
            | Self::ResultTooLarge => 400,
            Self::SourceUnavailable => 404,
            Self::TimedOut => 408,
            Self::TooManyRequests => 429,
            Self::Internal => 500,
        }
    }
}
