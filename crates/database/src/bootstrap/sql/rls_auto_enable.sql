-- The function of the hosted service that an event trigger calls to switch on row security for new
-- tables. Migrations that follow the security advisor's advice revoke it. It is created when a
-- migration refers to it, and not before: nothing else of ours is in schema public.
create function public.rls_auto_enable() returns event_trigger
language plpgsql security definer set search_path = pg_catalog as $$
declare command record;
begin
  for command in
    select * from pg_event_trigger_ddl_commands()
     where command_tag in ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO')
       and object_type in ('table', 'partitioned table') and schema_name = 'public'
  loop
    begin
      execute format('alter table %s enable row level security', command.object_identity);
    exception when others then
      raise log 'rls_auto_enable: % on %', sqlerrm, command.object_identity;
    end;
  end loop;
end $$;
