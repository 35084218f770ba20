//! A small random number generator that a seed repeats (splitmix64).

/// The generator.
pub struct SeededRandom(u64);

impl SeededRandom {
    /// Makes a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Makes another generator, for another task.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a random element.
    pub fn choose<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        let at = self.below(among.len() as u64);
        &among[usize::try_from(at).unwrap()]
    }
}
