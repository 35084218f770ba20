//! Where in the claims of a token the role is: `.role`, `$.realm_access.roles[0]`, `."https://example.com/role"`.

use serde_json::{Map, Value};

/// A path into the claims: JSONPath's plain steps, and the older dotted form without `$` (contract 15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Default for ClaimPath {
    fn default() -> Self {
        Self(vec![Step::Key("role".into())])
    }
}

impl ClaimPath {
    /// Reads a path; `None` when it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim();
        rest = rest.strip_prefix('$').unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let (inner, after) = after.split_once(']')?;
                let quoted = |mark| inner.strip_prefix(mark).and_then(|inner: &str| inner.strip_suffix(mark));
                steps.push(match quoted('"').or_else(|| quoted('\'')) {
                    Some(key) => Step::Key(key.to_owned()),
                    None => Step::Index(inner.trim().parse().ok()?),
                });
                rest = after;
                continue;
            }
            rest = rest.strip_prefix('.')?;
            if let Some(after) = rest.strip_prefix('"') {
                let (key, after) = after.split_once('"')?;
                steps.push(Step::Key(key.to_owned()));
                rest = after;
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                let (key, after) = rest.split_at(end);
                if key.is_empty() {
                    return None;
                }
                steps.push(Step::Key(key.to_owned()));
                rest = after;
            }
        }
        (!steps.is_empty()).then_some(Self(steps))
    }

    /// What the path leads to.
    pub fn find<'a>(&self, claims: &'a Map<String, Value>) -> Option<&'a Value> {
        let (first, rest) = self.0.split_first()?;
        let Step::Key(key) = first else { return None };
        rest.iter().try_fold(claims.get(key)?, |value, step| match step {
            Step::Key(key) => value.get(key),
            Step::Index(index) => value.get(index),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_of_paths_lead_to_the_claim() {
        let claims = json!({ "role": "a", "x": { "y-z": ["b", { "c d": "c" }] }, "https://example.com/role": "d" });
        let claims = claims.as_object().unwrap();
        for (path, found) in [
            (".role", Some("a")),
            ("$.role", Some("a")),
            (".x.y-z[0]", Some("b")),
            ("$.x.y-z[1].\"c d\"", Some("c")),
            ("$['x']['y-z'][0]", Some("b")),
            (".\"https://example.com/role\"", Some("d")),
            (".x.y", None),
            (".x[0]", None),
        ] {
            let value = ClaimPath::parse(path).unwrap().find(claims).and_then(Value::as_str);
            assert_eq!(value, found, "{path}");
        }
        for path in ["", "role", ".", "..a", ".a[", ".a[x]", "$"] {
            assert_eq!(ClaimPath::parse(path), None, "{path}");
        }
    }
}
