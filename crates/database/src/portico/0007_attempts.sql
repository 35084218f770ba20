-- Guesses at codes and passwords, which all servers on this database count together. A limit is a bucket; all that is kept of it is when
-- it will be full again, so that one statement counts a guess and decides whether it is allowed.
alter table portico.wrong_codes rename to attempts;
alter table portico.attempts rename constraint wrong_codes_pkey to attempts_pkey;
alter index portico.wrong_codes_full_at_idx rename to attempts_full_at_idx;

-- The networks from which an account was signed in to: guesses of strangers elsewhere do not keep these from trying a password.
create table portico.known_networks (
  -- SHA-256 of the address or number of the account.
  account bytea not null,
  -- SHA-256 of the account and the network.
  network bytea not null,
  seen_at timestamptz not null,
  primary key (account, network)
);
create index known_networks_seen_at_idx on portico.known_networks (seen_at);
grant select, insert, update, delete on portico.known_networks to supabase_auth_admin;
