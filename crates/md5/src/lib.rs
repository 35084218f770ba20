//! MD5 of several contents at once.
//!
//! Each block of a content needs the state after the block before it, so one content takes the time
//! of its longest chain of instructions, and most of the processor is idle. Blocks of different
//! contents need nothing of each other: the lanes of a vector take one each, which makes eight
//! contents as fast as one.
//!
//! MD5 is what S3 and the storage service define as the ETag of an object. It protects nothing.
//!
//! Must not know: objects, uploads, or where a content comes from.

use std::num::Wrapping;
use std::ops::{Add, BitAnd, BitOr, BitXor, Not};

use bytes::Bytes;
use fearless_simd::prelude::*;
use fearless_simd::{Level, dispatch, u32x4, u32x8, u32x16};

const BLOCK: usize = 64;
/// The number of contents that are hashed at once at most, on any processor.
pub const MAX_LANES: usize = 16;
/// The bytes of a digest that is not whole yet: four words, the number of blocks, the number of
/// bytes behind them, and these bytes, fewer than a block, with zeros.
const STATE_BYTES: usize = 16 + 8 + BLOCK;
const INITIAL: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// The digest of a content that is not whole yet.
#[derive(Debug, Clone)]
pub struct Md5State {
    words: [u32; 4],
    /// The bytes so far.
    length: u64,
    /// The bytes behind the last whole block.
    rest: [u8; BLOCK],
}

impl Default for Md5State {
    fn default() -> Self {
        Self { words: INITIAL, length: 0, rest: [0; BLOCK] }
    }
}

impl Md5State {
    fn rest_len(&self) -> usize {
        (self.length % BLOCK as u64) as usize
    }

    /// Returns the digest so far as bytes, from which [`from_bytes`](Self::from_bytes) makes it
    /// again. They have the form of `SerializableState` of the crate `md-5`.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; STATE_BYTES] {
        let mut bytes = [0; STATE_BYTES];
        let (words, behind) = bytes.split_at_mut(16);
        for (to, word) in words.as_chunks_mut().0.iter_mut().zip(self.words) {
            *to = word.to_le_bytes();
        }
        let (blocks, behind) = behind.split_at_mut(8);
        blocks.copy_from_slice(&(self.length / BLOCK as u64).to_le_bytes());
        let rest = self.rest_len();
        behind[0] = rest as u8;
        behind[1..=rest].copy_from_slice(&self.rest[..rest]);
        bytes
    }

    /// Makes a digest from its bytes. `None`: no digest has these.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, behind) = bytes.split_first_chunk::<16>()?;
        let (blocks, behind) = behind.split_first_chunk::<8>()?;
        let (rest, padded) = behind.split_first()?;
        let padded: &[u8; BLOCK - 1] = padded.try_into().ok()?;
        let (content, padding) = padded.split_at_checked(usize::from(*rest))?;
        if padding.iter().any(|byte| *byte != 0) {
            return None;
        }
        let length = u64::from_le_bytes(*blocks).checked_mul(BLOCK as u64)?.checked_add(u64::from(*rest))?;
        let mut state = Self { length, ..Self::default() };
        for (word, bytes) in state.words.iter_mut().zip(words.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        state.rest[..content.len()].copy_from_slice(content);
        Some(state)
    }

    /// Returns the digest of the content.
    #[must_use]
    pub fn finish(&self) -> [u8; 16] {
        let length = self.length.wrapping_mul(8);
        let to_length = (2 * BLOCK - 8 - self.rest_len() - 1) % BLOCK;
        let mut end = vec![0; 1 + to_length + 8];
        end[0] = 0x80;
        end[1 + to_length..].copy_from_slice(&length.to_le_bytes());
        let mut whole = self.clone();
        update(vec![(&mut whole, &[Bytes::from(end)])]);
        let mut digest = [0; 16];
        let words = whole.words.iter().flat_map(|word| word.to_le_bytes());
        digest.iter_mut().zip(words).for_each(|(to, byte)| *to = byte);
        digest
    }
}

/// Returns the number of contents that this processor hashes in about the time of one.
#[must_use]
pub fn lanes() -> usize {
    lanes_of(Level::new())
}

/// Two vectors of eight lanes would take the time of one after the other.
fn lanes_of(level: Level) -> usize {
    if has_wide_vectors(level) { MAX_LANES } else { 8 }
}

