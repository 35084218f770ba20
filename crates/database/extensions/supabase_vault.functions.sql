-- Functions, view and grants, which the bootstrap runs again in a vault that is there already.
alter table vault.secrets alter column nonce set default pg_catalog.uuid_send(pg_catalog.gen_random_uuid());

-- These two run as the owner of schema portico. They name no table, and their path ends with pg_temp, so that types of the
-- caller are not found. The key is random, so stretching it would only cost time; the row's id and nonce are part of it, so
-- that a ciphertext cannot be moved to another row.
create or replace function vault._crypto_aead_det_encrypt(message bytea, additional bytea, key_id bigint, context bytea default 'pgsodium', nonce bytea default null)
returns bytea language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select portico.pgp_sym_encrypt_bytea(message,
           portico.read_vault_key() || '.' || encode(additional, 'hex') || '.' || coalesce(encode(nonce, 'hex'), ''),
           'cipher-algo=aes256, s2k-mode=1, compress-algo=0')
$$;
create or replace function vault._crypto_aead_det_decrypt(message bytea, additional bytea, key_id bigint, context bytea default 'pgsodium', nonce bytea default null)
returns bytea language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select portico.pgp_sym_decrypt_bytea(message,
           portico.read_vault_key() || '.' || encode(additional, 'hex') || '.' || coalesce(encode(nonce, 'hex'), ''))
$$;
create or replace function vault._crypto_aead_det_noncegen() returns bytea language sql volatile set search_path = pg_catalog, pg_temp as $$
  select uuid_send(gen_random_uuid())
$$;

create or replace view vault.decrypted_secrets as
  select s.id, s.name, s.description, s.secret,
         pg_catalog.convert_from(
           vault._crypto_aead_det_decrypt(pg_catalog.decode(s.secret, 'base64'::text), pg_catalog.convert_to(s.id::text, 'UTF8'::name),
                                          0::bigint, 'pgsodium'::bytea, s.nonce), 'UTF8'::name) as decrypted_secret,
         s.key_id, s.nonce, s.created_at, s.updated_at
    from vault.secrets as s;

create or replace function vault.create_secret(new_secret text, new_name text default null, new_description text default '', new_key_id uuid default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  new_id uuid := gen_random_uuid();
  new_nonce bytea := vault._crypto_aead_det_noncegen();
begin
  insert into vault.secrets (id, name, description, secret, key_id, nonce)
  values (new_id, new_name, coalesce(new_description, ''),
          encode(vault._crypto_aead_det_encrypt(convert_to(new_secret, 'UTF8'), convert_to(new_id::text, 'UTF8'), 0, 'pgsodium', new_nonce), 'base64'),
          new_key_id, new_nonce);
  return new_id;
end $$;

create or replace function vault.update_secret(secret_id uuid, new_secret text default null, new_name text default null, new_description text default null, new_key_id uuid default null)
returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update vault.secrets as s
     set secret = case when new_secret is null then s.secret else
                    encode(vault._crypto_aead_det_encrypt(convert_to(new_secret, 'UTF8'), convert_to(s.id::text, 'UTF8'), 0, 'pgsodium', s.nonce), 'base64') end,
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
  -- The owner has no other rights: a foreign key to a table runs casts of the referring role with the rights of the table's
  -- owner, and the hosted service grants postgres references
  if exists (select from pg_catalog.pg_roles where rolname = 'portico_vault') and (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then
    grant usage on schema vault to portico_vault;
    alter table vault.secrets owner to portico_vault;
    alter view vault.decrypted_secrets owner to portico_vault;
    alter function vault.create_secret(text, text, text, uuid) owner to portico_vault;
    alter function vault.update_secret(uuid, text, text, text, uuid) owner to portico_vault;
    grant execute on function vault._crypto_aead_det_encrypt(bytea, bytea, bigint, bytea, bytea),
      vault._crypto_aead_det_decrypt(bytea, bytea, bigint, bytea, bytea), vault._crypto_aead_det_noncegen() to portico_vault;
  end if;
  if exists (select from pg_catalog.pg_roles where rolname = 'service_role') then
    grant usage on schema vault to postgres with grant option;
    grant usage on schema vault to service_role;
    grant select, delete, truncate, references on vault.secrets, vault.decrypted_secrets to postgres with grant option;
    grant select, delete on vault.secrets, vault.decrypted_secrets to service_role;
    grant execute on function vault.create_secret(text, text, text, uuid), vault.update_secret(uuid, text, text, text, uuid),
      vault._crypto_aead_det_decrypt(bytea, bytea, bigint, bytea, bytea) to postgres with grant option;
    grant execute on function vault.create_secret(text, text, text, uuid), vault.update_secret(uuid, text, text, text, uuid),
      vault._crypto_aead_det_decrypt(bytea, bytea, bigint, bytea, bytea) to service_role;
  end if;
end $$;
