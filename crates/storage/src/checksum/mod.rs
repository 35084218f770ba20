//! The checksums that clients send with content.

mod crc;

use aws_lc_rs::digest::{self, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use md5::{Digest, Md5};

use self::crc::Crc;

/// The headers with checksums of S3, besides that of the signature.
pub(crate) const CHECKSUMS: [&str; 5] = [
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
];

/// A checksum that is verified.
pub(crate) enum Checksum {
    Sha256(digest::Context),
    Sha1(digest::Context),
    Md5(Box<Md5>),
    Crc32(crc32fast::Hasher),
    Crc(Crc),
}

impl Checksum {
    /// Begins a SHA-256.
    pub fn sha256() -> Self {
        Self::Sha256(digest::Context::new(&SHA256))
    }

    /// Returns the checksum of a header or trailer; `None` for every other name.
    pub fn of_header(name: &str) -> Option<Self> {
        Some(match name {
            "x-amz-checksum-sha256" => Self::sha256(),
            "x-amz-checksum-sha1" => Self::Sha1(digest::Context::new(&SHA1_FOR_LEGACY_USE_ONLY)),
            "x-amz-checksum-crc32" => Self::Crc32(crc32fast::Hasher::new()),
            "x-amz-checksum-crc32c" => Self::Crc(Crc::castagnoli()),
            "x-amz-checksum-crc64nvme" => Self::Crc(Crc::nvme()),
            "content-md5" => Self::Md5(Box::default()),
            _ => return None,
        })
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(context) | Self::Sha1(context) => context.update(bytes),
            Self::Md5(digest) => digest.update(bytes),
            Self::Crc32(hasher) => hasher.update(bytes),
            Self::Crc(crc) => crc.update(bytes),
        }
    }

    /// Returns the value.
    pub fn finish(self) -> Vec<u8> {
        match self {
            Self::Sha256(context) | Self::Sha1(context) => context.finish().as_ref().to_vec(),
            Self::Md5(digest) => digest.finalize().to_vec(),
            Self::Crc32(hasher) => hasher.finalize().to_be_bytes().to_vec(),
            Self::Crc(crc) => crc.finish(),
        }
    }
}

/// A checksum and the value that it must have.
pub(crate) struct ExpectedChecksum {
    pub checksum: Checksum,
    pub value: Vec<u8>,
}
