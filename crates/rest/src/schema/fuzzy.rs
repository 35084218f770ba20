//! Fuzzy search for names in error messages.

/// The limit of candidates that are compared letter by letter, the best by grams first.
const RESCORED: usize = 50;
/// The limit of a name's length. Comparing takes quadratic time, and names of this length are not
/// typing errors.
const LONGEST: usize = 512;

/// Returns the candidate that is most similar to `needle`, if its score is at least `minimum` (0 to
/// 1); the first by name among equals.
///
/// Candidates are found by the triples of letters that they share with the needle, or by pairs if
/// no triple matches. Their score is the share of letters that need no change. Letter case does not
/// matter; punctuation matters only for the score.
pub fn nearest<'a>(needle: &str, candidates: impl IntoIterator<Item = &'a str>, minimum: f64) -> Option<&'a str> {
    let needle = NormalizedName::of(needle)?;
    let candidates: Vec<(&str, NormalizedName)> =
        candidates.into_iter().filter_map(|candidate| Some((candidate, NormalizedName::of(candidate)?))).collect();
    let same = candidates.iter().filter(|(_, compared)| compared.lower == needle.lower);
    if let Some((exact, _)) = same.min_by_key(|(name, _)| *name) {
        return Some(exact);
    }
    [3, 2].into_iter().find_map(|size| nearest_by_grams(&needle, &candidates, size, minimum))
}

fn nearest_by_grams<'a>(
    needle: &NormalizedName,
    candidates: &[(&'a str, NormalizedName)],
    size: usize,
    minimum: f64,
) -> Option<&'a str> {
    let own = Grams::of(&needle.letters, size);
    let mut scored: Vec<(f64, &str, &[char])> = candidates
        .iter()
        // No score exceeds the ratio of the lengths
        .filter(|(_, compared)| share(compared.lower.len(), needle.lower.len()) >= minimum)
        .map(|(name, compared)| (own.cosine(&Grams::of(&compared.letters, size)), *name, compared.lower.as_slice()))
        .filter(|(cosine, ..)| *cosine > 0.0)
        .collect();
    scored.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(other.1)));
    scored
        .into_iter()
        .take(RESCORED)
        .map(|(_, name, lower)| (similarity(&needle.lower, lower), name))
        .filter(|(score, _)| *score >= minimum)
        .min_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(other.1)))
        .map(|(_, name)| name)
}

/// A text in the two forms that are compared.
struct NormalizedName {
    /// In lower case.
    lower: Vec<char>,
    /// The same without anything but letters, digits, commas, spaces and underscores.
    letters: Vec<char>,
}

impl NormalizedName {
    /// Returns `None` if no letter is left, or the text is too long.
    fn of(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, '_' | ',' | ' ');
        let lower: Vec<char> = text.chars().flat_map(char::to_lowercase).collect();
        let letters: Vec<char> = lower.iter().copied().filter(kept).collect();
        (!letters.is_empty()).then_some(Self { lower, letters })
    }
}

/// The number of occurrences of each gram, in order. A letter takes 21 bits, so three fit into one
/// number.
struct Grams(Vec<(u64, u32)>);

impl Grams {
    /// Counts the grams of `size` letters, with a mark at both ends of the text.
    fn of(text: &[char], size: usize) -> Self {
        let marked: Vec<u64> = [&['-'], text, &['-']].concat().into_iter().map(u64::from).collect();
        let mut runs: Vec<u64> =
            marked.windows(size).map(|run| run.iter().fold(0, |packed, letter| packed << 21 | letter)).collect();
        runs.sort_unstable();
        Self(runs.chunk_by(u64::eq).filter_map(|equal| Some((*equal.first()?, equal.len() as u32))).collect())
    }

    /// Returns the cosine similarity, from 0 to 1.
    fn cosine(&self, other: &Self) -> f64 {
        let common = self.0.iter().filter_map(|(gram, count)| {
            let at = other.0.binary_search_by_key(gram, |(theirs, _)| *theirs).ok()?;
            Some(f64::from(*count) * f64::from(other.0.get(at)?.1))
        });
        common.sum::<f64>() / (self.magnitude() * other.magnitude())
    }

    fn magnitude(&self) -> f64 {
        self.0.iter().map(|(_, count)| f64::from(*count).powi(2)).sum::<f64>().sqrt()
    }
}

fn share(one: usize, other: usize) -> f64 {
    one.min(other) as f64 / one.max(other).max(1) as f64
}

/// Returns one minus the edit distance, divided by the length of the longer text.
fn similarity(one: &[char], other: &[char]) -> f64 {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, left) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (below, right) in other.iter().enumerate() {
            let changed = diagonal + usize::from(left != right);
            diagonal = row[below + 1];
            row[below + 1] = changed.min(diagonal + 1).min(row[below] + 1);
        }
    }
    1.0 - row[other.len()] as f64 / one.len().max(other.len()).max(1) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn similar_names_are_found() {
        let names = ["films", "directors", "roles", "role_list", "actors", "film_list"];
        for (needle, minimum, expected) in [
            ("role", 0.33, Some("roles")),
            ("film", 0.75, Some("films")),
            ("FILMS", 0.75, Some("films")),
            ("filmz", 0.75, Some("films")),
            ("direktors", 0.75, Some("directors")),
            ("flims", 0.75, None),
            ("nothing_alike", 0.75, None),
            ("", 0.33, None),
            ("%!", 0.33, None),
        ] {
            assert_eq!(nearest(needle, names, minimum), expected, "{needle}");
        }
    }

    #[test]
    fn parameter_lists_are_compared_as_texts() {
        assert_eq!(nearest("(a, b, c)", ["(a, b)", "(x, y, z)"], 0.33), Some("(a, b)"));
        // Parentheses contribute to the similarity, but are not sufficient alone
        assert_eq!(nearest("(a, zzz)", ["(a)"], 0.33), Some("(a)"));
        assert_eq!(nearest("a, zzz", ["a"], 0.33), None);
        assert_eq!(nearest("(x)", ["(a)"], 0.33), None);
        assert_eq!(nearest("()", ["(a)"], 0.33), None);
    }

    #[test]
    fn the_first_name_among_equal_candidates_is_chosen() {
        assert_eq!(nearest("film_x", ["film_b", "film_a"], 0.75), Some("film_a"));
        assert_eq!(nearest("films", ["FILMS", "films"], 0.75), Some("FILMS"));
    }

    proptest! {
        #[test]
        fn a_match_is_a_similar_candidate(
            needle in ".{0,600}",
            names in prop::collection::vec("[a-zA-Zü_ ]{0,12}", 0..20),
        ) {
            if let Some(found) = nearest(&needle, names.iter().map(String::as_str), 0.5) {
                prop_assert!(names.iter().any(|name| name == found));
                let score = similarity(&NormalizedName::of(&needle).unwrap().lower, &NormalizedName::of(found).unwrap().lower);
                prop_assert!(score >= 0.5);
            }
        }

        #[test]
        fn a_name_is_nearest_to_itself(name in "[a-z_]{1,30}", others in prop::collection::vec("[a-z_]{1,30}", 0..10)) {
            let candidates = others.iter().map(String::as_str).chain([name.as_str()]);
            prop_assert_eq!(nearest(&name, candidates, 1.0), Some(name.as_str()));
        }
    }
}
