-- The look of supabase_vault. Secrets are encrypted under the server's key, which only functions of schema portico read.
create table vault.secrets (
  id uuid primary key default pg_catalog.gen_random_uuid(),
  name text,
  description text not null default '',
  secret text not null,
  key_id uuid,
  nonce bytea default pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
  created_at timestamptz not null default current_timestamp,
  updated_at timestamptz not null default current_timestamp
);
comment on table vault.secrets is 'Table with encrypted `secret` column for storing sensitive information on disk.';
create unique index secrets_name_idx on vault.secrets (name) where name is not null;

-- Rows of an extension's tables are in dumps only when asked for; outside of `create extension` this is refused
do $$
begin
  perform pg_catalog.pg_extension_config_dump('vault.secrets', '');
exception when feature_not_supported then
  null;
end $$;
