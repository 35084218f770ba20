//! Images: resizing, cropping and converting, for the storage service.
//!
//! [`render`] turns the bytes of an image and a [`Transformation`] into the bytes of another. The
//! [`Renderer`] does so beside the threads of requests, once for equal requests at one time, and
//! keeps results in a [`ResultCache`] on disk.
//!
//! Promises: whatever the bytes, the result is an image of the size that [`geometry`] computes,
//! or a [`RenderError`]. Pixels, memory, frames and time are bounded by [`RenderLimits`], which are
//! checked before anything is decoded. A result carries no metadata of its source: neither places
//! nor cameras nor previews.
//!
//! `encode` writes the formats; the other files are the steps before it, the renderer and the
//! cache.
//!
//! This crate does not know HTTP, databases, buckets or permissions. Permission is decided before
//! the renderer is called, for each request.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bounds;
mod cache;
mod color;
mod decode;
mod encode;
mod error;
mod format;
pub mod geometry;
mod render;
mod render_key;
mod renderer;
mod saliency;
mod transformation;

pub use bounds::{RenderControl, RenderLimits};
pub use cache::ResultCache;
pub use error::RenderError;
pub use format::{OutputFormat, RequestedFormat, SourceFormat};
pub use render::{RenderedImage, render};
pub use render_key::RenderSource;
pub use renderer::{Renderer, RendererSettings};
pub use transformation::{Gravity, ParameterError, ResizeMode, Transformation};
