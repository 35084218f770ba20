//! Foreign tables, whose defaults and triggers run here. The state of the other server's session is
//! not tested.

use crate::scenario::{Probe, Scenario};
use crate::schedule;

const MARK: &str = r#"{"mark":"{mark}"}"#;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "foreign_table",
            "create foreign table foreign_table (mark text, who text default {inline})
               server loopback options (schema_name 'private', table_name 'remote_rows');
             create foreign table foreign_with_trigger (mark text, who text)
               server loopback options (schema_name 'private', table_name 'remote_rows');
             create function private.fill_foreign() returns trigger language plpgsql as $$
             begin new.who := public.request_context(); return new; end $$;
             create trigger fill before insert on foreign_with_trigger
               for each row execute function private.fill_foreign();
             create trigger record after insert on foreign_with_trigger
               for each row execute function private.record_new();
             create foreign table foreign_rows (mark text, who text)
               server loopback options (schema_name 'private', table_name 'remote_owners');
             create view foreign_view as select who as owner, {inline} as who from foreign_rows
               where who = coalesce(auth.uid()::text, '-');",
            [
                Probe::post("foreign_table?select=mark,who", MARK).expect_row(201),
                Probe::post("foreign_with_trigger?select=mark,who", MARK).expect_row(201).writes("written"),
                Probe::get("foreign_view?select=owner,who").expect(200, r#"[{"owner":"{sub}","who":"{context}"}]"#),
            ],
        )
        .superuser(
            "create extension postgres_fdw with schema extensions;
             create server loopback foreign data wrapper postgres_fdw
               options (host '127.0.0.1', port '{remote_port}', dbname 'postgres');
             create user mapping for public server loopback options (user 'remote', password 'remote');
             grant usage on foreign server loopback to postgres;",
        ),
    ]
}

#[tokio::test]
async fn foreign_tables_are_filled_for_the_caller() {
    schedule::run(scenarios()).await;
}