/// Returns true if vectors have sixteen lanes, and an instruction for any function of three words.
#[inline(always)]
fn has_wide_vectors(level: Level) -> bool {
    #[cfg(target_arch = "x86_64")]
    return matches!(level, Level::Avx512(_));
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Adds chunks to contents, [`lanes`] of them at once.
// Not generic, so that the tests of other crates have it optimised
pub fn update(contents: Vec<(&mut Md5State, &[Bytes])>) {
    update_with(Level::new(), contents);
}

/// Like [`update`], with the vectors of a processor.
fn update_with(level: Level, contents: Vec<(&mut Md5State, &[Bytes])>) {
    let mut waiting = contents.into_iter().map(|(state, chunks)| Lane { state, chunks, at: 0 });
    let most = lanes_of(level);
    let mut lanes: Vec<Lane<'_>> = Vec::with_capacity(most);
    loop {
        lanes.extend(waiting.by_ref().take(most - lanes.len()));
        // Blocks that lie in two chunks are put together in the states
        lanes.retain_mut(Lane::prepare);
        match lanes.len() {
            0 => match waiting.next() {
                Some(lane) => lanes.push(lane),
                None => return,
            },
            1 => hash::<Wrapping<u32>, 1>((), &mut lanes),
            2..=4 => dispatch!(level, simd => hash::<u32x4<_>, 4>(simd, &mut lanes)),
            5..=8 => dispatch!(level, simd => hash::<u32x8<_>, 8>(simd, &mut lanes)),
            _ => dispatch!(level, simd => hash::<u32x16<_>, 16>(simd, &mut lanes)),
        }
    }
}

/// A content and the chunks that are to be added.
struct Lane<'a> {
    state: &'a mut Md5State,
    chunks: &'a [Bytes],
    /// The bytes of the first chunk that were added.
    at: usize,
}

impl Lane<'_> {
    /// Fills the block that is begun, or skips empty chunks. Returns false when no whole block is
    /// left.
    fn prepare(&mut self) -> bool {
        while let [chunk, later @ ..] = self.chunks {
            let left = &chunk[self.at..];
            let rest = self.state.rest_len();
            if rest == 0 && left.len() >= BLOCK {
                return true;
            }
            let taken = left.len().min(BLOCK - rest);
            self.state.rest[rest..rest + taken].copy_from_slice(&left[..taken]);
            self.state.length += taken as u64;
            if taken == left.len() {
                (self.chunks, self.at) = (later, 0);
            } else {
                self.at += taken;
            }
            if rest + taken == BLOCK {
                let block = self.state.rest;
                let mut words = self.state.words.map(Wrapping);
                compress((), &mut words, &Wrapping::<u32>::message((), [&block]));
                self.state.words = words.map(|word| word.0);
            }
        }
        false
    }

    /// Returns the whole blocks that follow each other in memory.
    fn blocks(&self) -> &[[u8; BLOCK]] {
        self.chunks.first().map_or(&[], |chunk| chunk[self.at..].as_chunks().0)
    }
}

/// Adds as many blocks to each lane as all of them have.
#[inline(always)]
fn hash<W: Words<N>, const N: usize>(simd: W::Simd, lanes: &mut [Lane<'_>]) {
    let count = lanes.iter().map(|lane| lane.blocks().len()).min().unwrap_or_default();
    // Lanes without a content repeat the first one
    let of = |lane: usize| if lane < lanes.len() { lane } else { 0 };
    let blocks: [&[[u8; BLOCK]]; N] = std::array::from_fn(|lane| &lanes[of(lane)].blocks()[..count]);
    let states: [[u32; N]; 4] =
        std::array::from_fn(|word| std::array::from_fn(|lane| lanes[of(lane)].state.words[word]));
    let mut words = [W::all(simd, 0); 4];
    for (word, lanes) in words.iter_mut().zip(states) {
        *word = W::from_lanes(simd, lanes);
    }
    for number in 0..count {
        let mut block = [blocks[0][number].as_slice().as_array().unwrap_or(&[0; BLOCK]); N];
        for (block, blocks) in block.iter_mut().zip(blocks) {
            *block = &blocks[number];
        }
        compress(simd, &mut words, &W::message(simd, block));
    }
    let words = words.map(W::to_lanes);
    for (number, lane) in lanes.iter_mut().enumerate() {
        lane.state.words = std::array::from_fn(|word| words[word][number]);
        lane.state.length += (count * BLOCK) as u64;
        lane.at += count * BLOCK;
    }
}

/// A word of `N` contents.
trait Words<const N: usize>:
    Copy + Add<Output = Self> + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
    /// The kind of vectors that the processor has.
    type Simd: Copy;

    fn from_lanes(simd: Self::Simd, lanes: [u32; N]) -> Self;
    fn to_lanes(self) -> [u32; N];
    fn all(simd: Self::Simd, word: u32) -> Self;
    fn rotate_left<const BITS: u32>(self) -> Self;
    /// Adds, bit by bit, `x` where `z` is set, and `y` elsewhere.
    fn add_selected(self, x: Self, y: Self, z: Self) -> Self;
    /// Returns the words of a block of each content.
    fn message(simd: Self::Simd, blocks: [&[u8; BLOCK]; N]) -> [Self; 16];
}

