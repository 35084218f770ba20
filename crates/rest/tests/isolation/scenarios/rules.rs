//! Rules, which rewrite statements.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const MARK: &str = r#"{"mark":"{mark}"}"#;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "rule_also",
            // The API writes in a WITH, where PostgreSQL does not allow such rules: functions reach
            // them
            "create table rule_also (mark text);
             create table private.changing (mark text);
             create table private.doomed (mark text);
             create table rule_log (mark text, who text, again text default public.request_context());
             create rule log_insert as on insert to rule_also do also
               insert into rule_log (mark, who) values (new.mark, {inline});
             create rule log_update as on update to private.changing do also
               insert into rule_log (mark, who) values (new.mark, {inline});
             create rule log_delete as on delete to private.doomed do also
               insert into rule_log (mark, who) values (old.mark, {inline});
             create function public.insert_with_rule(mark text) returns void language sql as $$
               insert into public.rule_also values (mark) $$;
             create function public.update_with_rule(mark text) returns void language plpgsql as $$
             begin
               insert into private.changing values ('old of ' || mark);
               update private.changing as c set mark = $1 where c.mark = 'old of ' || $1;
             end $$;
             create function public.delete_with_rule(mark text) returns void language plpgsql as $$
             begin
               insert into private.doomed values (mark);
               delete from private.doomed as d where d.mark = $1;
             end $$;",
            [
                Probe::write("POST", "rpc/insert_with_rule", MARK).expect(204, "").writes("rule_log"),
                Probe::write("POST", "rpc/update_with_rule", MARK).expect(204, "").writes("rule_log"),
                Probe::write("POST", "rpc/delete_with_rule", MARK).expect(204, "").writes("rule_log"),
            ],
        ),
        Scenario::new(
            "rule_instead",
            "create table rule_target (mark text, who text);
             create view rule_instead as select mark, who from rule_target;
             create rule insert_instead as on insert to rule_instead do instead
               insert into rule_target values (new.mark, {inline}) returning mark, who;",
            [
                Probe::post("rule_instead?select=mark,who", MARK).expect_row(201).writes("rule_target"),
                Probe::post("rule_instead", MARK).minimal().expect(201, "").writes("rule_target"),
            ],
        ),
        Scenario::new(
            "rule_condition",
            "create table rule_condition (mark text);
             create table rule_condition_log (mark text, who text);
             create rule only_own as on insert to rule_condition
               where new.mark <> split_part({inline}, '|', 7) do instead nothing;
             create rule log_own as on insert to rule_condition
               where new.mark = split_part({inline}, '|', 7)
               do also insert into rule_condition_log values (new.mark, public.request_context());
             create function public.insert_with_condition(mark text) returns void language sql as $$
               insert into public.rule_condition values (mark) $$;",
            [Probe::write("POST", "rpc/insert_with_condition", MARK).expect(204, "").writes("rule_condition_log")],
        ),
    ]
}

#[tokio::test]
async fn rules_act_for_the_caller() {
    schedule::run(scenarios()).await;
}
