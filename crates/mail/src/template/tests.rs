//! Tables of templates: source, variables, result.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Template;

fn person() -> Value {
    json!({
        "SiteURL": "https://app.example.com",
        "ConfirmationURL": "https://api.example.com/auth/v1/verify?token=abc&type=signup&redirect_to=https://app.example.com",
        "Token": "123456",
        "TokenHash": "pkce_5f2c",
        "Email": "ann+news@example.com",
        "RedirectTo": "https://app.example.com/?a=b&c=d",
        "Data": {"name": "Ann <b> & \"Co\"", "roles": ["admin", "editor"], "age": 42, "score": 1000000.0, "is_new": false,
                 "address": {"city": "Bern"}, "tags": {"b": 2, "a": 1}},
        "Evil": "javascript:alert(1)",
        "Code": "</script><script>alert('x')//",
    })
}

fn html(source: &str) -> String {
    Template::parse(source).unwrap().render(&person()).unwrap()
}

fn text(source: &str) -> String {
    Template::parse_text(source).unwrap().render(&person()).unwrap()
}

fn error(source: &str) -> String {
    match Template::parse(source) {
        Err(error) => error.to_string(),
        Ok(template) => template.render(&person()).unwrap_err().to_string(),
    }
}

#[test]
fn values_conditions_and_loops_render() {
    let table = [
        ("plain", "plain"),
        ("{{ .Token }}", "123456"),
        ("{{.Data.address.city}}", "Bern"),
        ("{{ .Missing }}|{{ .Missing.deeper }}|{{ .Token.deeper }}", "||"),
        ("{{ if .Data.name }}yes{{ else }}no{{ end }}", "yes"),
        ("{{ if .Missing }}yes{{ else if .Token }}other{{ else }}no{{ end }}", "other"),
        ("{{ if and .Token (not .Missing) }}yes{{ end }}", "yes"),
        ("{{ with .Data.address }}{{ .city }} {{ $.Token }}{{ end }}", "Bern 123456"),
        ("{{ with .Missing }}a{{ else with .Token }}{{ . }}{{ else }}c{{ end }}", "123456"),
        ("{{ range .Data.roles }}<{{ . }}>{{ end }}", "<admin><editor>"),
        ("{{ range $i, $role := .Data.roles }}{{ if $i }}, {{ end }}{{ $role }}{{ end }}", "admin, editor"),
        ("{{ range $key, $value := .Data.tags }}{{ $key }}={{ $value }};{{ end }}", "a=1;b=2;"),
        ("{{ range .Missing }}x{{ else }}none{{ end }}", "none"),
        ("{{ range 3 }}{{ . }}{{ end }}", "012"),
        ("{{ range .Data.roles }}{{ . }}{{ break }}{{ end }}", "admin"),
        ("{{ range .Data.roles }}{{ if eq . \"admin\" }}{{ continue }}{{ end }}{{ . }}{{ end }}", "editor"),
        ("{{ $x := 1 }}{{ range .Data.roles }}{{ $x = . }}{{ end }}{{ $x }}", "editor"),
        ("{{ $x := \"a\" }}{{ if true }}{{ $x := \"b\" }}{{ end }}{{ $x }}", "a"),
        ("a  {{- .Token -}}  b", "a123456b"),
        ("a {{/* a comment */}} b", "a  b"),
        ("a {{- /* a comment */ -}} b", "ab"),
        ("{{ .Data.score }} {{ .Data.age }}", "1000000 42"),
        (
            "{{ eq .Data.age 42 }} {{ eq .Token \"1\" \"123456\" }} {{ ne 1 2 }} {{ lt 1 2 }} {{ ge \"b\" \"a\" }}",
            "true true true true true",
        ),
        ("{{ len .Data.roles }} {{ len .Token }}", "2 6"),
        ("{{ index .Data.roles 1 }} {{ index .Data \"address\" \"city\" }} {{ index .Data.roles 9 }}", "editor Bern "),
        ("{{ slice .Token 0 3 }} {{ slice .Token 3 }}", "123 456"),
        (
            "{{ printf \"%s-%05d-%.2f-%q-%v\" .Token .Data.age 1.5 \"q\" .Data.roles }}",
            "123456-00042-1.50-\"q\"-[admin editor]",
        ),
        ("{{ .Token | printf \"%s %s\" \"code\" }}", "code 123456"),
        ("{{ print 1 2 \"a\" 3 }}", "1 2a3"),
        ("{{ or .Missing \"friend\" }} {{ and .Token .Missing }}", "friend "),
        ("{{ (index .Data \"address\").city }}", "Bern"),
        (
            "{{ define \"row\" }}[{{ . }}]{{ end }}{{ range .Data.roles }}{{ template \"row\" . }}{{ end }}",
            "[admin][editor]",
        ),
        ("{{ block \"footer\" .Token }}({{ . }}){{ end }}", "(123456)"),
        ("{{ \"{{\" }}{{ `raw \"` }}{{ 'A' }}{{ \"\\u00e9\\x41\\n\" }}", "{{raw \"65éA\n"),
        ("{{ .Data.tags }}", "map[a:1 b:2]"),
        ("{{ 0x1F }} {{ -3 }} {{ 1e3 }}", "31 -3 1000"),
        ("{{ urlquery .RedirectTo }}", "https%3A%2F%2Fapp.example.com%2F%3Fa%3Db%26c%3Dd"),
        ("{{ html .Data.name }}", "Ann &lt;b&gt; &amp; &#34;Co&#34;"),
    ];
    for (source, expected) in table {
        assert_eq!(text(source), expected, "{source}");
    }
}