impl Words<1> for Wrapping<u32> {
    type Simd = ();

    #[inline(always)]
    fn from_lanes((): (), [word]: [u32; 1]) -> Self {
        Self(word)
    }

    #[inline(always)]
    fn to_lanes(self) -> [u32; 1] {
        [self.0]
    }

    #[inline(always)]
    fn all((): (), word: u32) -> Self {
        Self(word)
    }

    #[inline(always)]
    fn rotate_left<const BITS: u32>(self) -> Self {
        Self(self.0.rotate_left(BITS))
    }

    #[inline(always)]
    fn add_selected(self, x: Self, y: Self, z: Self) -> Self {
        (self + (y & !z)) + (x & z)
    }

    #[inline(always)]
    fn message((): (), [block]: [&[u8; BLOCK]; 1]) -> [Self; 16] {
        let mut message = [Self(0); 16];
        for (number, word) in message.iter_mut().enumerate() {
            *word = Self(u32::from_le_bytes(block.as_chunks().0[number]));
        }
        message
    }
}

/// Implements what the vectors of both sizes have in common.
macro_rules! vector {
    ($vector:ident, $lanes:literal, $message:expr) => {
        impl<S: Simd> Words<$lanes> for $vector<S> {
            type Simd = S;

            #[inline(always)]
            fn from_lanes(simd: S, lanes: [u32; $lanes]) -> Self {
                lanes.simd_into(simd)
            }

            #[inline(always)]
            fn to_lanes(self) -> [u32; $lanes] {
                self.into()
            }

            #[inline(always)]
            fn all(simd: S, word: u32) -> Self {
                Self::splat(simd, word)
            }

            #[inline(always)]
            fn rotate_left<const BITS: u32>(self) -> Self {
                (self << BITS) | (self >> (32 - BITS))
            }

            #[inline(always)]
            fn add_selected(self, x: Self, y: Self, z: Self) -> Self {
                // One instruction and an addition, or two additions, of which one does not wait
                // for `x`
                let is_one = has_wide_vectors(self.simd.level());
                if is_one { self + ((x & z) | (y & !z)) } else { (self + (y & !z)) + (x & z) }
            }

            #[inline(always)]
            fn message(simd: S, blocks: [&[u8; BLOCK]; $lanes]) -> [Self; 16] {
                $message(simd, blocks)
            }
        }
    };
}

vector!(u32x4, 4, transposed);
vector!(u32x8, 8, transposed_pairs);
vector!(u32x16, 16, transposed_by_zips);

/// Returns the words of four blocks: each vector has one word of all of them.
#[inline(always)]
fn transposed<S: Simd>(simd: S, blocks: [&[u8; BLOCK]; 4]) -> [u32x4<S>; 16] {
    let mut words = [u32x4::splat(simd, 0); 16];
    // Loops, since the compiler does not inline closures here
    for (quarter, words) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let mut rows = [u32x4::splat(simd, 0); 4];
        for (row, block) in rows.iter_mut().zip(blocks) {
            let mut lanes = [0; 4];
            for (number, lane) in lanes.iter_mut().enumerate() {
                *lane = u32::from_le_bytes(block.as_chunks().0[4 * quarter + number]);
            }
            *row = lanes.simd_into(simd);
        }
        let [a, b, c, d] = rows;
        let (even_low, even_high) = (a.zip_low(c), a.zip_high(c));
        let (odd_low, odd_high) = (b.zip_low(d), b.zip_high(d));
        *words = [
            even_low.zip_low(odd_low),
            even_low.zip_high(odd_low),
            even_high.zip_low(odd_high),
            even_high.zip_high(odd_high),
        ];
    }
    words
}

