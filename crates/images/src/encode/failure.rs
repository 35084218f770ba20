//! Failures of encoders.

use crate::RenderError;

/// Logs a failure of an encoder.
pub(super) fn encoder_error(error: impl std::fmt::Display) -> RenderError {
    tracing::error!(error = %error, "an image could not be encoded");
    RenderError::Internal
}
