-- The key of vault.secrets. Only the owner of this schema reads it; the vault's functions run as that owner.
create table portico.vault_key (
  only_row boolean primary key default true check (only_row),
  key text not null
);
insert into portico.vault_key (key) values (gen_random_uuid()::text || gen_random_uuid()::text);
