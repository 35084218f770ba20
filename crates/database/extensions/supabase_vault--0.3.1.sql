-- The look of supabase_vault. Secrets are encrypted by pgcrypto under the server's key, which lies outside this schema and
-- which only these functions read.
create table vault.secrets (
  id uuid primary key default gen_random_uuid(),
  name text,
  description text not null default '',
  secret text not null,
  key_id uuid,
  nonce bytea default @extschema:pgcrypto@.gen_random_bytes(16),
  created_at timestamptz not null default current_timestamp,
  updated_at timestamptz not null default current_timestamp
);
comment on table vault.secrets is 'Table with encrypted `secret` column for storing sensitive information on disk.';
create unique index secrets_name_idx on vault.secrets (name) where name is not null;

create function vault._crypto_aead_det_encrypt(message bytea, additional bytea, key_id bigint, context bytea default 'pgsodium', nonce bytea default null)
returns bytea language sql volatile security definer set search_path = '' as $$
  -- The key is random, so stretching it would only cost time; the row's id and nonce are part of it, so that a
  -- ciphertext can not be moved to another row
  select @extschema:pgcrypto@.pgp_sym_encrypt_bytea(message,
           key || '.' || pg_catalog.encode(additional, 'hex') || '.' || coalesce(pg_catalog.encode(nonce, 'hex'), ''),
           'cipher-algo=aes256, s2k-mode=1, compress-algo=0')
    from portico.vault_key
$$;
create function vault._crypto_aead_det_decrypt(message bytea, additional bytea, key_id bigint, context bytea default 'pgsodium', nonce bytea default null)
returns bytea language sql stable security definer set search_path = '' as $$
  select @extschema:pgcrypto@.pgp_sym_decrypt_bytea(message,
           key || '.' || pg_catalog.encode(additional, 'hex') || '.' || coalesce(pg_catalog.encode(nonce, 'hex'), ''))
    from portico.vault_key
$$;
create function vault._crypto_aead_det_noncegen() returns bytea language sql volatile as $$
  select @extschema:pgcrypto@.gen_random_bytes(16)
$$;

create view vault.decrypted_secrets as
  select s.id, s.name, s.description, s.secret,
         convert_from(vault._crypto_aead_det_decrypt(decode(s.secret, 'base64'), convert_to(s.id::text, 'UTF8'), 0, 'pgsodium', s.nonce), 'UTF8')
           as decrypted_secret,
         s.key_id, s.nonce, s.created_at, s.updated_at
    from vault.secrets as s;

create function vault.create_secret(new_secret text, new_name text default null, new_description text default '', new_key_id uuid default null)
returns uuid language plpgsql security definer set search_path = '' as $$
declare
  new_id uuid := pg_catalog.gen_random_uuid();
  new_nonce bytea := vault._crypto_aead_det_noncegen();
begin
  insert into vault.secrets (id, name, description, secret, key_id, nonce)
  values (new_id, new_name, coalesce(new_description, ''),
          pg_catalog.encode(vault._crypto_aead_det_encrypt(
            pg_catalog.convert_to(new_secret, 'UTF8'), pg_catalog.convert_to(new_id::text, 'UTF8'), 0, 'pgsodium', new_nonce), 'base64'),
          new_key_id, new_nonce);
  return new_id;
end $$;

create function vault.update_secret(secret_id uuid, new_secret text default null, new_name text default null, new_description text default null, new_key_id uuid default null)
returns void language plpgsql security definer set search_path = '' as $$
begin
  update vault.secrets as s
     set secret = case when new_secret is null then s.secret else
                    pg_catalog.encode(vault._crypto_aead_det_encrypt(
                      pg_catalog.convert_to(new_secret, 'UTF8'), pg_catalog.convert_to(s.id::text, 'UTF8'), 0, 'pgsodium', s.nonce), 'base64') end,
         name = coalesce(new_name, s.name),
         description = coalesce(new_description, s.description),
         key_id = coalesce(new_key_id, s.key_id),
         updated_at = now()
   where s.id = secret_id;
end $$;

revoke all on all functions in schema vault from public;
revoke all on all tables in schema vault from public;
do $$
begin
  if exists (select from pg_catalog.pg_roles where rolname = 'service_role') then
    grant usage on schema vault to postgres with grant option;
    grant usage on schema vault to service_role;
    grant select, delete on vault.secrets, vault.decrypted_secrets to postgres with grant option;
    grant select, delete on vault.secrets, vault.decrypted_secrets to service_role;
    grant execute on function vault.create_secret(text, text, text, uuid), vault.update_secret(uuid, text, text, text, uuid),
      vault._crypto_aead_det_decrypt(bytea, bytea, bigint, bytea, bytea) to postgres with grant option;
    grant execute on function vault.create_secret(text, text, text, uuid), vault.update_secret(uuid, text, text, text, uuid),
      vault._crypto_aead_det_decrypt(bytea, bytea, bigint, bytea, bytea) to service_role;
  end if;
end $$;

-- Rows of an extension's tables are in dumps only when asked for; outside of `create extension` this is refused
do $$
begin
  perform pg_catalog.pg_extension_config_dump('vault.secrets', '');
exception when feature_not_supported then
  null;
end $$;
