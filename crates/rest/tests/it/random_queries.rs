//! Random queries, sensible or not: none returns a hidden row or breaks the SQL.

use std::fmt::Write as _;

use portico_rest::plan::BodyFormat;
use portico_rest::sql::RowCount;

use crate::reads::{JSON, ReadError, ReadRunner};
use crate::seeded_dice::SeededDice;

/// Parts of queries, combined at random.
const ITEMS: [&str; 34] = [
    "*",
    "id",
    "title",
    "body",
    "count",
    "count()",
    "id.max()",
    "x:id.sum()::text",
    "meta->a->>b",
    "tags->0",
    "data->0->k",
    "full_name",
    "reviews(*)",
    "reviews(body,films(*))",
    "reviews!inner(id)",
    "reviews()",
    "...reviews(body,stars)",
    "...films(title,id)",
    "films(*)",
    "films!inner(reviews(*))",
    "films(count)",
    "r:reviews(stars.max())",
    "directors(*)",
    "...directors(id.max())",
    "director:directors!inner(last_name)",
    "actors!roles(*)",
    "roles(character,actors(*))",
    "...roles(...actors(first_name))",
    "...directors(*)",
    "id::text",
    "maker(last_name)",
    "technical_details(*)",
    "...technical_details(camera)",
    "recent_films_of(reviews(*))",
];
const PAIRS: [&str; 32] = [
    "id=eq.1",
    "id=in.(1,2,3)",
    "id=not.in.()",
    "body=like.*H*",
    "body=fts.great",
    "stars=gte.1",
    "reviews=is.null",
    "reviews=not.is.null",
    "films=is.null",
    "r.stars=gt.1",
    "reviews.id=gt.0",
    "films.reviews.stars=eq.4",
    "or=(id.gt.0,reviews.is.null,public.is.false)",
    "and=(id.gt.0,or(owner.eq.00000000-0000-4000-8000-00000000000a,id.lt.9))",
    "reviews.or=(stars.eq.4,body.eq.Hidden)",
    "order=id",
    "order=directors(last_name),id.desc",
    "order=films(title)",
    "order=director(last_name).desc.nullsfirst",
    "reviews.order=stars.desc",
    "films.order=id.desc",
    "reviews.limit=1",
    "reviews.offset=1",
    "limit=2",
    "offset=1",
    "limit=0",
    "films.limit=1",
    "owner=eq.00000000-0000-4000-8000-00000000000a",
    "public=is.false",
    "not.or=(public.is.true)",
    "title=ilike(any).{*a*,b}",
    "meta->a->>b=eq.1",
];

/// Errors of PostgreSQL for a meaningless request. Others, such as a syntax error, would mean that
/// the generated SQL is wrong.
const SENSELESS: [&str; 9] = ["42703", "42883", "42803", "22P02", "42804", "42846", "42702", "42712", "42725"];

#[tokio::test]
async fn no_query_returns_a_hidden_row_or_breaks_the_sql() {
    let reader = ReadRunner::open().await;
    let mut dice = SeededDice(0x2545_f491_4f6c_dd1d);
    let mut succeeded = 0;
    for _ in 0..1500 {
        let table = dice.of(&["films", "reviews", "directors", "roles", "actors"]);
        let items: Vec<_> = (0..=dice.below(2)).map(|_| dice.of(&ITEMS)).collect();
        let mut resource = format!("{table}?select={}", items.join(","));
        for _ in 0..dice.below(3) {
            write!(resource, "&{}", dice.of(&PAIRS)).unwrap();
        }
        let body_format = dice.of(&[
            &JSON,
            &BodyFormat::Csv,
            &BodyFormat::Json { shape: portico_rest::plan::ResultShape::Set, strip_nulls: true },
        ]);
        match reader.ask("anon", &resource, RowCount::Exact, body_format).await {
            Ok(response) => {
                succeeded += 1;
                let body = response.body.unwrap();
                assert!(!body.contains("Hidden"), "{resource}: {body}");
                assert!(table != "reviews" || response.total.unwrap() <= 2, "{resource}: {:?}", response.total);
            }
            Err(ReadError::Ours(_)) => {}
            Err(ReadError::Postgres(code, message)) => {
                assert!(SENSELESS.contains(&code.as_str()), "{resource}: {code} {message}");
            }
        }
    }
    assert!(succeeded > 100, "only {succeeded} made sense");
}
