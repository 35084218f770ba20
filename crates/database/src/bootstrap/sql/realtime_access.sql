-- Trigger, row security and grants of schema realtime.
set role supabase_realtime_admin;
select pg_temp.ensure_trigger('realtime.subscription', 'tr_check_filters',
         'before insert or update on realtime.subscription for each row execute function realtime.subscription_check_filters()');
do $$
begin
  -- On the parent only: partitions are reached through it
  if not (select relrowsecurity from pg_class where oid = 'realtime.messages'::regclass) then
    alter table realtime.messages enable row level security;
  end if;
end $$;
grant all on realtime.messages, realtime.subscription to postgres, dashboard_user;
grant select, insert, update on realtime.messages to anon, authenticated, service_role;
grant select on realtime.subscription to anon, authenticated, service_role;
grant all on sequence realtime.subscription_id_seq to postgres, dashboard_user;
grant usage on sequence realtime.subscription_id_seq to anon, authenticated, service_role;
grant execute on all functions in schema realtime to public, postgres, dashboard_user;
grant execute on function realtime.apply_rls(jsonb, integer), realtime."cast"(text, regtype),
  realtime.check_equality_op(realtime.equality_op, regtype, text, text),
  realtime.check_equality_op(realtime.equality_op, regtype, text, text, boolean),
  realtime.is_visible_through_filters(realtime.wal_column[], realtime.user_defined_filter[]),
  realtime.quote_wal2json(regclass), realtime.build_prepared_statement_sql(text, regclass, realtime.wal_column[]),
  realtime.subscription_check_filters(), realtime.to_regrole(text)
  to anon, authenticated, service_role;
reset role;