/// Returns the words of eight blocks.
#[inline(always)]
fn transposed_pairs<S: Simd>(simd: S, blocks: [&[u8; BLOCK]; 8]) -> [u32x8<S>; 16] {
    let [a, b, c, d, e, f, g, h] = blocks;
    let (first, second) = (transposed(simd, [a, b, c, d]), transposed(simd, [e, f, g, h]));
    let mut words = [u32x8::splat(simd, 0); 16];
    for ((word, first), second) in words.iter_mut().zip(first).zip(second) {
        *word = first.combine(second);
    }
    words
}

/// Returns the words of sixteen blocks, each of which fills a vector. When each row was zipped four
/// times with the one eight rows behind it, rows and columns are exchanged.
#[inline(always)]
fn transposed_by_zips<S: Simd>(simd: S, blocks: [&[u8; BLOCK]; 16]) -> [u32x16<S>; 16] {
    let mut rows = [u32x16::splat(simd, 0); 16];
    for (row, block) in rows.iter_mut().zip(blocks) {
        let mut lanes = [0; 16];
        for (number, lane) in lanes.iter_mut().enumerate() {
            *lane = u32::from_le_bytes(block.as_chunks().0[number]);
        }
        *row = lanes.simd_into(simd);
    }
    for _ in 0..4 {
        let mut zipped = rows;
        for (number, pair) in zipped.as_chunks_mut().0.iter_mut().enumerate() {
            let (a, b) = (rows[number], rows[number + 8]);
            *pair = [a.zip_low(b), a.zip_high(b)];
        }
        rows = zipped;
    }
    rows
}

/// The compression function of RFC 1321, section 3.4.
#[inline(always)]
fn compress<W: Words<N>, const N: usize>(simd: W::Simd, state: &mut [W; 4], message: &[W; 16]) {
    let [mut a, mut b, mut c, mut d] = *state;
    /// Four steps of a round, `i` of 16: the words of the message are those at `k * i + offset`.
    macro_rules! steps {
        ($mix:expr, $table:ident, $k:literal * $i:literal + $offset:literal, $s1:literal $s2:literal $s3:literal $s4:literal) => {
            a = step::<W, N, $s1>(simd, [a, b, c, d], message[($k * $i + $offset) % 16], $table[$i], $mix);
            d = step::<W, N, $s2>(simd, [d, a, b, c], message[($k * ($i + 1) + $offset) % 16], $table[$i + 1], $mix);
            c = step::<W, N, $s3>(simd, [c, d, a, b], message[($k * ($i + 2) + $offset) % 16], $table[$i + 2], $mix);
            b = step::<W, N, $s4>(simd, [b, c, d, a], message[($k * ($i + 3) + $offset) % 16], $table[$i + 3], $mix);
        };
    }
    macro_rules! round {
        ($mix:expr, $table:ident, $k:literal, $offset:literal, $s1:literal $s2:literal $s3:literal $s4:literal) => {
            steps!($mix, $table, $k * 0 + $offset, $s1 $s2 $s3 $s4);
            steps!($mix, $table, $k * 4 + $offset, $s1 $s2 $s3 $s4);
            steps!($mix, $table, $k * 8 + $offset, $s1 $s2 $s3 $s4);
            steps!($mix, $table, $k * 12 + $offset, $s1 $s2 $s3 $s4);
        };
    }
    round!(|sum: W, x: W, y: W, z: W| sum + (z ^ (x & (y ^ z))), ROUND_1, 1, 0, 7 12 17 22);
    round!(W::add_selected, ROUND_2, 5, 1, 5 9 14 20);
    round!(|sum: W, x: W, y: W, z: W| sum + (x ^ (y ^ z)), ROUND_3, 3, 5, 4 11 16 23);
    round!(|sum: W, x: W, y: W, z: W| sum + (y ^ (x | !z)), ROUND_4, 7, 0, 6 10 15 21);
    *state = [state[0] + a, state[1] + b, state[2] + c, state[3] + d];
}

