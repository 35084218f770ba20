//! Partitions and inheritance: requests for the whole run code of a part.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const MARK: &str = r#"{"mark":"{mark}"}"#;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "partition_trigger",
            "create table partition_trigger (mark text, kind text not null default 'a', who text) partition by list (kind);
             create table private.partition_a partition of partition_trigger for values in ('a');
             create table private.partition_b partition of partition_trigger default;
             create function private.fill_partition() returns trigger language plpgsql as $$
             begin new.who := {inline}; return new; end $$;
             create trigger fill before insert or update on private.partition_a
               for each row execute function private.fill_partition();
             create trigger fill before insert on private.partition_b
               for each row execute function private.fill_partition();",
            [
                Probe::post("partition_trigger?select=mark,who", MARK).expect_row(201),
                Probe::post("partition_trigger", r#"{"mark":"{mark}","kind":"z"}"#)
                    .minimal()
                    .expect(201, "")
                    .writes("partition_trigger"),
            ],
        ),
        Scenario::new(
            "partition_check",
            "create table partition_check (mark text, kind text not null default 'a') partition by list (kind);
             create table private.checked_partition partition of partition_check (check (private.is_own(mark))) default;",
            [
                Probe::post("partition_check?select=mark", MARK).expect(201, r#"[{"mark":"{mark}"}]"#),
                Probe::post("partition_check?select=mark", r#"{"mark":"of another"}"#),
            ],
        ),
        Scenario::new(
            "partition_key",
            "create function private.key_of(mark text) returns text language plpgsql immutable as $$
             begin return split_part(public.request_context(), '|', 1); end $$;
             create table partition_key (mark text, who text default {inline}) partition by list (private.key_of(mark));
             create table private.keyed_anon partition of partition_key for values in ('w(anon');
             create table private.keyed_accounts partition of partition_key for values in ('w(authenticated');
             create table private.keyed_service partition of partition_key for values in ('w(service_role');",
            [Probe::post("partition_key?select=mark,who", MARK).expect_row(201).writes("partition_key")],
        ),
        Scenario::new(
            "partition_index",
            "create table partition_index (mark text, kind text not null default 'a') partition by list (kind);
             create table private.indexed_partition partition of partition_index default;
             create index on private.indexed_partition (private.own_mark(mark));",
            [
                Probe::post("partition_index?select=mark", MARK).expect(201, r#"[{"mark":"{mark}"}]"#),
                Probe::post("partition_index?select=mark", r#"{"mark":"of another"}"#)
                    .expect(400, r#"{"code":"P0001","details":null,"hint":null,"message":"not the mark of {context}"}"#),
            ],
        ),
        Scenario::new(
            "inherited",
            "create table inherited (key text, mark text, who text);
             create table private.heirs () inherits (inherited);
             create trigger fill before update on private.heirs
               for each row execute function private.fill_partition();
             create trigger record after delete on private.heirs
               for each row execute function private.record_old();
             grant all on private.heirs to anon, authenticated, service_role;",
            [
                Probe::write("PATCH", "inherited?key=eq.{mark}&select=mark,who", MARK)
                    .before("insert into private.heirs values ('{mark}', null, null)")
                    .expect_row(200),
                Probe::write("DELETE", "inherited?key=eq.{mark}/gone&select=key", "")
                    .before("insert into private.heirs values ('{mark}/gone', '{mark}', '{context}')")
                    .expect(200, r#"[{"key":"{mark}/gone"}]"#)
                    .writes("written"),
            ],
        ),
    ]
}

#[tokio::test]
async fn parts_of_a_table_run_code_for_the_caller() {
    schedule::run(scenarios()).await;
}
