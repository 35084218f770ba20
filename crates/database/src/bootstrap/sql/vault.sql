-- Brings an older vault up to date: encrypts its secrets anew with the key of the file, and deletes
-- the key from the table, where other roles could read it.
do $$
declare old_key text;
begin
  if not pg_temp.has_key_file() or to_regclass('vault.secrets') is null then
    if pg_temp.has_key_file() then
      delete from portico.vault_key;
    end if;
    return;
  end if;
  select key into old_key from portico.vault_key;
  -- Only a superuser's table, as an older version left it, has no triggers of others
  if old_key is not null and (select rolsuper from pg_class join pg_roles as owner on owner.oid = relowner where pg_class.oid = 'vault.secrets'::regclass) then
    update vault.secrets as s
       set secret = encode(portico.pgp_sym_encrypt_bytea(
             portico.pgp_sym_decrypt_bytea(decode(s.secret, 'base64'), old_key || '.' || encode(convert_to(s.id::text, 'UTF8'), 'hex') || '.' || coalesce(encode(s.nonce, 'hex'), '')),
             portico.read_vault_key() || '.' || encode(convert_to(s.id::text, 'UTF8'), 'hex') || '.' || coalesce(encode(s.nonce, 'hex'), ''),
             'cipher-algo=aes256, s2k-mode=1, compress-algo=0'), 'base64');
  end if;
  delete from portico.vault_key;
end $$;