#[inline(always)]
fn step<W: Words<N>, const N: usize, const BITS: u32>(
    simd: W::Simd,
    [a, b, c, d]: [W; 4],
    word: W,
    constant: u32,
    add_mix: impl Fn(W, W, W, W) -> W,
) -> W {
    add_mix(a + (word + W::all(simd, constant)), b, c, d).rotate_left::<BITS>() + b
}

const ROUND_1: [u32; 16] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
];
const ROUND_2: [u32; 16] = [
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
];
const ROUND_3: [u32; 16] = [
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
];
const ROUND_4: [u32; 16] = [
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

#[cfg(test)]
mod tests {
    use md5::digest::common::hazmat::SerializableState as _;
    use md5::{Digest as _, Md5};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn contents_of_every_length_around_a_block_have_their_digest() {
        for length in 0..=3 * BLOCK {
            let content: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
            let mut state = Md5State::default();
            update(vec![(&mut state, &[Bytes::from(content.clone())])]);
            assert_eq!(state.finish(), <[u8; 16]>::from(Md5::digest(&content)), "{length} bytes");
        }
    }

    #[test]
    fn a_digest_continues_from_its_bytes() {
        let content: Vec<u8> = (0..3 * BLOCK).map(|n| (n * 7) as u8).collect();
        for length in 0..=content.len() {
            let (first, second) = content.split_at(length);
            let mut state = Md5State::default();
            update(vec![(&mut state, &[Bytes::copy_from_slice(first)])]);
            let bytes = state.to_bytes();
            assert_eq!(bytes.as_slice(), Md5::new_with_prefix(first).serialize().as_slice(), "{length} bytes");
            let Some(mut state) = Md5State::from_bytes(&bytes) else { panic!("{length} bytes") };
            update(vec![(&mut state, &[Bytes::copy_from_slice(second)])]);
            assert_eq!(state.finish(), <[u8; 16]>::from(Md5::digest(&content)), "{length} bytes");
        }
    }

    #[test]
    fn other_bytes_make_no_digest() {
        let bytes = Md5State::default().to_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes;
            bytes[at] = byte;
            Md5State::from_bytes(&bytes)
        };
        // As many bytes behind the last block as a whole one, and padding that is not zero
        assert!(with(24, BLOCK as u8 - 1).is_some());
        for (at, byte) in [(24, BLOCK as u8), (24, 255), (25, 1), (STATE_BYTES - 1, 1)] {
            assert!(with(at, byte).is_none(), "{byte} at {at}");
        }
        assert!(with(23, 255).is_none(), "more bytes than can be counted");
        for length in 0..STATE_BYTES {
            assert!(Md5State::from_bytes(&bytes[..length]).is_none(), "{length} bytes");
        }
        assert!(Md5State::from_bytes(&[&bytes[..], &[0]].concat()).is_none());
    }

    /// Returns the kinds of vectors that this processor has.
    fn levels() -> Vec<Level> {
        let best = Level::new();
        let mut levels = vec![best, Level::baseline()];
        #[cfg(target_arch = "x86_64")]
        levels.extend(
            [
                best.as_sse2().map(Level::Sse2),
                best.as_sse4_2().map(Level::Sse4_2),
                best.as_avx2().map(Level::Avx2),
                best.as_avx512().map(Level::Avx512),
            ]
            .into_iter()
            .flatten(),
        );
        levels
    }

    proptest! {
        /// Each content has a number of pieces, each of which has chunks.
        #[test]
        fn contents_that_are_hashed_together_have_the_digests_of_each(
            contents in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..4), 0..4),
                0..3 * MAX_LANES / 2,
            ),
        ) {
            let chunks: Vec<Vec<Vec<Bytes>>> = contents
                .iter()
                .map(|pieces| pieces.iter().map(|piece| piece.iter().map(|chunk| Bytes::from(chunk.clone())).collect()).collect())
                .collect();
            for level in levels() {
                let mut states = vec![Md5State::default(); contents.len()];
                for piece in 0..4 {
                    let together = states.iter_mut().zip(&chunks);
                    let together = together.filter_map(|(state, pieces)| Some((state, pieces.get(piece)?.as_slice())));
                    update_with(level, together.collect());
                }
                for (state, pieces) in states.iter().zip(&contents) {
                    let whole: Vec<u8> = pieces.iter().flatten().flatten().copied().collect();
                    prop_assert_eq!(state.finish(), <[u8; 16]>::from(Md5::digest(&whole)), "{:?}", level);
                }
            }
        }
    }
}
