//! Images of every kind, made here, so that each test says what its file contains.

use std::io::{Cursor, Write as _};

use bytes::Bytes;
use image::{DynamicImage, ImageFormat, Rgb, RgbImage, Rgba, RgbaImage};

/// Returns a picture without two equal neighbours, with detail everywhere.
pub fn picture(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let noise = (x.wrapping_mul(2_654_435_761) ^ y.wrapping_mul(40_503)).rotate_right(7) as u8 % 32;
        Rgb([(x * 255 / width) as u8 ^ noise, (y * 255 / height) as u8, 128_u8.wrapping_add(noise)])
    })
}

/// Returns a picture whose left half is transparent.
pub fn transparent(width: u32, height: u32) -> RgbaImage {
    let picture = picture(width, height);
    RgbaImage::from_fn(width, height, |x, y| {
        let Rgb([red, green, blue]) = *picture.get_pixel(x, y);
        Rgba([red, green, blue, if x < width / 2 { 0 } else { 255 }])
    })
}

pub fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Bytes {
    let mut file = Cursor::new(Vec::new());
    image.into().write_to(&mut file, format).unwrap();
    file.into_inner().into()
}

/// Returns a JPEG with four quarters: red, green, blue and white, read from the top left, and an
/// EXIF orientation.
pub fn oriented_jpeg(orientation: u8) -> Bytes {
    let quarters = RgbImage::from_fn(64, 32, |x, y| match (x < 32, y < 16) {
        (true, true) => Rgb([255, 0, 0]),
        (false, true) => Rgb([0, 255, 0]),
        (true, false) => Rgb([0, 0, 255]),
        (false, false) => Rgb([255, 255, 255]),
    });
    let mut file = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut file, 95);
    // TIFF header; one entry: orientation (0x112), short (3), one value; no further directory
    let exif = [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".as_slice(), &[orientation, 0, 0, 0], &[0; 4]].concat();
    encoder.add_app_segment(1, [b"Exif\0\0".as_slice(), &exif].concat()).unwrap();
    encoder.encode(quarters.as_raw(), 64, 32, jpeg_encoder::ColorType::Rgb).unwrap();
    file.into()
}

/// Returns a CMYK JPEG of one colour: 0 is no ink, 255 is full ink.
pub fn cmyk_jpeg(width: u16, height: u16, ink: [u8; 4]) -> Bytes {
    let mut file = Vec::new();
    let pixels = ink.repeat(usize::from(width) * usize::from(height));
    let encoder = jpeg_encoder::Encoder::new(&mut file, 90);
    encoder.encode(&pixels, width, height, jpeg_encoder::ColorType::Cmyk).unwrap();
    file.into()
}

pub fn progressive_jpeg(width: u16, height: u16) -> Bytes {
    let mut file = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut file, 85);
    encoder.set_progressive(true);
    let picture = picture(width.into(), height.into());
    encoder.encode(picture.as_raw(), width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    file.into()
}

/// Returns a GIF whose frame `n` is a square at column `4 n`, on grey or on nothing.
pub fn animated_gif(width: u16, height: u16, frames: u16, is_transparent: bool) -> Bytes {
    let mut encoder = gif::Encoder::new(Vec::new(), width, height, &[]).unwrap();
    encoder.set_repeat(gif::Repeat::Infinite).unwrap();
    for index in 0..frames {
        let ground = if is_transparent { [0, 0, 0, 0] } else { [90, 90, 90, 255] };
        let mut pixels = ground.repeat(usize::from(width) * usize::from(height));
        for y in 0..usize::from(height).min(8) {
            for x in 0..4 {
                let column = (usize::from(index) * 4 + x) % usize::from(width);
                pixels[(y * usize::from(width) + column) * 4..][..4].copy_from_slice(&[255, index as u8, 0, 255]);
            }
        }
        let mut frame = gif::Frame::from_rgba_speed(width, height, &mut pixels, 10);
        frame.delay = 5 + index;
        frame.dispose = if is_transparent { gif::DisposalMethod::Background } else { gif::DisposalMethod::Keep };
        encoder.write_frame(&frame).unwrap();
    }
    encoder.into_inner().unwrap().into()
}

/// Returns a PNG file of the given chunks.
pub fn png_of(chunks: &[(&[u8; 4], Vec<u8>)]) -> Bytes {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, content) in chunks {
        file.extend((content.len() as u32).to_be_bytes());
        let named = [name.as_slice(), content].concat();
        file.extend(&named);
        let mut crc = flate2::Crc::new();
        crc.update(&named);
        file.extend(crc.sum().to_be_bytes());
    }
    file.into()
}

/// Returns the header chunk of a PNG: 8 bits, `color` 0 for grey and 2 for colour.
pub fn png_header(width: u32, height: u32, color: u8) -> Vec<u8> {
    [width.to_be_bytes().as_slice(), &height.to_be_bytes(), &[8, color, 0, 0, 0]].concat()
}

/// Zeros, compressed a thousandfold.
pub fn compressed_zeros(length: usize) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    let block = vec![0; 1 << 20];
    let mut left = length;
    while left > 0 {
        let part = left.min(block.len());
        encoder.write_all(&block[..part]).unwrap();
        left -= part;
    }
    encoder.finish().unwrap()
}

