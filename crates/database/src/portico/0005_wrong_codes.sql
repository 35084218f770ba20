-- Wrong codes of accounts, so that a restart does not allow their guesses anew. A limit is a bucket; what is known of it is when it will be
-- full again, so counting one more is an addition that several servers can do at once.
create table portico.wrong_codes (
  kind text not null,
  -- SHA-256 of whose codes they are: an address or number, for one of the limits with the network it came from.
  account bytea not null,
  full_at timestamptz not null,
  primary key (kind, account)
);
create index wrong_codes_full_at_idx on portico.wrong_codes (full_at);
grant select, insert, update, delete on portico.wrong_codes to supabase_auth_admin;
