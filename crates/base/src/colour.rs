//! Colours of a brand, and text that is readable on them (WCAG 2.2, contrast).

use std::fmt;

/// The contrast that text needs on its background (WCAG 2.2, level AA).
pub const READABLE_CONTRAST: f64 = 4.5;

/// An opaque colour of the sRGB colour space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour {
    channels: [u8; 3],
}

impl Colour {
    /// Black.
    pub const BLACK: Self = Self { channels: [0; 3] };
    /// White.
    pub const WHITE: Self = Self { channels: [255; 3] };

    /// Parses `#rrggbb`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let [_, red, green, blue] = u32::from_str_radix(digits, 16).ok()?.to_be_bytes();
        Some(Self { channels: [red, green, blue] })
    }

    /// Returns the contrast with another colour, from 1 to 21.
    #[must_use]
    pub fn contrast(self, other: Self) -> f64 {
        let (one, two) = (self.luminance(), other.luminance());
        (one.max(two) + 0.05) / (one.min(two) + 0.05)
    }

    /// Returns white or black, whichever is readable on this colour; white if both are.
    #[must_use]
    pub fn text_on(self) -> Self {
        if self.contrast(Self::WHITE) >= READABLE_CONTRAST { Self::WHITE } else { Self::BLACK }
    }

    /// Returns this colour, mixed with black or white until text in it is readable on each of the
    /// backgrounds, which are all light or all dark.
    #[must_use]
    pub fn readable_on(self, backgrounds: &[Self]) -> Self {
        let are_light = backgrounds.iter().all(|background| background.text_on() == Self::BLACK);
        let end = if are_light { Self::BLACK } else { Self::WHITE };
        (0..=50)
            .map(|step| self.mixed_with(end, f64::from(step) / 50.0))
            .find(|mixed| backgrounds.iter().all(|background| mixed.contrast(*background) >= READABLE_CONTRAST))
            .unwrap_or(end)
    }

    /// Returns this colour with a part of another, from 0 to 1.
    #[must_use]
    pub fn mixed_with(self, other: Self, part: f64) -> Self {
        let mut channels = self.channels;
        for (channel, other) in channels.iter_mut().zip(other.channels) {
            let mixed = f64::from(*channel) * (1.0 - part) + f64::from(other) * part;
            // Between the two channels, so within their range
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let rounded = mixed.round() as u8;
            *channel = rounded;
        }
        Self { channels }
    }

    fn luminance(self) -> f64 {
        let [red, green, blue] = self.channels.map(|channel| {
            let value = f64::from(channel) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
}

impl fmt::Display for Colour {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.channels;
        write!(formatter, "#{red:02x}{green:02x}{blue:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colour(text: &str) -> Colour {
        Colour::parse(text).unwrap()
    }

    #[test]
    fn colours_are_parsed_and_written() {
        assert_eq!(colour("#4F46e5").to_string(), "#4f46e5");
        for bad in ["4f46e5", "#4f46e", "#4f46e5a", "#4f46eg", "#+f46e5", "red", ""] {
            assert_eq!(Colour::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn contrast_is_that_of_the_guideline() {
        assert!((Colour::BLACK.contrast(Colour::WHITE) - 21.0).abs() < 1e-9);
        assert!((colour("#777777").contrast(Colour::WHITE) - 4.478).abs() < 1e-3);
    }

    #[test]
    fn text_on_and_in_every_colour_is_readable() {
        let light = [Colour::WHITE, colour("#f9f8f5")];
        let dark = [colour("#0c1516"), colour("#141e20")];
        for value in (0..0x0100_0000_u32).step_by(7919) {
            let accent = colour(&format!("#{value:06x}"));
            assert!(accent.contrast(accent.text_on()) >= READABLE_CONTRAST, "{accent}");
            for backgrounds in [light, dark] {
                let text = accent.readable_on(&backgrounds);
                for background in backgrounds {
                    assert!(text.contrast(background) >= READABLE_CONTRAST, "{accent} as {text} on {background}");
                }
            }
        }
        // A colour that is readable is left unchanged
        assert_eq!(colour("#006b64").readable_on(&light), colour("#006b64"));
    }
}
