-- Daily partitions of realtime.messages in UTC, from yesterday to three days ahead; older than
-- three days they are dropped.
do $$
declare
  day date;
  today date := (now() at time zone 'utc')::date;
  old record;
  lock_timeout text := current_setting('lock_timeout');
begin
  -- Two servers at once would both see a partition missing
  perform pg_advisory_xact_lock(7306352187424);
  -- While this waits for a backup or a migration, every message waits behind it. There are days to
  -- try again
  set local lock_timeout = '3s';
  -- Event triggers of the project would run with our rights
  if (select rolsuper from pg_roles where rolname = session_user) then
    set local session_replication_role = replica;
  end if;
  set local role supabase_realtime_admin;
  set local client_min_messages = warning;
  for day in select generate_series(today - 1, today + 3, interval '1 day')::date loop
    if to_regclass(format('realtime.messages_%s', to_char(day, 'YYYY_MM_DD'))) is null then
      execute format('create table realtime.%I partition of realtime.messages for values from (%L) to (%L)',
        'messages_' || to_char(day, 'YYYY_MM_DD'), day::timestamp, (day + 1)::timestamp);
    end if;
  end loop;
  -- Also imported ones, which postgres owns. Those of other owners stay until the next start adopts
  -- them
  reset role;
  for old in
    select child.oid::regclass as name
      from pg_inherits join pg_class as child on child.oid = inhrelid
     where inhparent = 'realtime.messages'::regclass
       and child.relname ~ '^messages_\d{4}_\d{2}_\d{2}$'
       and to_date(right(child.relname, 10), 'YYYY_MM_DD') < today - 3
       and pg_has_role(child.relowner, 'usage')
  loop
    execute format('drop table %s', old.name);
  end loop;
  perform set_config('lock_timeout', lock_timeout, true);
end $$;
