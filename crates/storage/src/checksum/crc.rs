//! Cyclic redundancy checks with reflected polynomials of at most 64 bits: the two checksums of S3
//! besides the usual CRC-32.

/// The bytes that are processed in one step.
const STEP: usize = 8;

/// The remainders of one byte, at each place of a step.
type Remainders = [[u64; 256]; STEP];

static CRC32C: Remainders = remainders(0x82f6_3b78);
static CRC64_NVME: Remainders = remainders(0x9a6c_9329_ac4b_c9b5);

/// A check whose value begins with ones and is inverted at its end.
pub(crate) struct Crc {
    remainders: &'static Remainders,
    /// The ones of the check's size.
    ones: u64,
    value: u64,
}

impl Crc {
    /// Begins a CRC-32C (Castagnoli).
    pub fn castagnoli() -> Self {
        Self::new(&CRC32C, u32::MAX.into())
    }

    /// Begins a CRC-64/NVME.
    pub fn nvme() -> Self {
        Self::new(&CRC64_NVME, u64::MAX)
    }

    fn new(remainders: &'static Remainders, ones: u64) -> Self {
        Self { remainders, ones, value: ones }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let (steps, rest) = bytes.as_chunks::<STEP>();
        for step in steps {
            let mixed = (self.value ^ u64::from_le_bytes(*step)).to_le_bytes();
            let places = mixed.iter().zip(self.remainders.iter().rev());
            self.value = places.fold(0, |value, (byte, remainders)| value ^ remainders[usize::from(*byte)]);
        }
        for byte in rest {
            let [low, ..] = self.value.to_le_bytes();
            self.value = (self.value >> 8) ^ self.remainders[0][usize::from(low ^ byte)];
        }
    }

    /// Returns the value with its most significant byte first.
    pub fn finish(self) -> Vec<u8> {
        let value = self.value ^ self.ones;
        let bytes = value.to_be_bytes();
        bytes[self.ones.leading_zeros() as usize / 8..].to_vec()
    }
}

/// Computes the remainders of a polynomial.
const fn remainders(polynomial: u64) -> Remainders {
    let mut remainders = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ polynomial } else { value >> 1 };
            bit += 1;
        }
        remainders[0][byte] = value;
        byte += 1;
    }
    let mut place = 1;
    while place < STEP {
        let mut byte = 0;
        while byte < 256 {
            let before = remainders[place - 1][byte];
            remainders[place][byte] = (before >> 8) ^ remainders[0][(before & 0xff) as usize];
            byte += 1;
        }
        place += 1;
    }
    remainders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(mut crc: Crc, pieces: &[&[u8]]) -> String {
        pieces.iter().for_each(|piece| crc.update(piece));
        hex::encode(crc.finish())
    }

    #[test]
    fn the_values_are_the_published_ones() {
        assert_eq!(checked(Crc::castagnoli(), &[b"123456789"]), "e3069283");
        assert_eq!(checked(Crc::nvme(), &[b"123456789"]), "ae8b14860a799888");
        assert_eq!(checked(Crc::castagnoli(), &[&[0; 32]]), "8a9136aa");
        assert_eq!(checked(Crc::castagnoli(), &[]), "00000000");
        assert_eq!(checked(Crc::nvme(), &[]), "0000000000000000");
    }

    #[test]
    fn the_value_does_not_depend_on_the_pieces() {
        let bytes: Vec<u8> = (0..100_u8).collect();
        for at in 0..bytes.len() {
            let (first, second) = bytes.split_at(at);
            for crc in [Crc::castagnoli, Crc::nvme] {
                assert_eq!(checked(crc(), &[first, second]), checked(crc(), &[&bytes]), "{at}");
            }
        }
    }
}
