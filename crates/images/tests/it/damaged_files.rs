//! Files that are no images, end early, or are damaged.

use std::time::Duration;

use portico_images::{RenderControl, RenderError, RenderLimits, RequestedFormat, render};

use crate::{control, corpus, decoded_size, rendered, transformation};

#[test]
fn files_that_are_no_images_are_rejected_by_name() {
    for (name, file, error) in corpus::invalid() {
        assert_eq!(rendered(&file, "width=10", RequestedFormat::Origin), Err(error), "{name}");
    }
}

#[test]
fn a_file_that_ends_early_is_rejected_or_shown_as_far_as_it_goes() {
    for (name, file) in corpus::valid() {
        for tenth in 0..10 {
            let part = file.slice(..file.len() * tenth / 10);
            match rendered(&part, "width=10&height=10", RequestedFormat::Origin) {
                Ok(image) => assert!(decoded_size(&image).0 <= 10, "{name} {tenth}"),
                Err(error) => assert_eq!(error, RenderError::InvalidSource, "{name} {tenth}"),
            }
        }
    }
}

#[test]
fn limits_are_checked_before_anything_is_decoded() {
    let file = corpus::encoded(corpus::picture(100, 100), image::ImageFormat::Png);
    let outcome = |limits| render(&file, &transformation("width=10"), RequestedFormat::Avif, &limits, &control());
    let limits = RenderLimits::default();
    assert_eq!(outcome(RenderLimits { max_source_bytes: 99, ..limits.clone() }), Err(RenderError::FileTooLarge));
    assert_eq!(outcome(RenderLimits { max_pixels: 9_999, ..limits.clone() }), Err(RenderError::ResolutionTooLarge));
    assert_eq!(outcome(RenderLimits { max_memory: 29_999, ..limits.clone() }), Err(RenderError::ResolutionTooLarge));
    assert_eq!(outcome(RenderLimits { max_avif_pixels: 999, ..limits.clone() }), Err(RenderError::ResultTooLarge));
    assert_eq!(outcome(RenderLimits { max_output_bytes: 10, ..limits.clone() }), Err(RenderError::ResultTooLarge));
    assert!(outcome(limits).is_ok());
}

#[test]
fn a_rendering_stops_at_its_deadline_and_when_it_is_cancelled() {
    let file = corpus::animated_gif(40, 20, 5, false);
    let outcome = |control: &RenderControl| {
        render(&file, &transformation(""), RequestedFormat::Origin, &RenderLimits::default(), control)
    };
    assert_eq!(outcome(&RenderControl::with_time_limit(Duration::ZERO)), Err(RenderError::TimedOut));
    let cancelled = control();
    cancelled.clone().cancel();
    assert_eq!(outcome(&cancelled), Err(RenderError::TimedOut));
}

/// A generator of numbers that are the same in each run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[test]
fn mutated_files_give_an_error_or_an_image_and_take_bounded_memory() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let limits = RenderLimits { max_pixels: 1_000_000, max_memory: 8_000_000, ..RenderLimits::default() };
    let transformation = transformation("width=16&height=16");
    let files = corpus::valid();
    let before = peak_memory();
    for _ in 0..3_000 {
        let (name, file) = &files[numbers.below(files.len())];
        let mut mutated = file.to_vec();
        for _ in 0..=numbers.below(8) {
            // Headers decide most, so half of the changes hit them
            let end = if numbers.below(2) == 0 { mutated.len().min(64) } else { mutated.len() };
            let position = numbers.below(end);
            match numbers.below(4) {
                0 => mutated[position] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][numbers.below(6)],
                1 => mutated[position] ^= 1 << numbers.below(8),
                2 => mutated.truncate(position.max(1)),
                _ => {
                    let from = numbers.below(mutated.len());
                    let length = numbers.below(16).min(mutated.len() - from.max(position));
                    mutated.copy_within(from..from + length, position);
                }
            }
        }
        let outcome = render(&mutated.into(), &transformation, RequestedFormat::Origin, &limits, &control());
        if let Ok(image) = outcome
            && image.format != portico_images::OutputFormat::Svg
        {
            let (width, height) = decoded_size(&image);
            assert!(width <= 16 && height <= 16, "{name}: {width}×{height}");
        }
    }
    let growth = peak_memory() - before;
    // Other tests run beside this one, each within the default limits on small files
    assert!(growth < 512 << 20, "memory grew by {} MiB", growth >> 20);
}

#[test]
fn bombs_take_no_memory() {
    let bombs = [corpus::decompression_bomb(), corpus::chunk_bomb()];
    let before = peak_memory();
    for bomb in bombs {
        // The small picture behind huge texts may be shown
        match rendered(&bomb, "width=10", RequestedFormat::Origin) {
            Ok(image) => assert_eq!(decoded_size(&image), (8, 8)),
            Err(error) => assert!(matches!(
                error,
                RenderError::InvalidSource | RenderError::ResolutionTooLarge | RenderError::ResultTooLarge
            )),
        }
    }
    let growth = peak_memory() - before;
    assert!(growth < 256 << 20, "memory grew by {} MiB", growth >> 20);
}

/// Returns the most bytes that this process has had resident.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