#[test]
fn values_are_escaped_for_their_place() {
    let table = [
        ("<p>{{ .Data.name }}</p>", "<p>Ann &lt;b&gt; &amp; &#34;Co&#34;</p>"),
        ("<p>{{ .Data.name | html }}</p>", "<p>Ann &lt;b&gt; &amp; &#34;Co&#34;</p>"),
        ("<p title=\"{{ .Data.name }}\">", "<p title=\"Ann &lt;b&gt; &amp; &#34;Co&#34;\">"),
        ("<p title='{{ .Email }}'>", "<p title='ann&#43;news@example.com'>"),
        ("<p title={{ .Data.name }}>", "<p title=Ann&#32;&lt;b&gt;&#32;&amp;&#32;&#34;Co&#34;>"),
        (
            "<a href=\"{{ .ConfirmationURL }}\">",
            "<a href=\"https://api.example.com/auth/v1/verify?token=abc&amp;type=signup&amp;redirect_to=https://app.example.com\">",
        ),
        (
            "<a href=\"{{ .SiteURL }}/auth/confirm?token_hash={{ .TokenHash }}&type=email&next={{ .RedirectTo }}\">",
            "<a href=\"https://app.example.com/auth/confirm?token_hash=pkce_5f2c&type=email&next=https%3a%2f%2fapp.example.com%2f%3fa%3db%26c%3dd\">",
        ),
        ("<a href=\"mailto:{{ .Email }}\">", "<a href=\"mailto:ann&#43;news@example.com\">"),
        ("<a href=\"{{ .Evil }}\">", "<a href=\"#ZgotmplZ\">"),
        ("<a href={{ .Evil }}>", "<a href=#ZgotmplZ>"),
        ("<img src='{{ .Evil }}'>", "<img src='#ZgotmplZ'>"),
        (
            "<script>var x = {{ .Code }};</script>",
            "<script>var x = \"\\u003c\\/script\\u003e\\u003cscript\\u003ealert(\\u0027x\\u0027)\\/\\/\";</script>",
        ),
        (
            "<script>var x = '{{ .Code }}';</script>",
            "<script>var x = '\\u003c\\/script\\u003e\\u003cscript\\u003ealert(\\u0027x\\u0027)\\/\\/';</script>",
        ),
        (
            "<script type=\"application/ld+json\">{\"age\": {{ .Data.age }}}</script>",
            "<script type=\"application/ld+json\">{\"age\":  42 }</script>",
        ),
        (
            "<button onclick=\"go('{{ .Code }}')\">",
            "<button onclick=\"go('\\u003c\\/script\\u003e\\u003cscript\\u003ealert(\\u0027x\\u0027)\\/\\/')\">",
        ),
        ("<p style=\"color: {{ .Data.address.city }}\">", "<p style=\"color: Bern\">"),
        ("<p style=\"color: {{ .Evil }}\">", "<p style=\"color: ZgotmplZ\">"),
        (
            "<style>p { width: {{ .Data.age }}px }</style>{{ .Data.name }}",
            "<style>p { width: 42px }</style>Ann &lt;b&gt; &amp; &#34;Co&#34;",
        ),
        ("<title>{{ .Data.name }}</title>", "<title>Ann &lt;b&gt; &amp; &#34;Co&#34;</title>"),
        ("a<!-- {{ .Token }} <b> -->b", "ab"),
        ("1 < 2 {{ .Token }} <{{ .Token }}", "1 &lt; 2 123456 &lt;123456"),
        ("<!DOCTYPE html><p>{{ .Token }}</p>", "<!DOCTYPE html><p>123456</p>"),
        ("<br/><img src=x alt=\"\" />{{ .Token }}", "<br/><img src=x alt=\"\" />123456"),
        ("<a {{ if .Token }}href=\"{{ .Evil }}\"{{ end }}>x</a>", "<a href=\"#ZgotmplZ\">x</a>"),
        ("<a {{ .Evil }}=\"x\">", "<a ZgotmplZ=\"x\">"),
        ("<a {{ \"onclick\" }}=\"x\">", "<a ZgotmplZ=\"x\">"),
        ("<a on{{ \"click\" }}=\"{{ .Evil }}\">", "<a onclick=\"&#34;javascript:alert(1)&#34;\">"),
        ("<p>{{ .Missing }}</p>", "<p></p>"),
        ("<p>{{ html .Data.name }}{{ .Missing | html }}</p>", "<p>Ann &lt;b&gt; &amp; &#34;Co&#34;</p>"),
        (
            "<a href=\"/x?next={{ .RedirectTo | urlquery }}\">",
            "<a href=\"/x?next=https%3a%2f%2fapp.example.com%2f%3fa%3db%26c%3dd\">",
        ),
        ("<a href=\"/x?next={{ urlquery .Token }}\">", "<a href=\"/x?next=123456\">"),
        ("<p>{{ urlquery .Email }}</p>", "<p>ann%2Bnews%40example.com</p>"),
    ];
    for (source, expected) in table {
        assert_eq!(html(source), expected, "{source}");
    }
}

