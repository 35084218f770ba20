//! "Did you mean": finds the known name that is closest to a mistyped one.

/// Returns the candidate with the fewest edits to `name`, if it is close enough.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A name of the user may have any length; the table below must not
    if name.len() > 64 {
        return None;
    }
    let limit = (name.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Returns the Levenshtein distance, in which a swap of neighbours counts once.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let width = right.len() + 1;
    let mut rows = vec![0usize; (left.len() + 1) * width];
    for i in 0..=left.len() {
        for j in 0..=right.len() {
            rows[i * width + j] = if i == 0 {
                j
            } else if j == 0 {
                i
            } else {
                let same = usize::from(left[i - 1] != right[j - 1]);
                let mut best = (rows[(i - 1) * width + j] + 1)
                    .min(rows[i * width + j - 1] + 1)
                    .min(rows[(i - 1) * width + j - 1] + same);
                let swapped = i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1];
                if swapped {
                    best = best.min(rows[(i - 2) * width + j - 2] + 1);
                }
                best
            };
        }
    }
    rows[rows.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_typo_has_a_nearest_name_and_other_text_has_none() {
        let known = ["site_url", "jwt_expiry", "enable_signup"];
        assert_eq!(nearest("siteurl", known), Some("site_url"));
        assert_eq!(nearest("jwt_expriy", known), Some("jwt_expiry"));
        assert_eq!(nearest("colour_of_the_sky", known), None);
        assert_eq!(nearest(&"x".repeat(10_000), known), None);
    }
}
