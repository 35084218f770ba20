-- Live account pages: when sessions of an account begin or end, a private message without content
-- goes to the topic `portico:account:<id of the user>`, which this user may read. A page that
-- receives it loads the list of its sessions again.
set role supabase_realtime_admin;

-- With the rights of the owner of `realtime.messages`: a role that begins or ends a session needs
-- none there, and policies do not apply to the owner.
create or replace function realtime.portico_send_session_changes() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- A migration may hold a lock on the table of messages for long
set lock_timeout = '50ms' as $$
begin
  insert into realtime.messages (topic, extension, payload, event, private)
  select distinct 'portico:account:' || changed.user_id, 'broadcast', '{}'::jsonb, 'sessions_changed', true
    from changed;
  return null;
exception when others then
  -- A sign-in or sign-out never fails because of a message
  raise warning 'The change of a session was not sent: %', sqlerrm;
  return null;
end $$;
revoke all on function realtime.portico_send_session_changes() from public, anon, authenticated, service_role, dashboard_user;
grant execute on function realtime.portico_send_session_changes() to postgres;

set role postgres;
do $$
begin
  -- By the column and not by `auth.uid()`, which raises an error for subjects that are no UUIDs and
  -- would close every private channel to their tokens. Claims are read for topics of this kind
  -- alone.
  if not exists (select from pg_policy where polrelid = 'realtime.messages'::regclass and polname = 'portico account pages read their own topic') then
    create policy "portico account pages read their own topic" on realtime.messages for select to authenticated
      using (extension = 'broadcast' and starts_with(topic, 'portico:account:')
             and topic = 'portico:account:' || (select auth.jwt() ->> 'sub'));
  end if;
  -- Policies of the application add to the one above: one for all topics would open these to every
  -- account. This one takes that away, also for writing, which the function above alone does.
  if not exists (select from pg_policy where polrelid = 'realtime.messages'::regclass and polname = 'portico account topics belong to their accounts') then
    create policy "portico account topics belong to their accounts" on realtime.messages as restrictive for all to public
      using (case when starts_with(topic, 'portico:account:')
                  then extension = 'broadcast' and topic = 'portico:account:' || (select auth.jwt() ->> 'sub')
                  else true end)
      with check (not starts_with(topic, 'portico:account:'));
  end if;
end $$;

-- For each statement: one that ends thousands of sessions sends one message to each account. Not
-- for updates, of which each refresh of a session is one.
select pg_temp.ensure_trigger('auth.sessions', 'portico_sessions_begun',
         'after insert on auth.sessions referencing new table as changed for each statement execute function realtime.portico_send_session_changes()'),
       pg_temp.ensure_trigger('auth.sessions', 'portico_sessions_ended',
         'after delete on auth.sessions referencing old table as changed for each statement execute function realtime.portico_send_session_changes()');
reset role;
