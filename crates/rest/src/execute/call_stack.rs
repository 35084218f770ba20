//! The functions on the call stack of an error of PostgreSQL.

/// A function as the context of an error names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CalledFunction {
    /// The schema. Empty where PostgreSQL leaves it out.
    pub schema: String,
    /// The name.
    pub name: String,
}

/// Returns the functions in the context of an error, the innermost first. Only functions in SQL and
/// in procedural languages add themselves to it.
pub(crate) fn called_functions(context: &str) -> Vec<CalledFunction> {
    context.lines().filter_map(called_function).collect()
}

/// Reads a line such as `SQL function "f" statement 1` or `PL/pgSQL function s.f(integer) line 3 at
/// RETURN`.
fn called_function(line: &str) -> Option<CalledFunction> {
    let (language, function) = line.split_once(" function ")?;
    if language.contains(' ') {
        return None;
    }
    if language != "PL/pgSQL" {
        // The bare name in quotes, which are not doubled inside
        let (name, _) = function.strip_prefix('"')?.rsplit_once('"')?;
        return Some(CalledFunction { schema: String::new(), name: name.to_owned() });
    }
    let (first, rest) = identifier(function)?;
    Some(match rest.strip_prefix('.') {
        Some(rest) => CalledFunction { schema: first, name: identifier(rest)?.0 },
        None => CalledFunction { schema: String::new(), name: first },
    })
}

/// Splits off an identifier as SQL writes it.
fn identifier(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(['.', '(', ' ']).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        return Some((name.to_owned(), rest));
    };
    let mut name = String::new();
    let mut rest = quoted;
    loop {
        let (part, behind) = rest.split_once('"')?;
        name.push_str(part);
        match behind.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, behind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_read_from_the_context_of_an_error() {
        let context = "SQL function \"read \"log\"\" statement 1\n\
                       SQL statement \"select vault.read_log()\"\n\
                       PL/pgSQL function \"Odd.\"\"schema\".\"f(x)\"(integer,text) line 3 at PERFORM\n\
                       PL/pgSQL function inline_code_block line 1 at SQL statement\n\
                       PL/pgSQL function public.outer_one() line 1 at RETURN\n\
                       PL/Python function \"py\"\n\
                       while updating tuple (0,1) in relation \"a function \"";
        let expected = [
            ("", "read \"log\""),
            ("Odd.\"schema", "f(x)"),
            ("", "inline_code_block"),
            ("public", "outer_one"),
            ("", "py"),
        ];
        let found: Vec<_> = called_functions(context).into_iter().map(|f| (f.schema, f.name)).collect();
        let found: Vec<_> = found.iter().map(|(schema, name)| (schema.as_str(), name.as_str())).collect();
        assert_eq!(found, expected);
    }
}
