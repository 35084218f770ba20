//! Rules, which rewrite statements.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const MARK: &str = r#"{"mark":"{mark}"}"#;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "rule_also",
            "create table rule_also (mark text);
             create table rule_log (mark text, who text, again text default public.witness());
             create rule log_insert as on insert to rule_also do also
               insert into rule_log (mark, who) values (new.mark, {inline});
             create rule log_update as on update to rule_also do also
               insert into rule_log (mark, who) values (split_part(new.mark, '/', 1), {inline});
             create rule log_delete as on delete to rule_also do also
               insert into rule_log (mark, who) values (split_part(old.mark, '/', 1), {inline});",
            [
                Probe::post("rule_also", MARK).minimal().expect(201, "").writes("rule_log"),
                Probe::write("PATCH", "rule_also?mark=eq.{mark}/old", r#"{"mark":"{mark}/new"}"#)
                    .before("set session_replication_role = replica;
                             insert into rule_also values ('{mark}/old'); reset session_replication_role;
                             delete from rule_log where mark = '{mark}/old'")
                    .minimal()
                    .expect(204, ""),
                Probe::write("DELETE", "rule_also?mark=eq.{mark}/gone", "")
                    .before("set session_replication_role = replica;
                             insert into rule_also values ('{mark}/gone'); reset session_replication_role;
                             delete from rule_log where mark = '{mark}/gone'")
                    .minimal()
                    .expect(204, ""),
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
               do also insert into rule_condition_log values (new.mark, public.witness());",
            [Probe::post("rule_condition", MARK).minimal().expect(201, "").writes("rule_condition_log")],
        ),
    ]
}

#[tokio::test]
async fn rules_act_for_the_caller() {
    schedule::run(scenarios()).await;
}
