-- Types and tables of schema realtime in their final state. Partitions of messages come and go
-- daily, see message_partitions.sql.
set role supabase_realtime_admin;
select pg_temp.ensure_enum('realtime.action', '{INSERT,UPDATE,DELETE,TRUNCATE,ERROR}'),
       pg_temp.ensure_enum('realtime.equality_op', '{eq,neq,lt,lte,gt,gte,in,like,ilike,is,match,imatch,isdistinct}');
do $$
begin
  if to_regtype('realtime.user_defined_filter') is null then
    create type realtime.user_defined_filter as (column_name text, op realtime.equality_op, value text, negate boolean);
  elsif not exists (select from pg_attribute where attrelid = 'realtime.user_defined_filter'::regclass and attname = 'negate') then
    alter type realtime.user_defined_filter add attribute negate boolean cascade;
  end if;
  if to_regtype('realtime.wal_column') is null then
    create type realtime.wal_column as (name text, type_name text, type_oid oid, value jsonb, is_pkey boolean, is_selectable boolean);
  end if;
  if to_regtype('realtime.wal_rls') is null then
    create type realtime.wal_rls as (wal jsonb, is_rls_enabled boolean, subscription_ids uuid[], errors text[]);
  end if;
end $$;

create or replace function realtime.to_regrole(role_name text) returns regrole language sql immutable as
  $$ select role_name::regrole $$;

select pg_temp.ensure_table('realtime.messages', $columns$
  topic text not null
  extension text not null
  payload jsonb
  event text
  private bool default false
  updated_at timestamp default now() not null
  inserted_at timestamp default now() not null
  id uuid default gen_random_uuid() not null
  binary_payload bytea
$columns$, $constraints$
  messages_pkey primary key (id, inserted_at)
$constraints$, 'partition by range (inserted_at)');
do $$
begin
  -- Not valid, as at the hosted service: a create table would make it valid
  if not exists (select from pg_constraint where conrelid = 'realtime.messages'::regclass and conname = 'messages_payload_exclusive') then
    alter table realtime.messages add constraint messages_payload_exclusive check (payload is null or binary_payload is null) not valid;
  end if;
end $$;
create index if not exists messages_inserted_at_topic_index on realtime.messages (inserted_at desc, topic)
  where extension = 'broadcast' and private is true;

select pg_temp.ensure_table('realtime.subscription', $columns$
  id bigint generated always as identity not null
  subscription_id uuid not null
  entity regclass not null
  filters realtime.user_defined_filter[] default '{}'::realtime.user_defined_filter[] not null
  claims jsonb not null
  claims_role regrole generated always as (realtime.to_regrole(claims ->> 'role')) stored not null
  created_at timestamp default timezone('utc', now()) not null
  action_filter text default '*'
  selected_columns text[]
$columns$, $constraints$
  pk_subscription primary key (id)
  subscription_action_filter_check check (action_filter = any (array['*', 'INSERT', 'UPDATE', 'DELETE']))
$constraints$);
create index if not exists ix_realtime_subscription_entity on realtime.subscription (entity);
create unique index if not exists subscription_subscription_id_entity_filters_action_filter_selec
  on realtime.subscription (subscription_id, entity, filters, action_filter, coalesce(selected_columns, '{}'::text[]));
reset role;