#[test]
fn a_template_that_cannot_be_parsed_is_rejected_with_its_line() {
    let table = [
        ("{{", "line 1: an action is not closed with }}"),
        ("\n{{ .A", "line 2: an action is not closed with }}"),
        ("{{ }}", "line 1: an action is empty"),
        ("{{ if .A }}", "line 1: {{if}} is not closed with {{end}}"),
        ("{{ end }}", "line 1: {{end}} without a beginning"),
        ("{{ if .A }}{{ else }}{{ else }}{{ end }}", "line 1: a second {{else}}"),
        ("\n\n{{ nothing }}", "line 3: there is no function \"nothing\""),
        ("{{ $x }}", "line 1: the variable $x does not exist"),
        ("{{ .A .B }}", "line 1: only a function takes arguments"),
        ("{{ .A | .B }}", "line 1: what follows a | must be a function"),
        ("{{ template \"x\" }}", "line 1: there is no template \"x\""),
        ("{{ break }}", "line 1: break outside of a range"),
        ("{{ \"open }}", "line 1: a string is not closed"),
        ("{{/* open }}", "line 1: the comment is not closed"),
        ("{{ (.A }}", "line 1: a parenthesis is not closed"),
        ("{{ lt .Token 1 }}", "line 1: lt: only two numbers or two texts can be compared"),
        ("{{ range .Token }}{{ end }}", "line 1: range needs a list"),
        (
            "<script>`{{ .Token }}`</script>",
            "line 1: a value cannot stand inside a script's template literal or regular expression",
        ),
    ];
    for (source, expected) in table {
        assert_eq!(error(source), expected, "{source}");
    }
}

