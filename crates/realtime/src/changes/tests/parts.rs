//! The order in which the readers of a change are served.

use super::{Live, entry};
use crate::fixture::person;

#[tokio::test]
async fn a_reader_whose_policy_waits_does_not_delay_the_others() {
    let live = Live::new(
        "create function public.waits() returns boolean language plpgsql stable as $$
         begin
             if auth.jwt() ->> 'sub' = 'slow' then
                 perform pg_advisory_xact_lock_shared(7);
             end if;
             return true;
         end $$;
         create table public.items (id int primary key);
         alter table public.items enable row level security;
         create policy p on public.items for select to authenticated using (public.waits());
         grant select on public.items to authenticated;
         alter publication supabase_realtime add table public.items",
    )
    .await;
    let slow = live.join(&person("slow"), "a", &[entry("*", "items", "")]).await;
    let quick = live.join(&person("quick"), "a", &[entry("*", "items", "")]).await;
    let blocker = portico_database::connect(live.database.endpoint()).await.unwrap();
    blocker.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    live.run("insert into public.items values (1)").await;
    let (_, event) = quick.next().await;
    assert_eq!(event[4]["data"]["record"]["id"], 1);
    assert_eq!(slow.channel.received(), []);
    blocker.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    let (_, event) = slow.next().await;
    assert_eq!(event[4]["data"]["record"]["id"], 1, "{event}");
}
