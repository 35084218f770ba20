//! Patterns of redirect targets: globs whose separators are `.` and `/`.

/// Longest pattern.
const MAX_PATTERN_CHARS: usize = 2048;

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedirectPattern(Vec<PatternToken>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternToken {
    Literal(char),
    /// `*`: any number of characters except separators
    Run,
    /// `**`: any number of characters
    AnyRun,
    /// `?`: one character except separators
    One,
    /// `[...]`
    Class {
        negated: bool,
        members: Vec<(char, char)>,
    },
    /// `{...}`
    Either(Vec<Vec<PatternToken>>),
}

pub(super) fn is_separator(c: char) -> bool {
    c == '.' || c == '/'
}

impl RedirectPattern {
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let chars: Vec<char> = text.chars().collect();
        if chars.len() > MAX_PATTERN_CHARS {
            return Err("the pattern is too long");
        }
        let mut at = 0;
        let tokens = parse_tokens(&chars, &mut at, 0)?;
        if at < chars.len() {
            return Err("there is a } without {");
        }
        Ok(Self(tokens))
    }

    pub(super) fn matches(&self, text: &[char]) -> bool {
        let mut positions = vec![false; text.len() + 1];
        positions[0] = true;
        advance(&self.0, text, positions)[text.len()]
    }
}

/// Parses tokens to the end, or to the `,` or `}` that ends an alternative.
fn parse_tokens(chars: &[char], at: &mut usize, depth: usize) -> Result<Vec<PatternToken>, &'static str> {
    if depth > 8 {
        return Err("alternatives are nested too deeply");
    }
    let mut tokens = Vec::new();
    while let Some(&c) = chars.get(*at) {
        match c {
            '}' if depth > 0 => break,
            ',' if depth > 0 => break,
            '}' => break,
            '\\' => {
                let literal = chars.get(*at + 1).ok_or("there is nothing after the last \\")?;
                tokens.push(PatternToken::Literal(*literal));
                *at += 2;
            }
            '*' => {
                let mut stars = 0;
                while chars.get(*at) == Some(&'*') {
                    stars += 1;
                    *at += 1;
                }
                tokens.push(if stars > 1 { PatternToken::AnyRun } else { PatternToken::Run });
            }
            '?' => {
                tokens.push(PatternToken::One);
                *at += 1;
            }
            '[' => {
                *at += 1;
                tokens.push(parse_class(chars, at)?);
            }
            '{' => {
                let mut alternatives = Vec::new();
                loop {
                    *at += 1;
                    alternatives.push(parse_tokens(chars, at, depth + 1)?);
                    match chars.get(*at) {
                        Some(',') => {}
                        Some('}') => break,
                        _ => return Err("there is a { without }"),
                    }
                }
                *at += 1;
                tokens.push(PatternToken::Either(alternatives));
            }
            other => {
                tokens.push(PatternToken::Literal(other));
                *at += 1;
            }
        }
    }
    Ok(tokens)
}

fn parse_class(chars: &[char], at: &mut usize) -> Result<PatternToken, &'static str> {
    let negated = chars.get(*at) == Some(&'!');
    *at += usize::from(negated);
    let mut members = Vec::new();
    loop {
        let mut c = *chars.get(*at).ok_or("there is a [ without ]")?;
        *at += 1;
        if c == ']' {
            break;
        }
        if c == '\\' {
            c = *chars.get(*at).ok_or("there is nothing after the last \\")?;
            *at += 1;
        }
        if chars.get(*at) == Some(&'-') && chars.get(*at + 1).is_some_and(|next| *next != ']') {
            let end = chars[*at + 1];
            if end < c {
                return Err("a range in [ ] runs backwards");
            }
            members.push((c, end));
            *at += 2;
        } else {
            members.push((c, c));
        }
    }
    if members.is_empty() {
        return Err("[ ] is empty");
    }
    Ok(PatternToken::Class { negated, members })
}

/// Returns the positions at which `tokens` can end if they start at one of `positions`. The cost is
/// at most the product of the two lengths.
fn advance(tokens: &[PatternToken], text: &[char], mut positions: Vec<bool>) -> Vec<bool> {
    for token in tokens {
        let step = |accepts: &dyn Fn(char) -> bool| {
            let mut next = vec![false; text.len() + 1];
            for (at, c) in text.iter().enumerate() {
                next[at + 1] = positions[at] && accepts(*c);
            }
            next
        };
        positions = match token {
            PatternToken::Literal(literal) => step(&|c| c == *literal),
            PatternToken::One => step(&|c| !is_separator(c)),
            PatternToken::Class { negated, members } => {
                step(&|c| members.iter().any(|(first, last)| (*first..=*last).contains(&c)) != *negated)
            }
            PatternToken::Run | PatternToken::AnyRun => {
                let crosses = *token == PatternToken::AnyRun;
                for (at, c) in text.iter().enumerate() {
                    positions[at + 1] |= positions[at] && (crosses || !is_separator(*c));
                }
                positions
            }
            PatternToken::Either(alternatives) => {
                let mut union = vec![false; text.len() + 1];
                for alternative in alternatives {
                    for (at, reached) in advance(alternative, text, positions.clone()).into_iter().enumerate() {
                        union[at] |= reached;
                    }
                }
                union
            }
        };
        if !positions.contains(&true) {
            break;
        }
    }
    positions
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_escaped_text_matches_only_itself(text in "[ -~]{1,30}", other in "[ -~]{1,30}") {
            let escaped: String = text.chars().flat_map(|c| ['\\', c]).collect();
            let pattern = RedirectPattern::parse(&escaped).unwrap();
            prop_assert!(pattern.matches(&text.chars().collect::<Vec<_>>()));
            prop_assert_eq!(pattern.matches(&other.chars().collect::<Vec<_>>()), text == other);
        }

        #[test]
        fn a_star_never_crosses_a_separator(before in "[a-z./]{0,10}", after in "[a-z./]{0,10}") {
            let text: Vec<char> = format!("{before}{after}").chars().collect();
            let expected = !text.iter().any(|c| is_separator(*c));
            prop_assert_eq!(RedirectPattern::parse("*").unwrap().matches(&text), expected);
            prop_assert!(RedirectPattern::parse("**").unwrap().matches(&text));
        }
    }
}
