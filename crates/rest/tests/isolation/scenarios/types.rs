//! Casts, operators, aggregates, row types, computed fields and relationships, domain
//! representations, media type handlers.
//!
//! Collations are left out: they run no user-defined code and read no settings.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const MARK: &str = r#"{"mark":"{mark}"}"#;
const WHO: &str = r#"[{"who":"{context}"}]"#;

pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = casts_and_operators();
    scenarios.extend(computed());
    scenarios.extend(representations());
    scenarios
}

fn casts_and_operators() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "cast_in_select",
            "create type public.stamp as (seen text);
             create function private.stamp_of(integer) returns public.stamp language plpgsql as $$
             begin return row(public.request_context())::public.stamp; end $$;
             create cast (integer as public.stamp) with function private.stamp_of(integer) as assignment;
             create domain public.watched as text check (public.request_context() <> '');
             create table cast_in_select (id integer);
             insert into cast_in_select values (1);",
            [
                Probe::get("cast_in_select?select=who:id::stamp").expect(200, r#"[{"who":{"seen":"{context}"}}]"#),
                Probe::get("cast_in_select?select=id::watched").expect(200, r#"[{"id":"1"}]"#),
            ],
        ),
        Scenario::new(
            "cast_on_assignment",
            "create type public.seal as (who text);
             create function private.seal_of(integer) returns public.seal language plpgsql as $$
             begin return row(public.request_context())::public.seal; end $$;
             create cast (integer as public.seal) with function private.seal_of(integer) as assignment;
             create table seals (mark text, seal public.seal);
             create view cast_on_assignment as select mark, 1 as number from seals;
             create rule cast_on_insert as on insert to cast_on_assignment do instead
               insert into seals (mark, seal) values (new.mark, 5) returning mark, 1;
             create view seals_read as select mark, (seal).who as who from seals;",
            [
                Probe::post("cast_on_assignment", MARK).minimal().expect(201, ""),
                Probe::get("seals_read?select=mark&mark=eq.{mark}").expect(200, "[]"),
            ],
        ),
        Scenario::new(
            "cast_implicit",
            "create type public.implied as (who text);
             create function private.implied_of(integer) returns public.implied language plpgsql as $$
             begin return row(public.request_context())::public.implied; end $$;
             create cast (integer as public.implied) with function private.implied_of(integer) as implicit;
             create function private.text_of(public.implied) returns text language sql as $$ select ($1).who $$;
             create view cast_implicit as select private.text_of(7) as who;",
            [Probe::get("cast_implicit").expect(200, WHO)],
        ),
        Scenario::new(
            "operator_in_filter",
            "create type public.badge as (label text);
             create function private.badge_eq(public.badge, public.badge) returns boolean language plpgsql as $$
             begin return ($1).label = split_part(public.request_context(), '|', 2); end $$;
             create operator public.= (leftarg = public.badge, rightarg = public.badge, function = private.badge_eq);
             create table operator_in_filter (badge public.badge);
             insert into operator_in_filter select row(owner)::public.badge from (values ('-'),
               ('00000000-0000-4000-8000-00000000000a'), ('00000000-0000-4000-8000-00000000000b'),
               ('00000000-0000-4000-8000-00000000000c')) as owners (owner);",
            [Probe::get("operator_in_filter?badge=eq.(any)").expect(200, r#"[{"badge":{"label":"{sub}"}}]"#)],
        ),
        Scenario::new(
            "operator_in_view",
            "create function private.seen_by(text, integer) returns text language sql as $$ select public.request_context() $$;
             create operator public.@@@ (leftarg = text, rightarg = integer, function = private.seen_by);
             create view operator_in_view as select 'a'::text operator(public.@@@) 1 as who;",
            [Probe::get("operator_in_view").expect(200, WHO)],
        ),
        Scenario::new(
            "aggregate",
            "create function private.add_seen(text, text) returns text language plpgsql as $$
             begin return public.request_context(); end $$;
             create aggregate public.seen_by_all(text) (sfunc = private.add_seen, stype = text);
             create view aggregate as select public.seen_by_all(v) as who from (values ('a'), ('b')) as v (v);
             create function private.last_seen(text) returns text language sql stable as $$ select {inline} $$;
             create aggregate public.seen_at_last(text) (sfunc = textcat, stype = text, finalfunc = private.last_seen, initcond = '');
             create view aggregate_final as select public.seen_at_last(v) as who from (values ('a'), ('b')) as v (v);",
            [Probe::get("aggregate").expect(200, WHO), Probe::get("aggregate_final").expect(200, WHO)],
        ),
        Scenario::new(
            "range_type",
            // Only statistics and GiST use the difference function
            "create function private.difference(integer, integer) returns double precision language sql immutable as $$
               select ($1 - $2)::double precision + length(public.context_immutable()) * 0 $$;
             create type public.span as range (subtype = integer, subtype_diff = private.difference);
             create table range_type (mark text, span public.span, who text default {inline},
               exclude using gist (span with &&, span with =) where (mark = 'none'));",
            [Probe::post("range_type?select=mark,span,who", r#"{"mark":"{mark}","span":"[1,3)"}"#)
                .expect(201, r#"[{"mark":"{mark}","span":"[1,3)","who":"{context}"}]"#)],
        ),
        Scenario::new(
            "composite_column",
            "create domain private.own_part as text check (private.is_own(value));
             create type public.parts as (own private.own_part, note text);
             create table composite_column (mark text, parts public.parts, many public.parts[]);",
            [
                Probe::post("composite_column?select=parts", r#"{"mark":"{mark}","parts":{"own":"{mark}","note":"n"}}"#)
                    .expect(201, r#"[{"parts":{"own":"{mark}","note":"n"}}]"#),
                Probe::post("composite_column?select=many", r#"{"mark":"{mark}","many":[{"own":"{mark}"}]}"#)
                    .expect(201, r#"[{"many":[{"own":"{mark}","note":null}]}]"#),
                Probe::post("composite_column?select=parts", r#"{"mark":"{mark}","parts":{"own":"of another"}}"#),
            ],
        ),
    ]
}

fn computed() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "computed_field",
            "create table computed_field (id integer);
             insert into computed_field values (1);
             create function public.who(public.computed_field) returns text language sql stable as $$ select {inline} $$;
             create function public.seen(public.computed_field) returns text language plpgsql volatile as $$
             begin return public.request_context(); end $$;",
            [
                Probe::get("computed_field?select=who").expect(200, WHO),
                Probe::get("computed_field?select=id&who=eq.{context}").expect(200, r#"[{"id":1}]"#),
                Probe::get("computed_field?select=who:seen&order=seen").expect(200, WHO),
            ],
        ),
        Scenario::new(
            "computed_relationship",
            "create table relating (id integer primary key);
             insert into relating values (1);
             create table related (owner text);
             insert into related values ('-'), ('00000000-0000-4000-8000-00000000000a'),
               ('00000000-0000-4000-8000-00000000000b'), ('00000000-0000-4000-8000-00000000000c');
             create function public.own_rows(public.relating) returns setof public.related language sql stable as $$
               select * from public.related where owner = split_part({inline}, '|', 2) $$;
             create function public.own_row(public.relating) returns setof public.related rows 1 language plpgsql stable as $$
             begin return query select * from public.related where owner = split_part(public.request_context(), '|', 2); end $$;",
            [
                Probe::get("relating?select=own_rows(owner)").expect(200, r#"[{"own_rows":[{"owner":"{sub}"}]}]"#),
                Probe::get("relating?select=own_row(owner)").expect(200, r#"[{"own_row":{"owner":"{sub}"}}]"#),
            ],
        ),
        Scenario::new(
            "whole_row",
            "create table whole_row (id integer, owner text);
             insert into whole_row values (1, 'x');
             create function public.whole_rows() returns setof public.whole_row language sql stable as $$
               select 1, {inline} $$;",
            [
                Probe::get("rpc/whole_rows?select=owner").expect(200, r#"[{"owner":"{context}"}]"#),
                Probe::call("rpc/whole_rows").expect(200, r#"[{"id":1,"owner":"{context}"}]"#),
            ],
        ),
    ]
}

fn representations() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "domain_representation",
            "create domain public.shown as text;
             create function public.json(public.shown) returns json language plpgsql as $$
             begin return to_json(public.request_context()); end $$;
             create function public.shown(json) returns public.shown language plpgsql as $$
             begin return public.request_context(); end $$;
             create function public.shown(text) returns public.shown language plpgsql as $$
             begin return split_part(public.request_context(), '|', 2); end $$;
             create cast (public.shown as json) with function public.json(public.shown) as implicit;
             create cast (json as public.shown) with function public.shown(json) as implicit;
             create cast (text as public.shown) with function public.shown(text) as implicit;
             create table domain_representation (mark text, who public.shown);
             create table domain_filtered (owner public.shown, mark text);
             insert into domain_filtered (owner) values ('x');",
            [
                Probe::post("domain_representation?select=mark,who", r#"{"mark":"{mark}","who":"anything"}"#)
                    .expect_row(201)
                    .writes("domain_representation"),
                Probe::get("domain_filtered?select=who:owner&mark=is.null&limit=1").expect(200, WHO),
                Probe::get("domain_filtered?select=mark&owner=eq.anything"),
            ],
        ),
        Scenario::new(
            "media_type_handler",
            "create domain public.\"text/context\" as text;
             create table media_type_handler (id integer);
             insert into media_type_handler values (1);
             create function private.handle(state text, next public.media_type_handler) returns public.\"text/context\"
               language plpgsql as $$ begin return public.request_context(); end $$;
             create aggregate public.handler(public.media_type_handler)
               (sfunc = private.handle, stype = public.\"text/context\", initcond = '');
             create function public.handled() returns public.\"text/context\" language sql as $$ select {inline} $$;",
            [
                Probe::get("media_type_handler").header("accept", "text/context").expect(200, "{context}"),
                Probe::get("rpc/handled").header("accept", "text/context").expect(200, "{context}"),
            ],
        ),
    ]
}

#[tokio::test]
async fn code_of_types_runs_for_the_caller() {
    schedule::run(scenarios()).await;
}
