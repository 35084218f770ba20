//! Triggers of every timing and level.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const MARK: &str = r#"{"mark":"{mark}"}"#;
const RAISED: &str = r#"{"code":"P0001","details":null,"hint":null,"message":"{context}"}"#;

pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = immediate();
    scenarios.extend(deferred());
    scenarios
}

fn immediate() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "trigger_before",
            "create table trigger_before (mark text, who text);
             create function private.fill_who() returns trigger language plpgsql as $$
             begin new.who := {inline}; return new; end $$;
             create trigger fill before insert or update on trigger_before
               for each row execute function private.fill_who();",
            [
                Probe::post("trigger_before?select=mark,who", MARK).expect_row(201),
                Probe::post("trigger_before", MARK).minimal().expect(201, "").writes("trigger_before"),
            ],
        ),
        Scenario::new(
            "trigger_on_update",
            "create table trigger_on_update (key text, mark text, who text);
             create trigger fill before update of mark on trigger_on_update
               for each row execute function private.fill_who();",
            [Probe::write("PATCH", "trigger_on_update?key=eq.{mark}&select=mark,who", MARK)
                .before("insert into trigger_on_update values ('{mark}', null, null)")
                .expect_row(200)],
        ),
        Scenario::new(
            "trigger_after",
            "create table trigger_after (mark text, note text);
             create trigger after_insert after insert or update on trigger_after
               for each row execute function private.record_new();
             create trigger after_delete after delete on trigger_after
               for each row execute function private.record_old();",
            [
                Probe::post("trigger_after?select=mark", MARK).expect(201, r#"[{"mark":"{mark}"}]"#).writes("written"),
                Probe::post("trigger_after", MARK).minimal().expect(201, "").writes("written"),
            ],
        ),
        Scenario::new(
            "trigger_of_a_statement",
            "create table trigger_of_a_statement (mark text);
             create table statements (mark text, who text);
             create function private.record_statement() returns trigger language plpgsql as $$
             begin
               insert into public.statements values (split_part({inline}, '|', 7), public.request_context());
               return null;
             end $$;
             create trigger statement after insert on trigger_of_a_statement
               for each statement execute function private.record_statement();
             create trigger before_statement before insert on trigger_of_a_statement
               for each statement execute function private.record_statement();",
            [Probe::post("trigger_of_a_statement", MARK).minimal().expect(201, "").writes("statements")],
        ),
        Scenario::new(
            "transition_tables",
            "create table transition_tables (mark text);
             create function private.record_rows() returns trigger language plpgsql as $$
             begin
               insert into public.written select mark, public.request_context(), 'transition' from added;
               return null;
             end $$;
             create trigger rows_added after insert on transition_tables referencing new table as added
               for each statement execute function private.record_rows();",
            [Probe::post("transition_tables", r#"[{"mark":"{mark}"},{"mark":"{mark}"}]"#)
                .minimal()
                .expect(201, "")
                .writes("written")],
        ),
        Scenario::new(
            "trigger_condition",
            "create table trigger_condition (mark text);
             create trigger when_own after insert on trigger_condition for each row
               when (new.mark = split_part({inline}, '|', 7)) execute function private.record_new();
             create function private.fail() returns trigger language plpgsql as $$
             begin raise exception '%', public.request_context(); end $$;
             create trigger when_not_own after insert on trigger_condition for each row
               when (new.mark <> split_part({inline}, '|', 7)) execute function private.fail();",
            [
                Probe::post("trigger_condition", MARK).minimal().expect(201, "").writes("written"),
                Probe::post("trigger_condition", r#"{"mark":"of another"}"#).expect(400, RAISED),
            ],
        ),
        Scenario::new(
            "instead_of",
            "create table behind_a_view (mark text, who text);
             create view instead_of as select mark, who from behind_a_view;
             create function private.insert_instead() returns trigger language plpgsql as $$
             begin
               new.who := public.request_context();
               insert into public.behind_a_view values (new.mark, new.who);
               return new;
             end $$;
             create trigger instead instead of insert on instead_of
               for each row execute function private.insert_instead();",
            [Probe::post("instead_of?select=mark,who", MARK).expect_row(201).writes("behind_a_view")],
        ),
        Scenario::new(
            "trigger_of_a_trigger",
            // The second table is not exposed, and depends on the request by its own default
            "create table private.second (mark text, who text default {inline});
             create table trigger_of_a_trigger (mark text);
             create function private.write_second() returns trigger language plpgsql as $$
             begin insert into private.second (mark) values (new.mark); return new; end $$;
             create trigger first before insert on trigger_of_a_trigger
               for each row execute function private.write_second();
             create function private.copy_second() returns trigger language plpgsql security definer as $$
             begin insert into public.written values (new.mark, new.who, 'second'); return new; end $$;
             create trigger copied after insert on private.second
               for each row execute function private.copy_second();",
            [Probe::post("trigger_of_a_trigger", MARK).minimal().expect(201, "").writes("written")],
        ),
        Scenario::new(
            "trigger_with_settings",
            "create table trigger_with_settings (mark text, who text);
             create function private.fill_with_settings() returns trigger language plpgsql security definer
               set search_path = '' set timezone = 'Asia/Tokyo' as $$
             begin new.who := public.request_context(); return new; end $$;
             create trigger fill before insert on trigger_with_settings
               for each row execute function private.fill_with_settings();",
            [Probe::post("trigger_with_settings?select=mark,who", MARK).expect_row(201)],
        ),
        Scenario::new(
            "trigger_error",
            "create table trigger_error (mark text);
             create trigger fails before insert on trigger_error for each row execute function private.fail();",
            [
                Probe::post("trigger_error", MARK).expect(400, RAISED),
                Probe::post("trigger_error", MARK).minimal().expect(400, RAISED),
            ],
        ),
        Scenario::new(
            "truncate_trigger",
            "create table truncated (mark text);
             create table truncations (mark text, who text);
             create function private.record_truncation() returns trigger language plpgsql security definer as $$
             begin insert into public.truncations values (split_part({inline}, '|', 7), {inline}); return null; end $$;
             create trigger recorded before truncate on truncated
               for each statement execute function private.record_truncation();
             create function public.empty() returns text language plpgsql security definer as $$
             begin truncate public.truncated; return public.request_context(); end $$;",
            [Probe::call("rpc/empty").expect(200, r#""{context}""#).writes("truncations")],
        ),
    ]
}

fn deferred() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "deferred_trigger",
            "create table deferred_trigger (mark text);
             create constraint trigger at_commit after insert or update or delete on deferred_trigger
               deferrable initially deferred for each row execute function private.record_new();",
            [
                Probe::post("deferred_trigger", MARK).minimal().expect(201, "").writes("written"),
                Probe::post("deferred_trigger?select=mark", MARK)
                    .expect(201, r#"[{"mark":"{mark}"}]"#)
                    .writes("written"),
                Probe::post("deferred_trigger?select=mark", MARK)
                    .header("accept", "application/vnd.pgrst.object+json")
                    .expect(201, r#"{"mark":"{mark}"}"#)
                    .writes("written"),
            ],
        ),
        Scenario::new(
            "deferred_trigger_without_functions_of_its_own",
            // Only the trigger's own text reads settings
            "create table deferred_inline (mark text);
             create function private.record_inline() returns trigger language plpgsql security definer as $$
             begin
               insert into public.written values (new.mark, {inline}, 'inline');
               return null;
             end $$;
             create constraint trigger at_commit after insert on deferred_inline
               deferrable initially deferred for each row execute function private.record_inline();",
            [Probe::post("deferred_inline", MARK).minimal().expect(201, "").writes("written")],
        ),
        Scenario::new(
            "deferred_error",
            "create table deferred_error (mark text);
             create constraint trigger at_commit after insert on deferred_error
               deferrable initially deferred for each row execute function private.fail();",
            [
                Probe::post("deferred_error", MARK).minimal().expect(400, RAISED),
                Probe::post("deferred_error", MARK).expect(400, RAISED),
            ],
        ),
        Scenario::new(
            "deferred_by_the_function",
            "create table deferred_by_function (mark text);
             create constraint trigger at_commit after insert on deferred_by_function
               deferrable initially immediate for each row execute function private.record_new();
             create function public.write_deferred(mark text) returns text language plpgsql as $$
             begin
               set constraints all deferred;
               insert into public.deferred_by_function values (mark);
               return {inline};
             end $$;",
            [Probe::write("POST", "rpc/write_deferred", MARK).expect(200, r#""{context}""#).writes("written")],
        ),
        Scenario::new(
            "deferred_from_a_read",
            // A function that only reads, called by GET, and a deferred trigger of an earlier write
            "create table deferred_chain (mark text);
             create function private.chain() returns trigger language plpgsql as $$
             begin
               if new.mark not like '%/again' then
                 insert into public.deferred_chain values (new.mark || '/again');
               else
                 insert into public.written values (split_part(new.mark, '/', 1), public.request_context(), 'chain');
               end if;
               return null;
             end $$;
             create constraint trigger at_commit after insert on deferred_chain
               deferrable initially deferred for each row execute function private.chain();",
            [Probe::post("deferred_chain", MARK).minimal().expect(201, "").writes("written")],
        ),
    ]
}

#[tokio::test]
async fn triggers_run_for_the_caller() {
    schedule::run(scenarios()).await;
}
