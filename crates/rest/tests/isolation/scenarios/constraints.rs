//! Domains, checks, exclusion, unique and partial indexes, foreign keys with their actions.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const MARK: &str = r#"{"mark":"{mark}"}"#;

pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = checks();
    scenarios.extend(indexes());
    scenarios.extend(foreign_keys());
    scenarios
}

fn checks() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "domain_check",
            "create domain private.own as text check (private.is_own(value));
             create domain private.own_inline as text check (value = split_part({inline}, '|', 7));
             create table domain_check (id bigint generated always as identity primary key,
               mark private.own, inline private.own_inline);",
            [
                Probe::post("domain_check?select=mark,inline", r#"{"mark":"{mark}","inline":"{mark}"}"#)
                    .expect(201, r#"[{"mark":"{mark}","inline":"{mark}"}]"#),
                Probe::post("domain_check", MARK).minimal().expect(201, ""),
                Probe::post("domain_check?select=mark", r#"{"mark":"of another"}"#),
            ],
        ),
        Scenario::new(
            "domain_default",
            "create domain private.prefilled as text default {inline};
             create domain private.prefilled_by_function as text default public.request_context();
             create table domain_default (mark text, who private.prefilled, again private.prefilled_by_function);",
            [Probe::post("domain_default?select=mark,who,again", MARK)
                .expect(201, r#"[{"mark":"{mark}","who":"{context}","again":"{context}"}]"#)],
        ),
        Scenario::new(
            "domain_argument",
            "create domain private.own_argument as text check (private.is_own(value));
             create function public.takes_domain(mark private.own_argument) returns text language sql stable as $$
               select mark::text $$;",
            [
                Probe::write("POST", "rpc/takes_domain", MARK).expect(200, r#""{mark}""#),
                Probe::get("rpc/takes_domain?mark={mark}").expect(200, r#""{mark}""#),
            ],
        ),
        Scenario::new(
            "check_inline",
            "create table check_inline (mark text, other text,
               check (mark = split_part({inline}, '|', 7)), check (other is null or other = current_setting('request.path')));",
            [
                Probe::post("check_inline?select=mark", MARK).expect(201, r#"[{"mark":"{mark}"}]"#),
                Probe::post("check_inline?select=other", r#"{"mark":"{mark}","other":"/check_inline"}"#)
                    .expect(201, r#"[{"other":"/check_inline"}]"#),
                Probe::post("check_inline?select=mark", r#"{"mark":"of another"}"#),
            ],
        ),
        Scenario::new(
            "check_function",
            "create table check_function (mark text check (private.is_own(mark)), note text);",
            [
                Probe::post("check_function?select=mark", MARK).expect(201, r#"[{"mark":"{mark}"}]"#),
                Probe::post("check_function", MARK).minimal().expect(201, "").writes("check_function"),
                Probe::post("check_function?select=mark", r#"{"mark":"of another"}"#),
            ],
        ),
        Scenario::new(
            "check_on_update",
            "create table check_on_update (key text primary key, mark text,
               constraint own check (mark is null or private.is_own(mark)));",
            [
                Probe::write("PATCH", "check_on_update?key=eq.{mark}&select=mark", MARK)
                    .before("insert into check_on_update values ('{mark}')")
                    .expect(200, r#"[{"mark":"{mark}"}]"#),
                Probe::write("PATCH", "check_on_update?key=eq.{mark}&select=mark", r#"{"mark":"of another"}"#)
                    .before("insert into check_on_update values ('{mark}')"),
            ],
        ),
    ]
}

fn indexes() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "index_expression",
            "create table index_expression (mark text);
             create unique index on index_expression (private.own_mark(mark));",
            [
                Probe::post("index_expression?select=mark", MARK)
                    .expect(201, r#"[{"mark":"{mark}"}]"#)
                    .writes("index_expression"),
                Probe::post("index_expression?select=mark", r#"{"mark":"of another"}"#)
                    .expect(400, r#"{"code":"P0001","details":null,"hint":null,"message":"not the mark of {context}"}"#),
            ],
        ),
        Scenario::new(
            "partial_index",
            "create function private.must_be_own(mark text) returns boolean language plpgsql immutable as $$
             begin
               if not private.is_own_immutable(mark) then raise exception 'not the mark of %', public.request_context(); end if;
               return true;
             end $$;
             create table partial_index (mark text);
             create index on partial_index (mark) where private.must_be_own(mark);",
            [
                Probe::post("partial_index?select=mark", MARK).expect(201, r#"[{"mark":"{mark}"}]"#),
                Probe::post("partial_index?select=mark", r#"{"mark":"of another"}"#)
                    .expect(400, r#"{"code":"P0001","details":null,"hint":null,"message":"not the mark of {context}"}"#),
            ],
        ),
        Scenario::new(
            "exclusion",
            "create table exclusion (mark text, exclude using btree ((private.own_mark(mark)) with =));",
            [
                Probe::post("exclusion?select=mark", MARK).expect(201, r#"[{"mark":"{mark}"}]"#).writes("exclusion"),
                Probe::post("exclusion?select=mark", r#"{"mark":"of another"}"#)
                    .expect(400, r#"{"code":"P0001","details":null,"hint":null,"message":"not the mark of {context}"}"#),
            ],
        ),
        Scenario::new(
            "unique_of_the_caller",
            // Two rows of one key are allowed for different callers only
            "create function private.of_caller(key text) returns text language plpgsql immutable as $$
             begin return split_part(public.request_context(), '|', 2) || key; end $$;
             create table unique_of_the_caller (key text, owner text default split_part({inline}, '|', 2));
             create unique index on unique_of_the_caller (private.of_caller(key));",
            [Probe::post("unique_of_the_caller?select=owner", r#"{"key":"{sub}{mark}"}"#)
                .expect(201, r#"[{"owner":"{sub}"}]"#)],
        ),
    ]
}

fn foreign_keys() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "cascade_update",
            "create table update_parents (key text primary key);
             create table update_children (key text references update_parents on update cascade, mark text);
             create trigger record_cascaded_update after update on update_children
               for each row execute function private.record_new();",
            [Probe::write("PATCH", "update_parents?key=eq.{mark}", r#"{"key":"{mark}/new"}"#)
                .before(
                    "insert into update_parents values ('{mark}'); insert into update_children values ('{mark}', '{mark}')",
                )
                .expect(200, r#"[{"key":"{mark}/new"}]"#)
                .writes("written")],
        ),
        Scenario::new(
            "cascade_delete",
            "create table delete_parents (key text primary key);
             create table delete_children (mark text references delete_parents on delete cascade);
             create trigger record_cascaded_delete before delete on delete_children
               for each row execute function private.record_old();",
            [
                Probe::write("DELETE", "delete_parents?key=eq.{mark}", "")
                    .before("insert into delete_parents values ('{mark}'); insert into delete_children values ('{mark}')")
                    .expect(200, r#"[{"key":"{mark}"}]"#)
                    .writes("written"),
                Probe::write("DELETE", "delete_parents?key=eq.{mark}", "")
                    .before("insert into delete_parents values ('{mark}'); insert into delete_children values ('{mark}')")
                    .minimal()
                    .expect(204, "")
                    .writes("written"),
            ],
        ),
        Scenario::new(
            "set_default",
            "create table default_parents (key text primary key);
             insert into default_parents select coalesce(sub, '-') from unnest(array['-',
               '00000000-0000-4000-8000-00000000000a', '00000000-0000-4000-8000-00000000000b',
               '00000000-0000-4000-8000-00000000000c']) as sub;
             create function private.sub() returns text language sql stable as $$ select split_part({inline}, '|', 2) $$;
             create table default_children (
               key text default private.sub() references default_parents on delete set default, ask text);
             create table set_default_log (mark text, who text);
             create function private.record_default() returns trigger language plpgsql as $$
             begin
               if new.key is distinct from split_part(public.request_context(), '|', 2) then
                 raise exception 'the default % is not of %', new.key, public.request_context();
               end if;
               insert into public.set_default_log values (new.ask, public.request_context());
               return new;
             end $$;
             create trigger record_default after update on default_children
               for each row execute function private.record_default();",
            [Probe::write("DELETE", "default_parents?key=eq.{mark}", "")
                .before("insert into default_parents values ('{mark}'); insert into default_children values ('{mark}', '{mark}')")
                .expect(200, r#"[{"key":"{mark}"}]"#)
                .writes("set_default_log")],
        ),
        Scenario::new(
            "set_null_deferred",
            "create table null_parents (key text primary key);
             create table null_children (key text references null_parents on delete set null
               deferrable initially deferred, mark text);
             create trigger record_null after update on null_children
               for each row execute function private.record_new();",
            [
                Probe::write("DELETE", "null_parents?key=eq.{mark}", "")
                    .before("insert into null_parents values ('{mark}'); insert into null_children values ('{mark}', '{mark}')")
                    .expect(200, r#"[{"key":"{mark}"}]"#)
                    .writes("written"),
                Probe::post("null_children?select=mark", r#"{"key":"not there","mark":"{mark}"}"#),
            ],
        ),
        Scenario::new(
            "referenced_policy",
            // The check of a foreign key runs as the table's owner, for which policies do not apply
            "create table guarded_parents (key text primary key);
             alter table guarded_parents enable row level security;
             create policy own on guarded_parents using (private.is_own(key));
             create table guarded_children (mark text references guarded_parents, who text default {inline});",
            [Probe::post("guarded_children?select=mark,who", MARK)
                .before("insert into guarded_parents values ('{mark}')")
                .expect_row(201)],
        ),
        Scenario::new(
            "cast_of_a_foreign_key",
            // PostgreSQL casts the referencing value to the key's type
            "create domain private.key_domain as text check (value <> '' and public.request_context() <> '');
             create table domain_parents (key private.key_domain primary key);
             create table domain_children (mark text references domain_parents on update cascade, who text default public.request_context());",
            [Probe::post("domain_children?select=mark,who", MARK)
                .before("insert into domain_parents values ('{mark}')")
                .expect_row(201)],
        ),
    ]
}

#[tokio::test]
async fn constraints_are_checked_for_the_caller() {
    schedule::run(scenarios()).await;
}
