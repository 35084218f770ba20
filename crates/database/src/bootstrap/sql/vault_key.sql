-- The key of the vault and the two functions that encrypt with it. They are in our own schema and
-- name no object of a role of the project. The extension pgcrypto belongs to postgres, so they call
-- the functions of its library directly.
do $outer$
declare pgcrypto text := (select quote_ident(nspname) from pg_extension join pg_namespace as n on n.oid = extnamespace where extname = 'pgcrypto');
begin
  if pg_temp.is_superuser() then
    perform pg_temp.attempt('encryption of the vault', $command$
      create or replace function portico.pgp_sym_encrypt_bytea(bytea, text, text) returns bytea language c strict as '$libdir/pgcrypto', 'pgp_sym_encrypt_bytea';
      create or replace function portico.pgp_sym_decrypt_bytea(bytea, text) returns bytea language c strict as '$libdir/pgcrypto', 'pgp_sym_decrypt_bytea';
    $command$);
  elsif pgcrypto is not null then
    execute format($command$
      create or replace function portico.pgp_sym_encrypt_bytea(bytea, text, text) returns bytea language sql strict as 'select %1$s.pgp_sym_encrypt_bytea($1, $2, $3)';
      create or replace function portico.pgp_sym_decrypt_bytea(bytea, text) returns bytea language sql strict as 'select %1$s.pgp_sym_decrypt_bytea($1, $2)';
    $command$, pgcrypto);
  end if;
  if pg_temp.has_key_file() then
    -- A table could be read by pg_read_all_data, a base backup and the log of changes; PostgreSQL
    -- reads the file for superusers only
    create or replace function portico.read_vault_key() returns text language sql stable set search_path = pg_catalog, pg_temp as
      $body$ select pg_catalog.pg_read_file('../vault.key') $body$;
  else
    create or replace function portico.read_vault_key() returns text language sql stable set search_path = pg_catalog, pg_temp as
      $body$ select key from portico.vault_key $body$;
  end if;
end $outer$;
revoke all on all functions in schema portico from public;