/// Returns a PNG of 50,000 × 50,000 zeros.
pub fn decompression_bomb() -> Bytes {
    png_of(&[(b"IHDR", png_header(50_000, 50_000, 0)), (b"IDAT", compressed_zeros(64 << 20)), (b"IEND", Vec::new())])
}

/// Returns a small PNG with a colour profile that inflates to 512 MiB, and a text of the same size.
pub fn chunk_bomb() -> Bytes {
    let zeros = compressed_zeros(512 << 20);
    png_of(&[
        (b"IHDR", png_header(8, 8, 0)),
        (b"iCCP", [b"p\0\0".as_slice(), &zeros].concat()),
        (b"zTXt", [b"t\0\0".as_slice(), &zeros].concat()),
        (b"IDAT", compressed_zeros(72)),
        (b"IEND", Vec::new()),
    ])
}

/// Returns valid files of every format that is decoded, by name.
pub fn valid() -> Vec<(&'static str, Bytes)> {
    let picture = || picture(61, 43);
    let deep = DynamicImage::ImageRgb8(picture()).into_rgb16();
    let gray = DynamicImage::ImageRgb8(picture()).into_luma8();
    let deep_alpha = DynamicImage::ImageRgba8(transparent(61, 43)).into_luma_alpha16();
    vec![
        ("jpeg", encoded(picture(), ImageFormat::Jpeg)),
        ("gray jpeg", encoded(gray.clone(), ImageFormat::Jpeg)),
        ("progressive jpeg", progressive_jpeg(61, 43)),
        ("cmyk jpeg", cmyk_jpeg(61, 43, [255, 0, 0, 0])),
        ("turned jpeg", oriented_jpeg(6)),
        ("png", encoded(picture(), ImageFormat::Png)),
        ("transparent png", encoded(transparent(61, 43), ImageFormat::Png)),
        ("gray png", encoded(gray, ImageFormat::Png)),
        ("16-bit png", encoded(deep, ImageFormat::Png)),
        ("16-bit gray png with alpha", encoded(deep_alpha, ImageFormat::Png)),
        ("gif", encoded(picture(), ImageFormat::Gif)),
        ("animated gif", animated_gif(40, 20, 5, false)),
        ("transparent animated gif", animated_gif(40, 20, 5, true)),
        ("webp", encoded(picture(), ImageFormat::WebP)),
        ("transparent webp", encoded(transparent(61, 43), ImageFormat::WebP)),
        ("animated webp", animated_webp()),
        ("bmp", encoded(picture(), ImageFormat::Bmp)),
        ("tiff", encoded(picture(), ImageFormat::Tiff)),
        ("ico", encoded(transparent(48, 32), ImageFormat::Ico)),
        ("ico of a png without alpha", icon_of_png(&encoded(picture(), ImageFormat::Png), 61, 43)),
        ("one column", encoded(RgbImage::new(1, 10_000), ImageFormat::Png)),
        ("one row", encoded(RgbImage::new(10_000, 1), ImageFormat::Png)),
        ("one pixel", encoded(RgbImage::new(1, 1), ImageFormat::Bmp)),
    ]
}

/// Returns an icon with a small bitmap of one pixel, which is damaged, and a PNG of this size.
fn icon_of_png(png: &[u8], width: u8, height: u8) -> Bytes {
    let entry = |width: u8, height: u8, length: usize, offset: u32| {
        let head = [width, height, 0, 0, 1, 0, 24, 0];
        [head.as_slice(), &(length as u32).to_le_bytes(), &offset.to_le_bytes()].concat()
    };
    let entries = [entry(1, 1, 1, 38), entry(width, height, png.len(), 39)].concat();
    [[0, 0, 1, 0, 2, 0].as_slice(), &entries, b"x", png].concat().into()
}

fn animated_webp() -> Bytes {
    let gif = animated_gif(40, 20, 5, true);
    crate::rendered(&gif, "", portico_images::RequestedFormat::WebP).unwrap().bytes
}

/// Files that are no image, by name, with the error that each gives.
pub fn invalid() -> Vec<(&'static str, Bytes, portico_images::RenderError)> {
    use portico_images::RenderError::{InvalidSource, ResolutionTooLarge};
    let zero_by_five = png_of(&[(b"IHDR", png_header(0, 5, 0)), (b"IEND", Vec::new())]);
    vec![
        ("nothing", Bytes::new(), InvalidSource),
        ("text", Bytes::from_static(b"Some words in a file called picture.png"), InvalidSource),
        ("html", Bytes::from_static(b"<!doctype html><svg></svg>"), InvalidSource),
        ("heic", Bytes::from_static(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"), InvalidSource),
        ("png of no width", zero_by_five, InvalidSource),
        ("gif of no size", Bytes::from_static(b"GIF89a\0\0\0\0\0\0\0;"), InvalidSource),
        ("decompression bomb", decompression_bomb(), ResolutionTooLarge),
        (
            "gif of 65,535 × 65,535",
            Bytes::from_static(b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\x01\0\x01\0\0"),
            ResolutionTooLarge,
        ),
        ("text in a png", [b"\x89PNG\r\n\x1a\n".as_slice(), &[b'a'; 100]].concat().into(), InvalidSource),
    ]
}
