//! Errors, limits, and the work of parsing.

use super::*;

#[test]
fn parse_errors_have_message_and_details() {
    let expected = |message: &str, details: &str| (message.to_owned(), details.to_owned());
    assert_eq!(
        parse_error("order=id.asc.nullslasttt"),
        expected(
            "\"failed to parse order (id.asc.nullslasttt)\" (line 1, column 17)",
            "unexpected 't' expecting \",\" or end of input"
        )
    );
    assert_eq!(
        parse_error("id=value"),
        expected(
            "\"failed to parse filter (value)\" (line 1, column 1)",
            "unexpected \"v\" expecting \"not\" or operator (eq, gt, ...)"
        )
    );
    assert_eq!(
        parse_error("or=()"),
        expected(
            "\"failed to parse logic tree (())\" (line 1, column 4)",
            "unexpected \")\" expecting field name (* or [a..z0..9_$]), negation operator (not) or logic operator (and, or)"
        )
    );
    for (raw, prefix) in [
        ("select=a,,b", "\"failed to parse select parameter (a,,b)\" (line 1, column 3)"),
        ("select=rel(a", "\"failed to parse select parameter (rel(a)\" (line 1, column 6)"),
        ("select=rel!left_fk(a)", "\"failed to parse select parameter (rel!left_fk(a))\" (line 1, column 9)"),
        ("a=is.maybe", "\"failed to parse filter (is.maybe)\" (line 1, column 4)"),
        ("(=eq.1", "\"failed to parse tree path (()\" (line 1, column 1)"),
        ("(.or=(a.eq.1)", "\"failed to parse logic path ((.or)\" (line 1, column 1)"),
        ("(.limit=1", "\"failed to parse tree path ((.limit)\" (line 1, column 1)"),
        ("columns=", "\"failed to parse columns parameter ()\" (line 1, column 1)"),
        ("on_conflict=(", "\"failed to parse on_conflict parameter (()\" (line 1, column 1)"),
        ("a=eqq.%0A%09", "\"failed to parse filter (eqq.\n\t)\" (line 1, column 1)"),
        ("order=%22%0A%09x", "\"failed to parse order (\"\n\tx)\" (line 2, column 10)"),
    ] {
        assert_eq!(parse_error(raw).0, prefix, "{raw}");
    }
}

#[test]
fn parameters_are_parsed_in_a_fixed_order() {
    let wrong = ["on_conflict=(", "a=b", "select=a(", "columns=(", "or=x", "order=("];
    let words = ["on_conflict", "filter", "select", "columns", "logic tree", "order"];
    for upto in 0..wrong.len() {
        let raw = wrong[..=upto].join("&");
        assert!(parse_error(&raw).0.contains(words[upto]), "{raw}");
    }
}

#[test]
fn a_filter_of_a_function_is_no_argument() {
    let raw = "a=1&b=eq.5&c=is.null&d=not.eq.x&(=in+x&a=2&limit=3&x=in.(1)";
    let query = parse(raw, QueryTarget::Function { read: true }).unwrap();
    let arguments: Vec<_> = query.arguments.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(arguments, [("a", "1"), ("(", "in x"), ("a", "2")]);
    assert_eq!(query.filters.len(), 4);
    assert!(parse("a=1", QueryTarget::Function { read: false }).is_err());
}

#[test]
fn nesting_and_lists_are_bounded() {
    let deep = |levels: usize| format!("select={}a{}", "a(".repeat(levels), ")".repeat(levels));
    assert!(parse(&deep(64), QueryTarget::Relation).is_ok());
    assert_eq!(parse_error(&deep(65)).1, "nested too deeply");
    let deep = |levels: usize| format!("or=({}a.eq.1{})", "and(".repeat(levels - 1), ")".repeat(levels - 1));
    assert!(parse(&deep(64), QueryTarget::Relation).is_ok());
    assert_eq!(parse_error(&deep(65)).1, "nested too deeply");
    assert_eq!(parse_error(&deep(10_000)).1, "nested too deeply");
    for many in [
        format!("select={}a", "a,".repeat(5000)),
        format!("order={}a", "a,".repeat(5000)),
        format!("or=({}a.eq.1)", "a.eq.1,".repeat(5000)),
        format!("{}a=eq.1", "a.".repeat(5000)),
        format!("a{}=eq.1", "->a".repeat(5000)),
    ] {
        assert_eq!(parse_error(&many).1, "too many items");
    }
    assert!(parse_error(&"a=eq.1&".repeat(5000)).1.contains("more than 4096 parameters"));
    assert!(parse_error(&format!("a={}", "a".repeat(70_000))).1.contains("longer than"));
    let list = format!("a=in.({})", vec!["1"; 20_000].join(","));
    assert!(matches!(filter(&list).operation, FilterOperation::In(list) if list.len() == 20_000));
}

/// Returns the number of bytes that are scanned to parse `raw`.
fn work(raw: &str) -> usize {
    let before = SCANNED.get();
    let _ = parse(raw, QueryTarget::Relation);
    SCANNED.get() - before
}

#[test]
fn parsing_takes_linear_time() {
    for part in [
        "\"",
        "\\\"",
        "a,\"",
        "\"a,",
        "\"\\\",",
        "{",
        "a.eq.{,",
        "a.eq.\",",
        "a.eq.\"\\,",
        "not.",
        "a.in.(",
        "a.in.(\",",
        "a-",
        "a->",
        "->>",
        "a.",
        "and(",
        "a:",
        " ",
        "a!",
        "...",
        "a.eq.1,",
        "1",
        "a->1",
    ] {
        for (before, after) in
            [("or=(", ""), ("or=(", ")"), ("select=", ""), ("a=in.(", ""), ("order=", ""), ("", "=eq.1")]
        {
            let text = |times: usize| format!("{before}{}{after}", part.repeat(times));
            let (small, large) = (work(&text(1000)), work(&text(4000)));
            assert!(large <= 4 * small + 1000, "{before}{part}…{after}: {small} bytes looked at, then {large}");
        }
    }
}
