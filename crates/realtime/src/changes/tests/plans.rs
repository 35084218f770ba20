//! The plans of PostgreSQL for reads of changed rows.

use serde_json::Value;

use super::{Live, entry};
use crate::fixture::person;

#[tokio::test]
async fn reads_of_single_rows_share_a_plan() {
    let live = Live::new(
        "create table public.items (id int primary key, owner text);
         alter table public.items enable row level security;
         create policy own on public.items for select to authenticated using (owner = (select auth.jwt() ->> 'sub'));
         grant select on public.items to authenticated;
         alter publication supabase_realtime add table public.items",
    )
    .await;
    let joined = live.join(&person("a"), "a", &[entry("*", "items", "")]).await;
    for id in 0..20 {
        let [events] = live.received(&format!("insert into items values ({id}, 'a')"), [&joined]).await;
        assert_eq!(events.len(), 1);
    }
    let plans = "select pg_catalog.json_build_array(generic_plans, custom_plans)::text
                   from pg_catalog.pg_prepared_statements where statement like 'select pg_catalog.json_build_object%\"items\" as visible%'";
    let plans = live.reads.read_as_role("anon", plans, &[]).await.unwrap();
    let plans: Vec<[u64; 2]> = serde_json::from_slice::<Value>(&plans).map(serde_json::from_value).unwrap().unwrap();
    let [[shared, own]] = plans[..] else { panic!("{plans:?}") };
    // PostgreSQL makes the first five to compare them
    assert!(shared >= 10 && own <= 5, "{plans:?}");
}