#[test]
fn work_depth_and_output_have_limits() {
    assert!(
        error("{{ range 1000 }}{{ range 1000 }}{{ range 1000 }}x{{ end }}{{ end }}{{ end }}").contains("too much work")
    );
    assert!(error("{{ range 9000000000000 }}{{ end }}").contains("too much work"));
    assert!(error("{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}").contains("nests too deeply"));
    assert!(error(&"{{ if true }}".repeat(100)).contains("nest too deeply"));
    assert!(error(&format!("{{{{ {}1{} }}}}", "(".repeat(500), ")".repeat(500))).contains("nest too deeply"));
    let long = format!("{{{{ range 1000 }}}}{}{{{{ end }}}}", "x".repeat(10_000));
    assert!(error(&long).contains("too long"));
    assert!(Template::parse(&"x".repeat(1_000_001)).is_err());
    assert!(
        error("{{ $x := \"aaaaaaaaaaaaaaaaaaaaaaaa\" }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}")
            .contains("too much work")
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_or_the_runner_panic(source in "(\\{\\{|\\}\\}|[-a-z.$|()\"'`:=,<>/! \\n]|if |end|range |else|with |\\PC){0,60}") {
        if let Ok(template) = Template::parse(&source) {
            let _ = template.render(&person());
        }
    }

    #[test]
    fn any_bytes_between_braces_are_survived(inside in "\\PC{0,40}") {
        if let Ok(template) = Template::parse(&format!("<a href=\"{{{{{inside}}}}}\">{{{{ {inside} }}}}")) {
            let _ = template.render(&person());
        }
    }

    #[test]
    fn text_without_actions_comes_out_as_it_went_in(source in "[^{]{0,200}") {
        prop_assert_eq!(Template::parse_text(&source).unwrap().render(&()).unwrap(), source);
    }

    #[test]
    fn html_without_comments_and_stray_brackets_comes_out_as_it_went_in(source in "(<[a-z]{1,8}( [a-z]{1,5}=\"[^\"{]{0,9}\")?>|</[a-z]{1,8}>|[^<{]){0,20}") {
        prop_assert_eq!(Template::parse(&source).unwrap().render(&()).unwrap(), source);
    }

    #[test]
    fn a_value_never_opens_a_tag_or_leaves_its_attribute(value in "\\PC{0,40}") {
        let data = json!({"V": value});
        let body = Template::parse("{{ .V }}").unwrap().render(&data).unwrap();
        prop_assert!(!body.contains(['<', '>', '"', '\'']));
        let attribute = Template::parse("<a title=\"{{ .V }}\" class={{ .V }} href='{{ .V }}'>").unwrap().render(&data).unwrap();
        prop_assert_eq!(attribute.matches('"').count(), 2);
        prop_assert_eq!(attribute.matches('\'').count(), 2);
        prop_assert_eq!(attribute.matches('>').count(), 1);
        let script = Template::parse("<script>f({{ .V }}, '{{ .V }}')</script>").unwrap().render(&data).unwrap();
        prop_assert_eq!(script.matches('<').count(), 2);
        prop_assert_eq!(script.matches('\'').count(), 2);
    }
}
