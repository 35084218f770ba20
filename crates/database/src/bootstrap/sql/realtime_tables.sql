-- Types and tables of schema realtime in their final state. Partitions of messages come and go daily, see message_partitions.sql.
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

select pg_temp.act_as('supabase_admin');
select pg_temp.ensure_table('realtime.schema_migrations', $columns$
  version bigint not null
  inserted_at timestamp(0)
$columns$, $constraints$
  schema_migrations_pkey primary key (version)
$constraints$);
insert into realtime.schema_migrations (version, inserted_at)
select version::bigint, now() from regexp_split_to_table(trim($versions$
  20211116024918 20211116045059 20211116050929 20211116051442 20211116212300 20211116213355 20211116213934
  20211116214523 20211122062447 20211124070109 20211202204204 20211202204605 20211210212804 20211228014915
  20220107221237 20220228202821 20220312004840 20220603231003 20220603232444 20220615214548 20220712093339
  20220908172859 20220916233421 20230119133233 20230128025114 20230128025212 20230227211149 20230228184745
  20230308225145 20230328144023 20231018144023 20231204144023 20231204144024 20231204144025 20240108234812
  20240109165339 20240227174441 20240311171622 20240321100241 20240401105812 20240418121054 20240523004032
  20240618124746 20240801235015 20240805133720 20240827160934 20240919163303 20240919163305 20241019105805
  20241030150047 20241108114728 20241121104152 20241130184212 20241220035512 20241220123912 20241224161212
  20250107150512 20250110162412 20250123174212 20250128220012 20250506224012 20250523164012 20250714121412
  20250905041441 20251103001201 20251120212548 20251120215549 20260218120000 20260326120000 20260514120000
  20260527120000 20260528120000 20260603120000 20260605120000 20260606110000 20260616120000 20260624120000
  20260626120000 20260706120000 20260707120000 20260709120000
$versions$, E' \n'), '\s+') as version
on conflict do nothing;
reset role;
